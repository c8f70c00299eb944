"""The load of the proxy's benchmarks: conversations that grow, and the times of their calls.

Their texts are cut out of the standard library's sources, since the work of a tokenizer depends
on what it reads.
"""

import json
import random
import sysconfig
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import anyio

from benchmarks._stack import MODEL

MAX_TOKENS = 256
HISTORY_TURNS = 50

type Turn = dict[str, str]


class Talk:
    """One conversation: its messages as they are sent, which grow with each answer."""

    def __init__(self, seed: str, opening: Sequence[Turn]) -> None:
        self._random = random.Random(seed)
        self._parts = [json.dumps(turn) for turn in opening]
        self.turns = 0

    def body(self, *, stream: bool) -> bytes:
        """The next request: the history, and one turn of the user more."""
        self._add("user", f"[{self.turns}] {source(self._random, 200)}")
        options = ',"stream":true,"stream_options":{"include_usage":true}' if stream else ""
        return (
            f'{{"model":"{MODEL}","max_tokens":{MAX_TOKENS}{options},"messages":['
            + ",".join(self._parts)
            + "]}"
        ).encode()

    def answered(self, text: str) -> None:
        """Make the answer part of the history."""
        self._add("assistant", text)
        self.turns += 1

    def _add(self, role: str, text: str) -> None:
        self._parts.append(json.dumps({"role": role, "content": text}))


def short(seed: str) -> list[Turn]:
    """About 1 KB with the first question; no two seeds begin alike."""
    return [{"role": "system", "content": f"{seed} {source(random.Random(seed), 800)}"}]


def long(seed: str, size: int) -> list[Turn]:
    """About `size` characters: a system prompt, and turns of the user with short answers."""
    chance = random.Random(seed)
    each = size // (HISTORY_TURNS // 2 + 5)
    turns: list[Turn] = [{"role": "system", "content": f"{seed} {source(chance, 5 * each)}"}]
    for _ in range(HISTORY_TURNS // 2):
        turns.append({"role": "user", "content": source(chance, each - 100)})
        turns.append({"role": "assistant", "content": source(chance, 100)})
    return turns


def source(chance: random.Random, size: int) -> str:
    """So many characters of Python's own library, from anywhere in it."""
    text = _library()
    start = chance.randrange(len(text) - size)
    return text[start : start + size]


@cache
def _library() -> str:
    names = ("argparse", "ast", "inspect", "pydoc", "tarfile", "typing", "doctest", "difflib")
    folder = Path(sysconfig.get_path("stdlib"))
    return "".join((folder / f"{name}.py").read_text() for name in names)


@dataclass(slots=True)
class Times:
    """The times of calls, and of all of them together."""

    latencies: list[float] = field(default_factory=list[float])
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.latencies) / self.seconds

    def at(self, share: float, floor: float = 0.0) -> float:
        """The latency above `floor`, in milliseconds, that a share of the calls kept to."""
        ordered = sorted(self.latencies)
        place = min(len(ordered) - 1, int(share * len(ordered)))
        return 1000 * (ordered[place] - floor)

    async def measure(
        self, calls: int, sessions: int, call: Callable[[int], Awaitable[None]]
    ) -> None:
        """Make `calls` calls, one at a time of each session."""
        numbers = iter(range(calls))

        async def work(session: int) -> None:
            for _ in numbers:
                begun = time.perf_counter()
                await call(session)
                self.latencies.append(time.perf_counter() - begun)

        begun = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for session in range(sessions):
                tasks.start_soon(work, session)
        self.seconds += time.perf_counter() - begun
