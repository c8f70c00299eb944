"""The life of a run, from admission to its result."""

import pytest

from specs.errors import Conflict, ErrorCode, PracticumError, Problem
from specs.events import EventType
from specs.ids import Prefix, new_id
from specs.records import UpdateState
from specs.run import RunState
from specs.worker_api import (
    BatchSettled,
    CheckpointSaved,
    GroupSettled,
    UpdateAcknowledged,
    UpdateUnresolved,
)
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio


async def test_an_evaluation_is_counted_as_it_was_recorded(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    assert hand.run == run
    await hand.batch()
    for index, rewards in enumerate(([1.0, 0.0], [1.0, None], [None, None])):
        group = await hand.group(index=index)
        for place, reward in enumerate(rewards):
            await hand.settle(await hand.trial(group, place), reward)
        await hand.write(GroupSettled(group=group.id, place=index, census={"trials": 2}))
    await hand.write(BatchSettled(batch=0))
    assert (await hand.complete()).state == RunState.COMPLETED

    result = await stack.operator.result(run)
    assert (result.planned_slots, result.trials_started, result.trials_settled) == (6, 6, 6)
    assert (result.trials_scored, result.distinct_tasks, result.batches) == (3, 3, 0)
    assert result.by_task == {
        "acme/one": [1.0, 0.0],
        "acme/two": [1.0, None],
        "acme/three": [None, None],
    }
    assert result.reward_mean == pytest.approx(2 / 3)
    assert result.success == pytest.approx(0.75)  # the mean of two tasks, not of three trials
    assert result.by_family == {"even": 0.5, "odd": 1.0}
    events = [event async for event in stack.operator.follow(run)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[0].type == EventType.RUN_ADMITTED
    assert events[-1].type == EventType.RUN_COMPLETED


async def train_one_batch(stack: Stack, hand: Hand) -> str:
    """One batch with an update, up to its checkpoint; the checkpoint."""
    await hand.batch()
    group = await hand.group()
    for place in range(2):
        await hand.settle(await hand.trial(group, place), float(place))
    await hand.write(GroupSettled(group=group.id, place=0))
    adapter = await stack.worker.upload(b"adapter")
    state = await stack.worker.upload(b"state")
    prepared = stage.prepared(hand.claim.spec.sampler.id)
    sampler = stage.saved_sampler(hand.claim, adapter)
    update = prepared.update.id
    await hand.write(prepared)
    await hand.write(UpdateUnresolved(update=update, metrics={"loss": 0.5}))
    await hand.write(
        sampler,
        UpdateAcknowledged(
            update=update,
            metrics={"grad_norm": 2.0},
            state_digest=state,
            sampler_after=sampler.sampler.id,
        ),
    )
    kept = stage.checkpoint(hand.claim, update, sampler.sampler, state)
    await hand.write(CheckpointSaved(checkpoint=kept))
    return kept.id


async def test_a_failed_training_run_keeps_its_checkpoint_which_can_be_evaluated_and_resumed(
    stack: Stack,
) -> None:
    await stage.publish(stack)
    run = await stage.start(stack, stage.TRAINING)
    hand = await Hand.take(stack)
    checkpoint = await train_one_batch(stack, hand)
    reason = Conflict("It was made to fail.").problem
    assert (await hand.complete("failed", reason)).state == RunState.FAILED

    assert [item.id for item in (await stack.operator.checkpoints(run)).items] == [checkpoint]
    result = await stack.operator.result(run)
    assert result.updates["acknowledged"] == 1
    assert result.checkpoints == [checkpoint]
    update = (await stack.operator.updates(run)).items[0]
    assert update.state == UpdateState.ACKNOWLEDGED
    assert update.metrics == {"loss": 0.5, "grad_norm": 2.0}
    assert list(update.events) == ["prepared", "unresolved", "acknowledged"]

    admission = await stack.operator.dry_run(stage.submission(model=checkpoint))
    assert admission.sampler.adapter is not None
    resumed = await stack.operator.start(
        stage.submission({**stage.TRAINING, "optimizer_initialization": "resume"}, model=checkpoint)
    )
    spec = (await stack.operator.run(resumed.run)).spec
    assert spec.initial_checkpoint == checkpoint
    assert spec.initial_state is not None
    assert await stack.worker.object(spec.initial_state) == b"state"
    with pytest.raises(PracticumError, match="LoRA") as refused:
        await stack.operator.start(
            stage.submission({**stage.TRAINING, "lora": {"rank": 4}}, model=checkpoint)
        )
    assert refused.value.problem.code == ErrorCode.RESUME_INCOMPATIBLE


async def test_an_unresolved_update_blocks_until_an_operator_decides(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack, stage.TRAINING)
    hand = await Hand.take(stack)
    await hand.batch()
    prepared = stage.prepared(hand.claim.spec.sampler.id)
    update = prepared.update.id
    await hand.write(prepared, UpdateUnresolved(update=update, metrics={}))
    with pytest.raises(Conflict, match="is not settled"):
        await hand.complete("completed")
    blocked = await hand.complete("blocked", _unresolved(update))
    assert blocked.state == RunState.BLOCKED
    assert blocked.reason is not None
    assert blocked.reason.code == ErrorCode.UPDATE_UNRESOLVED
    assert await stack.worker.claim(new_id(Prefix.WORKER), 5) is None

    decided = await stack.operator.resolve(run, update, "not-applied")
    assert (decided.state, decided.resolution) == (UpdateState.UNRESOLVED, "not-applied")
    again = await Hand.take(stack)
    records = await stack.worker.records(run)
    assert [item.resolution for item in records.updates] == ["not-applied"]
    assert again.claim.fence == 2
    types = [event.type for event in (await stack.operator.events(run)).events]
    assert EventType.RUN_BLOCKED in types
    assert EventType.RUN_UNBLOCKED in types


async def test_an_abandoned_update_fails_the_run(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack, stage.TRAINING)
    hand = await Hand.take(stack)
    await hand.batch()
    prepared = stage.prepared(hand.claim.spec.sampler.id)
    update = prepared.update.id
    await hand.write(prepared, UpdateUnresolved(update=update, metrics={}))
    await hand.complete("blocked", _unresolved(update))
    assert (await stack.operator.resolve(run, update, "abandon")).state == UpdateState.FAILED
    ended = await stack.operator.run(run)
    assert ended.state == RunState.FAILED
    with pytest.raises(Conflict):
        await stack.operator.resolve(run, update, "applied")


def _unresolved(update: str) -> Problem:
    return Conflict(
        f"Nobody can tell whether update {update} was applied.",
        code=ErrorCode.UPDATE_UNRESOLVED,
        next="practicum update resolve",
    ).problem


async def test_a_queued_run_is_cancelled_at_once(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    assert (await stack.operator.cancel(run)).state == RunState.CANCELLED
    assert (await stack.operator.cancel(run)).state == RunState.CANCELLED
    assert await stack.worker.claim(new_id(Prefix.WORKER), 5) is None


async def test_invariant_16_cancellation_is_settled_by_the_worker(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    assert (await stack.operator.cancel(run)).state == RunState.CANCELLING
    assert (await stack.worker.heartbeat(hand.claim)).cancelling
    with pytest.raises(Conflict, match="something happened"):
        await hand.complete("cancelled")
    await hand.settle(trial, None, outcome="cancelled")
    assert (await hand.complete("cancelled")).state == RunState.CANCELLED


async def test_a_dead_workers_run_can_be_cancelled_by_the_next(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    lost = await Hand.take(stack)
    await lost.batch()
    trial = await lost.trial(await lost.group())
    await stack.operator.cancel(run)
    await stage.expire(stack, run)
    hand = await Hand.take(stack)
    assert hand.claim.cancelling
    with pytest.raises(Conflict, match="its worker is gone"):
        await hand.settle(trial, 1.0)
    await hand.settle(trial, None, outcome="cancelled")
    assert (await hand.complete("cancelled")).state == RunState.CANCELLED
