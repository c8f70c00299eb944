"""Sampling groups: the trials of one batch, bounded, resumed where a worker left them.

Slots are worked through task by task, so that the trials of one task start together and share
the computation of their prompt. A slot that already has a counted trial keeps it; every other
slot gets a new trial, and the gateway abandons what an earlier worker left open in it.

Groups settle in some order, and each takes its place in it in the transaction that settles it:
what follows from a group (its submission to a trainer) goes by that order, in this claim and
in every later one. A group that has been handed on is forgotten, and handing on holds the slot
of its last trial, so that a slow receiver slows the sampling and memory stays bounded.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import anyio

from runtime.execution.context import ClaimLost, RunCancelled, RunContext, RunStopped
from runtime.execution.trial import Slot, TrialRunner
from specs.dataset import TaskEntry
from specs.errors import ErrorObject, Internal
from specs.ids import Id, Prefix, new_id
from specs.records import Group, Trial, TrialOutcome
from specs.run import SamplerRef
from specs.worker_api import GroupOpened, GroupSettled, Write


@dataclass(frozen=True, slots=True)
class SettledGroup:
    """A group whose every slot has its counted trial, in slot order.

    :ivar group: as recorded, its `place` among the batch's settled groups included.
    """

    group: Group
    trials: tuple[Trial, ...]

    @property
    def place(self) -> int:
        """Where it stands in the order of settlement, from 0."""
        assert self.group.place is not None
        return self.group.place


type OnSettled = Callable[[SettledGroup], Awaitable[None]]


class _Progress:
    """The counted trials of one group so far. `places` numbers the batch's groups."""

    def __init__(
        self, group: Group, task: TaskEntry, settled: Sequence[Trial], places: Iterator[int]
    ) -> None:
        self.group = group
        self.task = task
        self._settled = {trial.index: trial for trial in settled}
        self._open = set(range(group.size)) - self._settled.keys()
        self._places = places
        self._last: int | None = None

    @property
    def open(self) -> list[int]:
        return sorted(self._open)

    def settle(self, trial: Trial) -> Sequence[Write]:
        """Count a trial; the last one brings the write that settles the group.

        The write must be sent before another group's: places follow the order of these calls.
        """
        self._settled[trial.index] = trial
        self._open.remove(trial.index)
        if self._open:
            return ()
        place = next(self._places)
        self._last = trial.index
        self.group = self.group.model_copy(update={"place": place})
        counts = census(self._settled.values())
        return (GroupSettled(group=self.group.id, place=place, census=counts),)

    def ended_with(self, index: int) -> bool:
        """Whether it was this slot's trial that settled the group."""
        return self._last == index

    def hand_over(self) -> SettledGroup:
        """The settled group; its trials are forgotten here."""
        trials, self._settled = self._settled, {}
        return SettledGroup(self.group, tuple(trials[index] for index in range(self.group.size)))


async def run_groups(
    context: RunContext,
    batch: int,
    sampler: SamplerRef,
    tasks: Sequence[TaskEntry],
    trials_per_task: int,
    *,
    on_settled: OnSettled,
) -> None:
    """Run one group per task on one sampler (invariant 7).

    `on_settled` gets each group once, those of an earlier claim first and in their order, the
    others about when they settle: `SettledGroup.place` says in which order they did. Cancelling
    the run settles every open trial as cancelled. On cancel of the caller the sandboxes are
    stopped and open trials stay open.

    Raises:
        ClaimLost: another worker owns the run.
        RunCancelled: the operator cancelled it.
        PracticumError: the gateway refuses a record.
    """
    assert context.workplace is not None, "this context runs no trials"
    progress = await _open_groups(context, batch, tasks, trials_per_task, sampler.id)
    runner = TrialRunner(context, context.workplace)
    limiter = anyio.Semaphore(context.concurrency)

    async def work(part: _Progress, index: int) -> None:
        try:
            if context.cancelling.is_set():
                return
            await runner.run(Slot(part.group, part.task, index), part.settle)
            if part.ended_with(index):
                await on_settled(part.hand_over())
        finally:
            limiter.release()

    async def watch() -> None:
        await context.cancelling.wait()
        runner.cancel()

    before = sorted(
        (part for part in progress if part.group.place is not None),
        key=lambda part: part.group.place or 0,
    )

    async def earlier() -> None:
        for part in before:
            await on_settled(part.hand_over())

    async def schedule() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(earlier)
            for part in progress:
                for index in part.open:
                    await limiter.acquire()
                    group.start_soon(work, part, index)

    await _together(watch, schedule)
    if context.cancelling.is_set():
        raise RunCancelled(context.run)


async def _open_groups(
    context: RunContext, batch: int, tasks: Sequence[TaskEntry], size: int, sampler: Id
) -> list[_Progress]:
    """The batch's groups, from the records of an earlier claim or opened now."""
    recorded = {group.index: group for group in context.records.groups if group.batch == batch}
    progress: list[_Progress] = []
    writes: list[Write] = []
    places = count(sum(group.place is not None for group in recorded.values()))
    for index, task in enumerate(tasks):
        group = recorded.get(index)
        if group is None:
            group = Group(
                id=new_id(Prefix.GROUP),
                batch=batch,
                index=index,
                task=task.name,
                task_digest=task.digest,
                sampler=sampler,
                size=size,
            )
            writes.append(GroupOpened(group=group))
        elif (group.task_digest, group.sampler, group.size) != (task.digest, sampler, size):
            raise Internal(
                f"Group {index} of batch {batch} was recorded for another task, sampler or size.",
                object=ErrorObject(type="group", id=group.id),
                next="The run's pinned specification has changed; start a new run.",
            )
        progress.append(_Progress(group, task, _counted(context, group), places))
    if writes:
        await context.write(*writes)
    return progress


def _counted(context: RunContext, group: Group) -> list[Trial]:
    return [t for t in context.records.trials if t.group == group.id and t.counted and t.settled]


def census(trials: Collection[Trial]) -> dict[str, int]:
    """How many trials ended in which way, and how many have a reward."""
    ended = [trial.settled.outcome for trial in trials if trial.settled]
    scored = sum(t.assessment is not None and t.assessment.reward is not None for t in trials)
    counts = {str(outcome): ended.count(outcome) for outcome in TrialOutcome if outcome in ended}
    return {"trials": len(ended), "scored": scored, **counts}


async def _together(
    watch: Callable[[], Coroutine[Any, Any, None]],
    work: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Run `work` with `watch` beside it; what goes wrong comes out as one plain exception."""
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await work()
            group.cancel_scope.cancel()
    except BaseExceptionGroup as error:
        raise gravest(error) from error


def gravest(error: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one exception of a group that decides what happens next."""
    leaves = list(_leaves(error))
    for kind in (ClaimLost, RunStopped, Exception):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(part)
    else:
        yield error
