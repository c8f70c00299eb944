"""Pages of what an operation already holds whole; the cursor is a position."""

from collections.abc import Sequence

from specs import cursors


def cut[T](items: Sequence[T], limit: int, cursor: str | None) -> tuple[list[T], str | None]:
    """One page from `cursor` on, and the cursor of the next page.

    Raises:
        InvalidInput: a cursor that this operation did not give.
    """
    start = cursors.start(cursor)
    end = start + limit
    return list(items[start:end]), str(end) if end < len(items) else None
