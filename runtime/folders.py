"""Files that a document names beside itself: found below its folder, and nowhere else."""

from pathlib import Path

from specs.paths import resolved
from specs.profile import safe_path


def path_below(folder: Path | None, source: str, what: str) -> tuple[Path, Path]:
    """The path of `source`, relative to the folder of a `what`, and that folder, resolved.

    Raises:
        ValueError: with the cause: no folder, an unsafe path, a way out of the folder (also
            through a link).
    """
    if folder is None:
        raise ValueError(f"this {what} did not come from a file")
    path, root = folder / safe_path(source), resolved(folder)
    if not resolved(path).is_relative_to(root):
        raise ValueError(f"it leaves the folder of the {what}")
    return path, root


def file_below(folder: Path | None, source: str, what: str) -> Path:
    """The regular file at such a path.

    Raises:
        ValueError: with the cause; also where there is no such file.
    """
    path, root = path_below(folder, source, what)
    try:
        found = path.is_file()
    except OSError as error:
        raise ValueError(str(error.strerror)) from None
    if not found:
        raise ValueError(f"there is no such file in {root}")
    return path


def text_below(folder: Path | None, source: str, what: str, limit: int) -> str:
    """The text of such a file, of at most `limit` bytes.

    Raises:
        ValueError: with the cause.
    """
    path = file_below(folder, source, what)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(str(error.strerror)) from None
    if len(data) > limit:
        raise ValueError(f"it is larger than {limit} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
