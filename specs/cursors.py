"""Cursors that are positions: whole numbers in decimal, given by one page to ask for the next."""

from typing import Final

from specs.errors import ErrorObject, InvalidInput

MAX_DIGITS: Final = 18
"""Of a position: one with more was never given, and Python reads no number of 5,000 digits."""


def position(text: str) -> int | None:
    """The whole number that a text is; None where it is none that a page has given."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def start(cursor: str | None) -> int:
    """Where a page of a list begins.

    Raises:
        InvalidInput: a cursor that no page of a list gives.
    """
    place = 0 if cursor is None else position(cursor)
    if place is None:
        raise foreign(cursor, "list")
    return place


def foreign(cursor: str | None, of: str) -> InvalidInput:
    """The refusal of a cursor that the pages of this `of` did not give."""
    return InvalidInput(
        f"{cursor or ''!r} is not a cursor of this {of}.",
        object=ErrorObject(type="arguments", pointer="/cursor"),
        next="Use `next` of the page before, or leave the cursor out.",
    )
