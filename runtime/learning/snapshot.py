"""Everything that is recorded of one run, read page by page for `verify`."""

from dataclasses import dataclass, field
from typing import Protocol

from runtime.client.paging import every
from runtime.learning.supervised import SourceRecords
from specs.dataset import Dataset
from specs.events import Event, EventPage
from specs.operator_api import CheckpointPage, GroupPage, UpdatePage
from specs.records import Checkpoint, Group, Trial, Update
from specs.run import Run, SamplerRef


class Verified[M](Protocol):
    """A published document with the digest of its bytes."""

    @property
    def value(self) -> M: ...
    @property
    def digest(self) -> str: ...


class RunReads(SourceRecords, Protocol):
    """The reads that verification needs; `runtime.client.ReadClient` has them."""

    async def run(self, run: str) -> Run: ...
    async def dataset(self, reference: str) -> Verified[Dataset]: ...
    async def events(self, run: str, *, after: int = 0, limit: int | None = None) -> EventPage: ...
    async def groups(self, run: str, *, cursor: str | None = None) -> GroupPage: ...
    async def updates(self, run: str, *, cursor: str | None = None) -> UpdatePage: ...
    async def checkpoints(
        self, run: str | None = None, *, cursor: str | None = None
    ) -> CheckpointPage: ...


@dataclass(frozen=True)
class Snapshot:
    """The records of a run, each list in its order."""

    run: Run
    events: tuple[Event, ...]
    groups: tuple[Group, ...]
    trials: tuple[Trial, ...]
    updates: tuple[Update, ...]
    checkpoints: tuple[Checkpoint, ...]
    samplers: dict[str, SamplerRef] = field(default_factory=dict[str, SamplerRef])

    @property
    def counted(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.counted)

    def of_type(self, *types: str) -> list[Event]:
        """Events of these types."""
        return [event for event in self.events if event.type in types]


async def take_snapshot(reads: RunReads, run: str) -> Snapshot:
    """Read all records of a run. On cancel nothing is left behind."""
    found = await reads.run(run)
    groups = await every(lambda cursor: reads.groups(run, cursor=cursor))
    trials = await every(lambda cursor: reads.trials(run, cursor=cursor))
    updates = await every(lambda cursor: reads.updates(run, cursor=cursor))
    checkpoints = await every(lambda cursor: reads.checkpoints(run, cursor=cursor))
    named = {found.spec.sampler.id, *(group.sampler for group in groups)}
    named |= {update.sampler_after for update in updates if update.sampler_after is not None}
    return Snapshot(
        run=found,
        events=await _events(reads, run),
        groups=tuple(groups),
        trials=tuple(trials),
        updates=tuple(updates),
        checkpoints=tuple(checkpoints),
        samplers={name: await reads.sampler(name) for name in sorted(named)},
    )


async def _events(reads: RunReads, run: str) -> tuple[Event, ...]:
    events: list[Event] = []
    after = 0
    while True:
        page = await reads.events(run, after=after, limit=1000)
        events += page.events
        if not page.events or page.terminal:
            return tuple(events)
        after = page.next
