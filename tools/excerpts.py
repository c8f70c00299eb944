"""A bounded piece of a file's text: from a byte on, with the place of the next piece.

Pieces end between characters, so reading from `next` to `next` gives the file exactly. What is
no UTF-8 text is said to be none, and never shown as something else.
"""

from typing import Annotated

from pydantic import Field

from specs.base import Contract
from specs.cursors import position
from specs.errors import ErrorObject, InvalidInput, NotFound

ByteLimit = Annotated[int, Field(ge=16, le=16_000, description="Bytes of text at once")]
_LONGEST_CHARACTER = 4


class FileEntry(Contract):
    """A file and its size in bytes."""

    path: str
    size: int


class Excerpt(Contract):
    """Text of a file from byte `start` on."""

    path: str
    size: int
    start: int
    text: str | None
    """None: the file is not UTF-8 text."""
    next: str | None = None
    """Cursor of what follows."""


def excerpt(path: str, data: bytes, limit: int, cursor: str | None = None) -> Excerpt:
    """At most `limit` bytes of a file from the cursor on.

    Raises:
        InvalidInput: a cursor that does not stand between two characters of the text.
    """
    start = 0 if cursor is None else position(cursor)
    if start is None or start > len(data):
        raise _bad_cursor(cursor or "")
    end = _boundary(data, min(len(data), start + limit))
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return Excerpt(path=path, size=len(data), start=start, text=None)
    if _boundary(data, start) != start:
        raise _bad_cursor(cursor or "")
    return Excerpt(
        path=path,
        size=len(data),
        start=start,
        text=data[start:end].decode("utf-8"),
        next=str(end) if end < len(data) else None,
    )


def chosen(files: dict[str, bytes], path: str, owner: ErrorObject, listing: str) -> bytes:
    """The file at a path.

    Raises:
        NotFound: naming the paths that there are.
    """
    if path not in files:
        raise NotFound(
            f"{owner.type.capitalize()} {owner.id} has no file {path!r}.",
            object=ErrorObject(type="file", id=path),
            next=f"See what there is: {listing}",
        )
    return files[path]


def excerpt_text(piece: Excerpt) -> str:
    """The text under a line that says what it is."""
    head = f"--- {piece.path}, {piece.size} bytes, from {piece.start}"
    if piece.text is None:
        return f"{head}: no text"
    more = "" if piece.next is None else f"\nmore: --cursor {piece.next}"
    return f"{head}\n{piece.text}{more}"


def _boundary(data: bytes, place: int) -> int:
    """The nearest place at or before one where a character ends."""
    for back in range(min(_LONGEST_CHARACTER - 1, place) + 1):
        if place - back == len(data) or data[place - back] & 0xC0 != 0x80:
            return place - back
    return place  # no UTF-8, which is told elsewhere


def _bad_cursor(cursor: str) -> InvalidInput:
    return InvalidInput(
        f"{cursor!r} is not a place of this text.",
        object=ErrorObject(type="arguments", pointer="/cursor"),
        next="Use `next` of the piece before, or leave the cursor out.",
    )
