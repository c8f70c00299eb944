"""Reading every page of a list.

What may be long and need not be kept is read page by page instead.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol


class Page[T](Protocol):
    """Some items, and the cursor of the next ones."""

    @property
    def items(self) -> list[T]: ...
    @property
    def next(self) -> str | None: ...


async def every[T](read: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
    """All items of a paged list; `read` takes a cursor, None at first."""
    items: list[T] = []
    cursor: str | None = None
    while True:
        page = await read(cursor)
        items += page.items
        cursor = page.next
        if cursor is None:
            return items
