"""Groups are learnt from as they settle: overlap, order, cancelled and failed siblings."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.execution.context import RunCancelled, RunContext
from runtime.execution.groups import OnSettled, SettledGroup
from runtime.learning.eligibility import ELIGIBLE
from runtime.learning.ledger import BACKLOG, Ledger
from runtime.learning.settlement import Judged, Tally, settle
from runtime.learning.training import run_training
from specs.dataset import TaskEntry
from specs.errors import Conflict, PracticumError, Unavailable
from specs.ids import Prefix, new_id
from specs.plans import BatchShape, TrainingPlan
from specs.records import Group, UpdateState
from specs.run import SamplerRef
from tests.runtime.learning.bench import Bench, Fate, Killed, training_bench
from tests.runtime.learning.support import trial_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SHAPE = BatchShape(tasks=3, trials_per_task=2)
ORDER = (2, 0, 1)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = await training_bench(tmp_path, batches=1, batch=SHAPE)
    yield made
    await made.compute.aclose()


def adapters(bench: Bench) -> list[str]:
    return [checkpoint.adapter for checkpoint in bench.records.checkpoints]


async def whole_adapters(folder: Path) -> list[str]:
    """Of the same run, undisturbed."""
    whole = await training_bench(folder, batches=1, batch=SHAPE)
    whole.order = ORDER
    await whole.train(await whole.claim())
    await whole.compute.aclose()
    return adapters(whole)


def accumulated(bench: Bench) -> int:
    return bench.records.written.count("update.accumulated")


class Interrupted:
    """Runs the groups of a bench, and does something once `after` gradients are in."""

    def __init__(self, bench: Bench, after: int, action: Any) -> None:
        self.bench = bench
        self.after = after
        self.action = action

    async def __call__(
        self,
        ctx: RunContext,
        batch: int,
        sampler: SamplerRef,
        tasks: Sequence[TaskEntry],
        size: int,
        /,
        *,
        on_settled: OnSettled,
    ) -> None:
        given = 0

        async def counting(group: SettledGroup) -> None:
            nonlocal given
            await on_settled(group)
            given += 1
            if given == self.after:
                with anyio.fail_after(60):
                    while accumulated(self.bench) < self.after:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
                await self.action()

        await self.bench.run_groups(ctx, batch, sampler, tasks, size, on_settled=counting)


async def test_a_settled_group_is_submitted_while_a_slower_one_still_samples(
    bench: Bench,
) -> None:
    seen: list[list[str]] = []

    async def look() -> None:
        seen.append(list(bench.records.written))

    await _train(bench, Interrupted(bench, 2, look))
    (written,) = seen
    assert written.count("group.judged") == 2
    assert written.count("update.accumulated") == 2
    assert "batch.settled" not in written
    assert "update.unresolved" not in written
    (update,) = bench.records.updates.values()
    assert update.state is UpdateState.ACKNOWLEDGED
    assert 0 < update.metrics["overlapped_seconds"] < update.metrics["forward_backward_seconds"]


async def test_groups_are_submitted_in_the_order_in_which_they_settled(bench: Bench) -> None:
    bench.order = ORDER
    await bench.train(await bench.claim())
    (update,) = bench.records.updates.values()
    submitted = list(dict.fromkeys(c.group for c in update.contributions))
    indices = {group.id: group.index for group in bench.records.groups.values()}
    assert [indices[group] for group in submitted if group is not None] == list(ORDER)
    assert {c.trial for c in update.contributions} == bench.records.attempts.keys()


async def test_gradients_made_again_are_added_up_in_the_recorded_order_invariant_8(
    bench: Bench, tmp_path: Path
) -> None:
    """The sampling of the second claim would hand the groups over in another order."""
    bench.order = ORDER
    rehearsal = await training_bench(tmp_path / "rehearsal", batches=1, batch=SHAPE)
    fate = Fate()
    rehearsal.order = ORDER
    await rehearsal.train(await rehearsal.claim(fate))
    await rehearsal.compute.aclose()
    with pytest.raises(Killed):
        await bench.train(await bench.claim(Fate(fate.calls.index("optim_step"), "before")))
    await bench.restart_compute()
    bench.order = None
    await bench.train(await bench.claim())
    void, applied = bench.records.updates.values()
    assert (void.state, applied.state) == (UpdateState.VOID, UpdateState.ACKNOWLEDGED)
    assert void.contributions == applied.contributions
    assert adapters(bench) == adapters(rehearsal)


async def test_a_trainer_that_is_lost_while_others_sample_is_made_again_from_the_records(
    bench: Bench, tmp_path: Path
) -> None:
    bench.order = ORDER
    ctx = await bench.claim()
    target: Any = ctx.compute

    async def restart() -> None:
        await bench.restart_compute()
        target._target = bench.compute

    await _train(bench, Interrupted(bench, 2, restart), ctx)
    void, applied = bench.records.updates.values()
    assert (void.state, applied.state) == (UpdateState.VOID, UpdateState.ACKNOWLEDGED)
    assert void.contributions == applied.contributions, "lost as the last was submitted"
    assert adapters(bench) == await whole_adapters(tmp_path / "whole")


async def test_a_contribution_without_its_step_enters_no_later_update(
    bench: Bench, tmp_path: Path
) -> None:
    """The sampling fails after a gradient is in; the next claim goes on without it."""
    bench.order = ORDER

    async def fail() -> None:
        raise Unavailable("The machine of the sandboxes went away.")

    with pytest.raises(Unavailable, match="sandboxes"):
        await _train(bench, Interrupted(bench, 1, fail))
    assert (await bench.compute.health()).trainers == ()
    assert [u.state for u in bench.records.updates.values()] == [UpdateState.PREPARED]
    await bench.train(await bench.claim())
    states = [update.state for update in bench.records.updates.values()]
    assert states == [UpdateState.VOID, UpdateState.ACKNOWLEDGED]
    assert adapters(bench) == await whole_adapters(tmp_path / "whole")


async def test_a_failed_sibling_ends_the_update_that_others_contributed_to(bench: Bench) -> None:
    async def fail() -> None:
        raise Conflict("The gateway refuses a record.")

    with pytest.raises(PracticumError, match="refuses"):
        await _train(bench, Interrupted(bench, 1, fail))
    (update,) = bench.records.updates.values()
    assert update.state is UpdateState.FAILED
    assert (await bench.compute.health()).trainers == ()


async def test_cancelling_while_groups_sample_voids_what_was_submitted_invariant_16(
    bench: Bench,
) -> None:
    ctx = await bench.claim()

    async def cancel() -> None:
        ctx.cancelling.set()
        raise RunCancelled(ctx.run)

    with pytest.raises(RunCancelled):
        await _train(bench, Interrupted(bench, 2, cancel), ctx)
    (update,) = bench.records.updates.values()
    assert (update.state, update.reason) == (UpdateState.VOID, "the run was cancelled")
    assert (await bench.compute.health()).trainers == ()


def group_at(place: int, batch: int = 0) -> SettledGroup:
    group = Group(
        id=new_id(Prefix.GROUP),
        batch=batch,
        index=place,
        task="acme/task",
        task_digest="sha256:" + "0" * 64,
        sampler=new_id(Prefix.SAMPLER),
        size=1,
        place=place,
    )
    return SettledGroup(group, (trial_of(None, group=group.id),))


async def test_the_ledger_reads_by_place_whatever_the_order_of_arrival(bench: Bench) -> None:
    ledger = Ledger(bench.records, "run", 4)
    added = [group_at(place) for place in range(4)]
    read: list[SettledGroup] = []
    async with anyio.create_task_group() as tasks:
        for place in (3, 1, 0, 2):
            tasks.start_soon(ledger.add, added[place])
        read = [group async for group in ledger.read()]
    assert read == added
    assert ledger.complete


async def test_the_ledger_holds_back_who_is_far_ahead_and_never_the_next_one(
    bench: Bench,
) -> None:
    """Bounded memory: what waits is at most `BACKLOG` groups, and none that has been read."""
    count = 3 * BACKLOG
    ledger = Ledger(bench.records, "run", count)
    done: list[int] = []

    async def add(group: SettledGroup) -> None:
        await ledger.add(group)
        done.append(group.place)

    read = 0
    async with anyio.create_task_group() as tasks:
        for place in reversed(range(count)):
            tasks.start_soon(add, group_at(place))
        await anyio.wait_all_tasks_blocked()
        assert sorted(done) == list(range(BACKLOG))
        async for _ in ledger.read():
            read += 1
            await anyio.wait_all_tasks_blocked()
            assert len(done) == min(count, BACKLOG + read)
    assert read == count


REWARDS = st.lists(
    st.lists(st.floats(-2, 2, allow_nan=False), min_size=1, max_size=4), min_size=1, max_size=4
)


@settings(deadline=None)
@given(rewards=REWARDS, normalise=st.sampled_from(["none", "std"]))
def test_what_a_group_gives_does_not_depend_on_the_rest_of_its_batch(
    rewards: list[list[float]], normalise: str
) -> None:
    plan = TrainingPlan.model_validate(
        {
            "num_batches": 1,
            "batch": {"tasks": len(rewards), "trials_per_task": 4},
            "advantages": {"normalise": normalise, "per_token": "length"},
        }
    )
    groups = [
        [
            Judged(trial_of(None, reward=reward, group=name), ELIGIBLE, tokens=7 + place)
            for place, reward in enumerate(of_group)
        ]
        for of_group in rewards
        for name in [new_id(Prefix.GROUP)]
    ]
    alone = [settle(group, plan) for group in groups]
    together = settle([item for group in groups for item in group], plan)
    assert [row for one in alone for row in one.rows] == list(together.rows)
    assert [v for one in alone for v in one.verdicts] == list(together.verdicts)
    tally = Tally()
    for one in alone:
        tally.add(one)
    assert tally.census == together.census


async def _train(bench: Bench, groups: Interrupted, ctx: RunContext | None = None) -> None:
    await run_training(ctx or await bench.claim(), groups=groups, patience=0.2)
