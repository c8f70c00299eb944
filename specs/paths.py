"""Paths as people write them: whatever is wrong with one is told, and never a defect of ours."""

import os
from pathlib import Path
from typing import Final

from specs.errors import ErrorCode, ErrorObject, InvalidInput

MAX_NAME_BYTES: Final = 255
"""What Linux allows for one name; beyond it even `exists` raises."""
MAX_PATH_BYTES: Final = 4095


def user_path(text: str | Path) -> Path:
    """The path of a text, in which `~` is the home of a user.

    Raises:
        InvalidInput: `invalid_reference`; nobody knows that user's home, or no file system
            could hold such a name.
    """
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise _refuse(text, "no user of this machine has that home") from None
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise _refuse(text, f"it is longer than {MAX_PATH_BYTES} bytes")
    if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in path.parts):
        raise _refuse(text, f"one name in it is longer than {MAX_NAME_BYTES} bytes")
    return path


def resolved(path: Path) -> Path:
    """The path without links, as far as they lead; a loop of links stays as it is, and fails
    where it is opened."""
    return Path(os.path.realpath(path))


def _refuse(text: str | Path, cause: str) -> InvalidInput:
    shown = str(text)[:200]
    return InvalidInput(
        f"{shown!r} is not a path that can be used: {cause}.",
        code=ErrorCode.INVALID_REFERENCE,
        object=ErrorObject(type="path", id=shown),
        next="Correct the path; a name that begins with ~ is written as ./~name.",
    )
