"""A plugin's folder on this machine, as the files of a profile.

Links are followed as far as they stay where the profile may read; what a version control system
or Python leaves in a folder is left out. Everything else must be text within the bounds of
`specs.profile`, so that a published profile stands alone and is small.
"""

import os
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from specs.errors import ErrorObject, InvalidInput
from specs.paths import resolved
from specs.profile import (
    MAX_FILE_BYTES,
    MAX_PLUGIN_BYTES,
    MAX_PLUGIN_FILES,
    PluginFile,
    plugin_digest,
)

_LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".DS_Store"})


def plugin_of(folder: Path, within: Path, pointer: str, what: str) -> dict[str, JsonValue]:
    """The keys `files` and `digest` of a plugin whose files are read from `folder`.

    Raises:
        InvalidInput: there is no such folder, a file leads out of `within`, is no text, or is
            too large, or there are too many.
    """
    if not folder.is_dir():
        raise _bad(what, pointer, f"{folder} is not a folder")
    files: list[PluginFile] = []
    total = 0
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if not resolved(path).is_relative_to(within):
            raise _bad(what, pointer, f"{name} leaves the folder of the profile")
        data = path.read_bytes()
        total += len(data)
        if len(data) > MAX_FILE_BYTES or total > MAX_PLUGIN_BYTES:
            raise _bad(what, pointer, f"with {name} it is larger than {MAX_PLUGIN_BYTES} bytes")
        if len(files) == MAX_PLUGIN_FILES:
            raise _bad(what, pointer, f"it has more than {MAX_PLUGIN_FILES} files")
        try:
            content = data.decode("utf-8")
        except UnicodeDecodeError:
            raise _bad(what, pointer, f"{name} is not UTF-8 text") from None
        mode = "755" if path.stat().st_mode & 0o100 else "644"
        files.append(PluginFile(path=name, content=content, mode=mode))
    values = [cast(JsonValue, file.model_dump(mode="json")) for file in files]
    return {"files": values, "digest": plugin_digest(files)}


def _walk(folder: Path) -> list[Path]:
    """Regular files in the order of their paths; a linked folder is entered once."""
    found: list[Path] = []
    seen: set[Path] = set()
    for directory, folders, names in os.walk(folder, followlinks=True):
        real = resolved(Path(directory))
        folders[:] = sorted(set(folders) - _LEFT_OUT) if real not in seen else []
        if real in seen:
            continue
        seen.add(real)
        paths = (Path(directory, name) for name in names if name not in _LEFT_OUT)
        found += [path for path in paths if path.is_file() and path.suffix != ".pyc"]
    return sorted(found)


def _bad(what: str, pointer: str, cause: str) -> InvalidInput:
    return InvalidInput(
        f"The plugin folder of the {what} cannot be used: {cause}.",
        object=ErrorObject(type=what, pointer=pointer),
        next="Name a folder beside the profile that holds the plugin's text files alone.",
    )
