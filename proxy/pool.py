"""Threads for work on large texts: reading, comparing, tokenising, compressing.

The event loop answers everybody, so what takes long for one request leaves it. The threads are
few, because each wants the interpreter and the loop must get it back soon; what is small stays
on the loop, where it is done before a thread would have begun.
"""

import os
from collections.abc import Callable

import anyio
import anyio.to_thread

LARGE = 8192
"""Characters or bytes beyond which work leaves the event loop."""


class Pool:
    """A few threads; work beyond them waits in the order of its arrival."""

    def __init__(self) -> None:
        self._limit = anyio.CapacityLimiter(max(2, os.cpu_count() or 1))

    async def run[**P, T](
        self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`function(*args)` on a thread, or here if `size` is small.

        On cancel, work that has begun is waited for and its result is dropped.
        """
        if size < LARGE:
            return function(*args, **kwargs)
        return await anyio.to_thread.run_sync(
            lambda: function(*args, **kwargs), limiter=self._limit
        )
