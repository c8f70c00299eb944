"""A snapshot has every page of every list, and each sampler that is named."""

from typing import Any, cast

import pytest

from runtime.learning.snapshot import RunReads, take_snapshot
from specs.events import EventPage
from specs.operator_api import CheckpointPage, GroupPage, TrialPage, UpdatePage
from specs.run import Run, SamplerRef
from tests.runtime.learning.told import RUN, SAMPLERS, run_with, sampler, sound

PAGE = 3


class Reads:
    """A gateway that gives three rows at a time."""

    def __init__(self, *, ended: bool = True) -> None:
        self.told = sound() if ended else run_with(sound())
        self.ended = ended
        self.asked: list[str] = []
        self.limits: list[tuple[int, int | None]] = []

    async def run(self, run: str) -> Run:
        assert run == RUN
        return self.told.run

    async def sampler(self, sampler_: str) -> SamplerRef:
        self.asked.append(sampler_)
        return sampler(SAMPLERS.index(sampler_))

    async def events(self, run: str, *, after: int = 0, limit: int | None = None) -> EventPage:
        self.limits.append((after, limit))
        left = [event for event in self.told.events if event.seq > after][:PAGE]
        last = left[-1].seq if left else after
        terminal = self.ended and last == len(self.told.events)
        return EventPage(events=left, next=last, terminal=terminal)

    def _page(self, items: tuple[Any, ...], cursor: str | None) -> dict[str, Any]:
        start = int(cursor or 0)
        more = str(start + PAGE) if start + PAGE < len(items) else None
        return {"items": list(items[start : start + PAGE]), "next": more}

    async def groups(self, run: str, *, cursor: str | None = None) -> GroupPage:
        return GroupPage(**self._page(self.told.groups, cursor))

    async def trials(self, run: str, *, cursor: str | None = None) -> TrialPage:
        return TrialPage(**self._page(self.told.trials, cursor))

    async def updates(self, run: str, *, cursor: str | None = None) -> UpdatePage:
        return UpdatePage(**self._page(self.told.updates, cursor))

    async def checkpoints(
        self, run: str | None = None, *, cursor: str | None = None
    ) -> CheckpointPage:
        return CheckpointPage(**self._page(self.told.checkpoints, cursor))


@pytest.mark.anyio
@pytest.mark.parametrize("ended", [True, False])
async def test_every_record_is_read_in_its_order_and_each_sampler_once(ended: bool) -> None:
    reads = Reads(ended=ended)
    found = await take_snapshot(cast(RunReads, reads), RUN)
    assert found == reads.told
    assert reads.asked == sorted(SAMPLERS)
    assert reads.limits[0] == (0, 1000)
    # The last page of a run that goes on is known by its emptiness.
    pages = -(-len(reads.told.events) // PAGE)
    assert len(reads.limits) == (pages if ended else pages + 1)


def test_a_snapshot_tells_counted_trials_and_events_of_a_type() -> None:
    made = sound()
    assert len(made.counted) == len(made.trials) - 1
    assert all(trial.counted for trial in made.counted)
    kinds = [str(event.type) for event in made.of_type("update.void", "run.completed")]
    assert kinds == ["update.void", "run.completed"]
