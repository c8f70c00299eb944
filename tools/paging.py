"""Pages of what an operation already holds whole; the cursor is a position."""

from collections.abc import Sequence

from specs.errors import ErrorObject, InvalidInput


def cut[T](items: Sequence[T], limit: int, cursor: str | None) -> tuple[list[T], str | None]:
    """One page from `cursor` on, and the cursor of the next page.

    Raises:
        InvalidInput: a cursor that this operation did not give.
    """
    if cursor is not None and not cursor.isdecimal():
        raise InvalidInput(
            f"{cursor!r} is not a cursor of this list.",
            object=ErrorObject(type="arguments", pointer="/cursor"),
            next="Use `next` of the page before, or leave the cursor out.",
        )
    start = int(cursor or 0)
    end = start + limit
    return list(items[start:end]), str(end) if end < len(items) else None
