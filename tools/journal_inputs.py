"""What `practicum journal` is given, as values: a place, a time, a text, data, an author."""

import getpass
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from pydantic import JsonValue, TypeAdapter

from runtime.home import Home
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.journal import JournalName
from specs.paths import user_path
from tools.documents import read_file

AUTHOR = "PRACTICUM_AUTHOR"
"""Environment variable that says who writes, where `--author` does not."""

_NAME: TypeAdapter[str] = TypeAdapter(JournalName)
_AGO = re.compile(r"^(\d+)([dhm])$")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def place(home: Home, journal: str) -> Path:
    """The folder of a journal: a name is one of the home, a path is the user's own.

    Raises:
        InvalidInput: `invalid_reference`; it is neither.
    """
    if "/" in journal or journal.startswith("."):
        return user_path(journal).absolute()
    if is_name(journal):
        return home.journals / journal
    raise InvalidInput(
        f"{journal[:200]!r} does not name a journal.",
        code=ErrorCode.INVALID_REFERENCE,
        object=ErrorObject(type="journal", id=journal[:200], pointer="/journal"),
        next="Use lower-case letters, digits, dots and dashes, or a path with a slash in it.",
    )


def is_name(text: str) -> bool:
    """Whether a text can be the name of a journal of the home."""
    try:
        _NAME.validate_python(text)
    except ValueError:
        return False
    return True


def moment(text: str) -> datetime:
    """A time from ISO 8601 (UTC unless it says otherwise), or from `7d`, `12h`, `30m` ago.

    Raises:
        InvalidInput: neither.
    """
    ago = _AGO.match(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{text!r} is not a time.",
            object=ErrorObject(type="arguments", pointer="/since"),
            next="Write it as 2026-01-31, 2026-01-31T12:00Z, 7d, 12h or 30m.",
        ) from None


def text_of(given: str) -> str:
    """The text, or that of the file behind `@`.

    Raises:
        InvalidInput: the file cannot be read, or is no text.
    """
    if not given.startswith("@"):
        return given
    try:
        return read_file(given[1:], "entry").decode()
    except UnicodeDecodeError:
        raise InvalidInput(
            f"The entry file {given[1:]} is not UTF-8 text.",
            object=ErrorObject(type="entry", id=given[1:], pointer="/text"),
            next="Link it instead: --link file:PATH",
        ) from None


def data_of(given: dict[str, JsonValue] | str | None) -> dict[str, JsonValue]:
    """The JSON object that was given, as such, as text, or in the file behind `@`.

    Raises:
        InvalidInput: it is none.
    """
    value: JsonValue = given if isinstance(given, dict) else {}
    if isinstance(given, str):
        raw = read_file(given[1:], "data") if given.startswith("@") else given
        value = canonical.loads(raw, what="data")
    if not isinstance(value, dict):
        raise InvalidInput(
            "The data of an entry is a JSON object.",
            object=ErrorObject(type="entry", pointer="/data"),
            next="Write it as '{\"reward\": 0.5}' or @file.json.",
        )
    return cast(dict[str, JsonValue], value)


def user(given: str | None) -> str:
    """Who writes: who is given, else the environment's word, else the name of the user."""
    if given is not None:
        return given
    if author := os.environ.get(AUTHOR):
        return author
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
