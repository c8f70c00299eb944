"""How much the proxy takes on at once: answers and counts apart, each with its own limit.

What is beyond a limit is refused before anything of it is kept, with an error that makes a
harness wait and come again; so an overload costs time and never evidence.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import anyio

from specs.errors import ErrorCode, ErrorObject, Unavailable


@dataclass(frozen=True, slots=True)
class Limits:
    """What a proxy takes on.

    `calls`: being rendered, waiting for compute or being sampled, together; `counts`: being
    counted at once; `waiting_counts`: waiting for that.
    """

    calls: int = 256
    counts: int = 2
    waiting_counts: int = 64


DEFAULT_LIMITS = Limits()


class Admission:
    """Counts what is under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._calls = 0
        self._waiting = 0
        self._counting = anyio.CapacityLimiter(limits.counts)

    @contextmanager
    def call(self) -> Generator[None]:
        """A call under way; entered again for its sampling, which outlives its client."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def check(self) -> None:
        """Refuse another call when there are too many.

        Raises:
            Unavailable: `overloaded`.
        """
        if self._calls >= self._limits.calls:
            raise _overloaded("model calls", self._limits.calls)

    @asynccontextmanager
    async def count(self) -> AsyncGenerator[None]:
        """A place to count in, waited for. On cancel the place in the queue is given up.

        Raises:
            Unavailable: `overloaded`, if too many wait.
        """
        if self._waiting >= self._limits.waiting_counts:
            raise _overloaded("requests to count tokens", self._waiting)
        self._waiting += 1
        try:
            await self._counting.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._counting.release()


def _overloaded(what: str, amount: int) -> Unavailable:
    return Unavailable(
        f"The proxy has {amount} {what} under way and takes no more now.",
        code=ErrorCode.OVERLOADED,
        object=ErrorObject(type="process", id="proxy"),
        next="Send the request again after the time in `retry-after`.",
    )
