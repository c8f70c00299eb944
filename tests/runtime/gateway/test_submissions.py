"""What the gateway keeps of a batch that is learnt from group by group."""

import pytest
from pydantic import JsonValue

from specs.errors import Conflict, PracticumError
from specs.events import EventType
from specs.ids import Prefix, new_id
from specs.records import Contribution, Eligible, Group, UpdateState
from specs.run import RunState
from specs.worker_api import (
    BatchSettled,
    GroupJudged,
    GroupSettled,
    UpdateAccumulated,
    UpdateContributed,
    UpdateUnresolved,
)
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio
PLAN: dict[str, JsonValue] = {"num_batches": 1, "batch": {"tasks": 2, "trials_per_task": 2}}


async def settled_group(hand: Hand, index: int) -> tuple[Group, list[str]]:
    """A group with a counted trial in each slot, not yet settled itself."""
    group = await hand.group(index=index)
    trials = [await hand.trial(group, place) for place in range(2)]
    for place, trial in enumerate(trials):
        await hand.settle(trial, float(place))
    return group, trials


def verdicts(trials: list[str]) -> tuple[Eligible, ...]:
    return tuple(Eligible(trial=trial, eligible=True, advantage=0.5) for trial in trials)


def contribution(trial: str, group: str, weight: float = 0.25) -> Contribution:
    return Contribution(
        trial=trial,
        group=group,
        interactions=(new_id(Prefix.INTERACTION),),
        datum="sha256:" + "1" * 64,
        tokens=10,
        trained_tokens=4,
        weight=weight,
    )


@pytest.fixture
async def hand(stack: Stack) -> Hand:
    await stage.publish(stack)
    await stage.start(stack, dict(PLAN))
    hand = await Hand.take(stack)
    await hand.batch()
    return hand


async def test_groups_take_their_places_in_the_order_in_which_they_settle(
    stack: Stack, hand: Hand
) -> None:
    first, _ = await settled_group(hand, 0)
    second, _ = await settled_group(hand, 1)
    with pytest.raises(Conflict, match="0 groups of batch 0 have settled"):
        await hand.write(GroupSettled(group=second.id, place=1))
    await hand.write(GroupSettled(group=second.id, place=0))
    await hand.write(GroupSettled(group=first.id, place=1))
    records = await stack.worker.records(hand.run)
    assert [(group.index, group.place) for group in records.groups] == [(0, 1), (1, 0)]


async def test_a_group_is_judged_once_and_wholly_and_before_its_batch_settles_invariant_5(
    stack: Stack, hand: Hand
) -> None:
    group, trials = await settled_group(hand, 0)
    with pytest.raises(Conflict, match="not settled"):
        await hand.write(GroupJudged(group=group.id, verdicts=verdicts(trials)))
    await hand.write(GroupSettled(group=group.id, place=0))
    with pytest.raises(Conflict, match="not judged"):
        await hand.write(BatchSettled(batch=0))
    with pytest.raises(PracticumError, match="1 verdicts for the 2 trials"):
        await hand.write(GroupJudged(group=group.id, verdicts=verdicts(trials[:1])))
    judged = GroupJudged(group=group.id, verdicts=verdicts(trials), census={"trials": 2})
    await hand.write(judged)
    with pytest.raises(Conflict, match="judged already"):
        await hand.write(judged)
    await hand.write(BatchSettled(batch=0, census={"trials": 2}))
    records = await stack.worker.records(hand.run)
    assert [trial.advantage for trial in records.trials] == [0.5, 0.5]
    assert records.groups[0].judged
    assert records.batches[0].settled


async def test_contributions_are_kept_in_the_order_of_submission_and_end_with_the_step(
    stack: Stack, hand: Hand
) -> None:
    group, trials = await settled_group(hand, 0)
    prepared = stage.prepared(hand.claim.spec.sampler.id)
    update = prepared.update.id
    made_of = [contribution(trials[place % 2], group.id, float(place)) for place in range(3)]
    await hand.write(prepared)
    await hand.write(UpdateContributed(update=update, contributions=tuple(made_of[:2])))
    await hand.write(UpdateContributed(update=update, contributions=tuple(made_of[2:])))
    done = UpdateAccumulated(
        update=update, group=group.id, datums=3, trained_tokens=12, seconds=0.5
    )
    await hand.write(done)
    await hand.write(UpdateUnresolved(update=update, metrics={}, census={"groups": 1}))
    for late in (UpdateContributed(update=update, contributions=tuple(made_of[:1])), done):
        with pytest.raises(Conflict, match="only a prepared one takes contributions"):
            await hand.write(late)
    (read,) = (await stack.operator.updates(hand.run)).items
    assert read.contributions == tuple(made_of)
    assert read.census == {"groups": 1}
    (recorded,) = (await stack.worker.records(hand.run)).updates
    assert recorded.contributions == ()
    told = (await stack.operator.events(hand.run)).events
    submitted = [event.data for event in told if event.type == EventType.UPDATE_CONTRIBUTED]
    assert [(data["group"], data["datums"], data["tokens"]) for data in submitted] == [
        (group.id, 2, 20),
        (group.id, 1, 10),
    ]


@pytest.mark.parametrize("unresolved", [False, True])
async def test_a_run_that_fails_leaves_no_update_undecided_invariant_16(
    stack: Stack, hand: Hand, unresolved: bool
) -> None:
    prepared = stage.prepared(hand.claim.spec.sampler.id)
    await hand.write(prepared)
    if unresolved:
        await hand.write(UpdateUnresolved(update=prepared.update.id, metrics={}))
    await hand.complete("failed", Conflict("It was made to fail.").problem)
    (update,) = (await stack.operator.updates(hand.run)).items
    assert update.state is (UpdateState.FAILED if unresolved else UpdateState.VOID)
    assert update.reason is not None
    assert update.reason.startswith("the run ended before")


async def test_cancelling_a_blocked_run_settles_its_update_invariant_16(
    stack: Stack, hand: Hand
) -> None:
    prepared = stage.prepared(hand.claim.spec.sampler.id)
    await hand.write(prepared, UpdateUnresolved(update=prepared.update.id, metrics={}))
    await hand.complete("blocked", Conflict("Nobody can tell.").problem)
    assert (await stack.operator.cancel(hand.run)).state is RunState.CANCELLED
    (update,) = (await stack.operator.updates(hand.run)).items
    assert update.state is UpdateState.FAILED
    ended = (await stack.operator.events(hand.run)).events
    assert [event.type for event in ended][-2:] == ["update.failed", "run.cancelled"]
