"""Places for runs at work: so many at once, and as many again for runs that wait for others.

A run whose trials start runs of their own (plan key `gateway`) waits for these. Were they to
share places, it could hold the only one that its own runs need, for ever. So the two kinds are
counted apart, and whatever the number of places nobody waits for himself.
"""

import math

import anyio


class Places:
    """The places of one worker."""

    def __init__(self, runs: int) -> None:
        self._free = {False: runs, True: runs}
        self._changed = anyio.Event()

    @property
    def full(self) -> bool:
        """Whether no run of any kind can be taken."""
        return not any(self._free.values())

    @property
    def wanted(self) -> bool | None:
        """Which kind a claim may be of: delegating ones, others, or any."""
        free = [kind for kind, number in self._free.items() if number]
        return free[0] if len(free) == 1 else None

    def take(self, *, delegating: bool) -> None:
        """Take a place for a run of that kind."""
        self._free[delegating] -= 1

    def leave(self, *, delegating: bool) -> None:
        """Give it back."""
        self._free[delegating] += 1
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self, seconds: float = math.inf) -> None:
        """Until a place is free again, or so many seconds have passed."""
        with anyio.move_on_after(seconds):
            await self._changed.wait()
