"""A sequence in pieces: how chunks are made, joined, and handed from a thread to a loop.

The chunks of a sequence joined are the sequence: `fold(chunked(s, n)) == s` for every n. All
carriers stream through these functions, so streaming and whole sampling cannot differ.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import Future

import numpy as np

from runtime.compute.protocol import Chunk, Sampled
from specs.errors import Internal


def fold(chunks: Sequence[Chunk]) -> Sampled:
    """The sequence that chunks are of.

    Raises:
        Internal: they do not end, go on after their end, or lack log-probs in places.
    """
    if not chunks or chunks[-1].stop_reason is None:
        raise _broken("they do not end")
    if any(chunk.stop_reason is not None for chunk in chunks[:-1]):
        raise _broken("they go on after their end")
    last = chunks[-1]
    found = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
    if found and len(found) != len(chunks):
        raise _broken("some have log-probs and some have none")
    return Sampled(
        np.concatenate([chunk.tokens for chunk in chunks]),
        np.concatenate(found) if found else None,
        last.stop_reason or "stop",
        last.provenance,
    )


def chunked(sampled: Sampled, size: int) -> Iterator[Chunk]:
    """A whole sequence in chunks of `size` tokens; an empty one is one empty chunk."""
    total = len(sampled.tokens)
    for start in range(0, max(total, 1), size):
        end = start + size
        yield Chunk(
            sampled.tokens[start:end],
            None if sampled.logprobs is None else sampled.logprobs[start:end],
            sampled.provenance,
            sampled.stop_reason if end >= total else None,
        )


class Growth:
    """Tokens that a sampling thread adds one by one and an event loop takes as they come."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._changed = asyncio.Event()

    def add(self, token: int, logprob: float) -> None:
        """From the thread: one more token. The loop is woken once for what it has not taken."""
        with self._lock:
            first = not self._tokens
            self._tokens.append(token)
            self._logprobs.append(logprob)
        if first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    async def chunks(self, future: "Future[list[Sampled]]") -> AsyncGenerator[Chunk]:
        """The sequence as it grows; `future` has it whole and ends it.

        Cancelling, or closing the generator, cancels `future`.
        """
        result = asyncio.wrap_future(future)
        result.add_done_callback(lambda _: self._changed.set())
        sent = 0
        try:
            while not result.done():
                await self._changed.wait()
                self._changed.clear()
                if (chunk := self._take()) is not None and not result.done():
                    sent += len(chunk.tokens)
                    yield chunk
            (sampled,) = result.result()
            rest = None if sampled.logprobs is None else sampled.logprobs[sent:]
            yield Chunk(sampled.tokens[sent:], rest, sampled.provenance, sampled.stop_reason)
        finally:
            if not result.cancel() and not result.cancelled():
                result.exception()  # it has been told, or nobody wants it any more

    def _take(self) -> Chunk | None:
        with self._lock:
            tokens, self._tokens = self._tokens, []
            logprobs, self._logprobs = self._logprobs, []
        if not tokens:
            return None
        return Chunk(np.array(tokens, np.int32), np.array(logprobs, np.float32))


def _broken(why: str) -> Internal:
    return Internal(
        f"The chunks of a sampled sequence are broken: {why}.",
        next="Look into the log of the compute process.",
    )
