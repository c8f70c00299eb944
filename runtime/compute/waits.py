"""What keeps a remote operation waiting, for whoever wants to show it.

Every operation at a training service is entered here while it runs. `Waits.current` tells those
that the service has paused (a rate limit, no capacity) and those that are merely slow. The
service's threads report states; a pause counts as a sign of life, so only time that the service
does not explain brings an operation nearer to being given up.
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from runtime.compute.protocol import Wait, WaitState

SLOW_SEC = 60.0
"""After so long an operation that the service works on is told of."""


@dataclass(eq=False, slots=True)
class Doing:
    """One operation under way."""

    operation: str
    model: str
    trainer: str | None
    state: WaitState = "active"
    reason: str | None = None
    began: float = field(default_factory=time.monotonic)
    touched: float = field(default_factory=time.monotonic)
    """When the service last gave a reason for waiting, or the operation began."""

    def report(self, state: WaitState, reason: str | None = None) -> None:
        """What the service says of the operation; from any thread."""
        self.state, self.reason = state, reason
        if state != "active":
            self.touched = time.monotonic()

    @property
    def unexplained(self) -> float:
        """Seconds without a result and without a reason for it."""
        return time.monotonic() - self.touched


class Waits:
    """The operations under way of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._doing: set[Doing] = set()

    @contextmanager
    def doing(self, operation: str, model: str, trainer: str | None = None) -> Generator[Doing]:
        """Enter an operation for as long as the block runs."""
        entry = Doing(operation, model, trainer)
        with self._lock:
            self._doing.add(entry)
        try:
            yield entry
        finally:
            with self._lock:
                self._doing.discard(entry)

    def current(self) -> tuple[Wait, ...]:
        """One entry for each model, operation and state that keeps somebody waiting."""
        with self._lock:
            entries = list(self._doing)
        found: dict[tuple[str, str, str], Wait] = {}
        for entry in sorted(entries, key=lambda entry: -entry.began):
            seconds = time.monotonic() - entry.began
            state: WaitState = entry.state
            if state == "active":
                if seconds < SLOW_SEC:
                    continue
                state = "slow"
            wait = Wait(entry.operation, entry.model, entry.trainer, state, entry.reason, seconds)
            found[entry.model, entry.operation, state] = wait
        return tuple(found[key] for key in sorted(found))
