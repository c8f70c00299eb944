"""The groups of a batch, from sampling to learning, in the order in which they settled.

Sampling adds groups about when they settle; learning reads them by their place, waiting for
those that are still sampling, and may read all of them again from the start when a trainer was
lost. Trials are kept only until they have been read once; a second reading fetches them, so
memory does not grow with the batch. Adding waits while the reader is more than `BACKLOG`
groups behind, which in turn holds back the sampling.
"""

from collections.abc import AsyncGenerator

import anyio

from runtime.client.paging import every
from runtime.execution.context import Gateway
from runtime.execution.groups import SettledGroup
from specs.records import Group, Trial

BACKLOG = 32
"""Settled groups that wait for the trainer."""


class Ledger:
    """One batch's groups; for one writer (sampling) and one reader (learning).

    :ivar expected: how many groups the batch has.
    """

    def __init__(self, gateway: Gateway, run: str, expected: int) -> None:
        self._gateway = gateway
        self._run = run
        self.expected = expected
        self._groups: list[Group] = []
        self._waiting: dict[int, SettledGroup] = {}
        self._error: BaseException | None = None
        self._changed = anyio.Condition()

    @property
    def complete(self) -> bool:
        """Whether every group of the batch has settled."""
        return len(self._groups) + len(self._waiting) >= self.expected

    async def add(self, settled: SettledGroup) -> None:
        """Add a group. Waits for the reader; never where the reader waits for this one.

        On cancel the group is not added.
        """
        async with self._changed:
            while settled.place >= len(self._groups) + BACKLOG:
                await self._changed.wait()
            self._waiting[settled.place] = settled
            self._changed.notify_all()

    async def fail(self, error: BaseException) -> None:
        """Let the reader raise what ended the sampling, instead of giving another group."""
        async with self._changed:
            self._error = error
            self._changed.notify_all()

    async def read(self) -> AsyncGenerator[SettledGroup]:
        """Every group by place, from the first, waiting for those to come.

        Raises:
            BaseException: what `fail` was told.
        """
        for place in range(self.expected):
            if place < len(self._groups):
                group = self._groups[place]
                yield SettledGroup(group, await self._fetch(group))
            else:
                yield await self._next(place)

    async def _next(self, place: int) -> SettledGroup:
        async with self._changed:
            while self._error is None and place not in self._waiting:
                await self._changed.wait()
            if self._error is not None:
                raise self._error
            settled = self._waiting.pop(place)
            self._groups.append(settled.group)
            self._changed.notify_all()
            return settled

    async def _fetch(self, group: Group) -> tuple[Trial, ...]:
        """The group's counted trials as recorded, in slot order."""
        return tuple(
            await every(
                lambda cursor: self._gateway.trials(
                    self._run, group=group.id, counted=True, cursor=cursor
                )
            )
        )
