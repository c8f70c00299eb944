"""What a call has shown so far, for any number of clients that listen to it.

A client that joins late hears everything from the beginning. When the call has ended nothing
is kept here: whoever lacks something has it from the durable answer.
"""

from collections.abc import Sequence

import anyio

from runtime.formats.families import Delta


class Showing:
    """The deltas of one call, in order."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._changed = anyio.Event()
        self._ended = False
        self.taken = False
        """Whether a client has been given anything: the call cannot be sampled again."""

    def add(self, deltas: Sequence[Delta]) -> None:
        """Show more."""
        if deltas:
            self._deltas.extend(deltas)
            self._wake()

    def restart(self) -> None:
        """Forget what nobody has taken: the call is sampled again."""
        assert not self.taken
        self._deltas.clear()

    def end(self) -> None:
        """The call has its answer or its error."""
        self._ended = True
        self._deltas.clear()
        self._wake()

    async def after(self, seen: int) -> list[Delta]:
        """What was shown after the first `seen` deltas; waits until there is something.

        Empty once the call has ended. Cancelling changes nothing.
        """
        while not self._ended and len(self._deltas) <= seen:
            await self._changed.wait()
        found = self._deltas[seen:]
        self.taken = self.taken or bool(found)
        return found

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
