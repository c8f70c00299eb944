"""Pages of what an operation already holds whole; the cursor is a position."""

from collections.abc import Sequence

from specs.errors import ErrorObject, InvalidInput

MAX_DIGITS = 15
"""Of a position: any more is none that was given, and Python reads no number of 5,000 digits."""


def position(text: str) -> int | None:
    """The whole number that a cursor is; None where it is none of ours."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def cut[T](items: Sequence[T], limit: int, cursor: str | None) -> tuple[list[T], str | None]:
    """One page from `cursor` on, and the cursor of the next page.

    Raises:
        InvalidInput: a cursor that this operation did not give.
    """
    start = 0 if cursor is None else position(cursor)
    if start is None:
        raise InvalidInput(
            f"{cursor!r} is not a cursor of this list.",
            object=ErrorObject(type="arguments", pointer="/cursor"),
            next="Use `next` of the page before, or leave the cursor out.",
        )
    end = start + limit
    return list(items[start:end]), str(end) if end < len(items) else None
