"""Claims, leases and fences: two workers on one run, and requests that arrive twice."""

import anyio
import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.storage.tables import documents, runs
from specs.errors import Conflict, ErrorCode, InvalidInput, NotFound, PracticumError
from specs.events import EventType
from specs.ids import Prefix, new_id
from specs.records import LogPiece, TrialOpen, TrialState
from specs.run import RunState
from specs.worker_api import BatchStarted, GroupOpened, LogWritten, TrialOpened, WriteReply
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio


def note(text: str = "x") -> LogWritten:
    return LogWritten(piece=LogPiece(source="worker", text=text))


async def test_each_run_is_claimed_by_one_of_many_workers(stack: Stack) -> None:
    await stage.publish(stack)
    runs = {await stage.start(stack) for _ in range(5)}
    claimed: list[str] = []

    async def claim() -> None:
        found = await stack.worker.claim(new_id(Prefix.WORKER), stage.LEASE)
        if found is not None:
            claimed.append(found.run)

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(claim)
    assert len(claimed) == 5
    assert set(claimed) == runs


async def test_invariant_10_a_stale_worker_changes_nothing(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    stale = await Hand.take(stack)
    await stale.batch()
    group = await stale.group()
    trial = await stale.trial(group)
    await stage.expire(stack, run)
    current = await Hand.take(stack)
    assert (current.claim.fence, stale.claim.fence) == (2, 1)
    before = await stack.worker.records(run)

    for attempt in (
        lambda: stale.settle(trial),
        lambda: stale.trial(group, 1),
        lambda: stale.write(note()),
        lambda: stale.complete("failed", Conflict("x").problem),
        lambda: stack.worker.heartbeat(stale.claim),
    ):
        with pytest.raises(Conflict) as refused:
            await attempt()
        assert refused.value.problem.code == ErrorCode.STALE_FENCE
    after = await stack.worker.records(run)
    assert after.usage.tokens == before.usage.tokens
    assert after.model_copy(update={"usage": before.usage}) == before  # its time goes on
    assert (await stack.operator.logs(run)).items == []


async def test_invariant_16_a_lapsed_lease_is_claimable_and_nothing_more(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack, lease=0.3)
    assert await stack.worker.claim(new_id(Prefix.WORKER), 5) is None
    await anyio.sleep(0.35)
    with pytest.raises(Conflict, match="lease has run out"):
        await hand.write(note())
    again = await Hand.take(stack)
    assert (again.run, again.claim.fence) == (run, 2)
    assert (await stack.operator.run(run)).claims == 2


async def test_a_heartbeat_extends_the_lease(stack: Stack) -> None:
    await stage.publish(stack)
    await stage.start(stack)
    hand = await Hand.take(stack, lease=3600)
    await stack.worker.heartbeat(hand.claim)
    assert await stack.worker.claim(new_id(Prefix.WORKER), 5) is None


async def test_invariant_10_a_repeated_request_is_applied_once(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    names = tuple(task.name for task in hand.claim.spec.tasks)
    request = hand.request(
        BatchStarted(batch=0, sampler=hand.claim.spec.sampler.id, tasks=names), note()
    )
    replies: list[WriteReply] = []

    async def send() -> None:
        replies.append(await stack.worker.write(run, request))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(send)
    assert len({reply.last_event for reply in replies}) == 1
    assert len((await stack.operator.logs(run)).items) == 1
    types = [event.type for event in (await stack.operator.events(run)).events]
    assert types.count(EventType.BATCH_STARTED) == 1


async def test_a_repetition_is_answered_even_after_the_claim_is_lost(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    request = hand.request(note())
    first = await stack.worker.write(run, request)
    await stage.expire(stack, run)
    await Hand.take(stack)
    assert await stack.worker.write(run, request) == first
    assert len((await stack.operator.logs(run)).items) == 1


async def test_a_number_used_for_another_body_is_refused(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await stack.worker.write(run, hand.request(note("one"), sequence=1))
    with pytest.raises(Conflict) as refused:
        await stack.worker.write(run, hand.request(note("two"), sequence=1))
    assert refused.value.problem.code == ErrorCode.IDEMPOTENCY_CONFLICT
    with pytest.raises(Conflict, match="out of order"):
        await stack.worker.write(run, hand.request(note("three"), sequence=3))


async def test_a_request_is_applied_whole_or_not_at_all(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    before = (await stack.operator.run(run)).last_event
    ghost = TrialOpened(
        trial=TrialOpen(id=new_id(Prefix.TRIAL), group=new_id(Prefix.GROUP), index=0)
    )
    with pytest.raises(NotFound):
        await hand.write(note(), ghost)
    assert (await stack.operator.logs(run)).items == []
    assert (await stack.operator.run(run)).last_event == before
    await hand.write(note("the number was not used up"))


async def test_a_crash_abandons_a_trial_and_opens_another(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    lost = await Hand.take(stack)
    await lost.batch()
    group = await lost.group()
    first = await lost.trial(group)
    await stage.expire(stack, run)
    hand = await Hand.take(stack)
    assert (await stack.operator.trial(first)).state == TrialState.OPEN
    second = await hand.trial(group)
    await hand.settle(second)
    trials = (await stack.operator.trials(run)).items
    assert [(t.id, t.state, t.counted, t.fence) for t in trials] == [
        (first, TrialState.ABANDONED, False, 1),
        (second, TrialState.SETTLED, True, 2),
    ]
    with pytest.raises(Conflict, match="counted trial of that slot"):
        await hand.trial(group)
    with pytest.raises(Conflict, match="not open"):
        await hand.settle(second)
    assert [t.id for t in (await stack.operator.trials(run, counted=True)).items] == [second]


async def test_a_released_run_is_continued_by_any_worker(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    assert (await hand.complete("released")).state == RunState.QUEUED
    with pytest.raises(Conflict):
        await stack.worker.heartbeat(hand.claim)
    assert (await Hand.take(stack)).run == run


async def test_invariant_10_completion_is_at_the_final_event_boundary(stack: Stack) -> None:
    await stage.publish(stack)
    await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    group = await hand.group()
    with pytest.raises(Conflict, match="group"):
        await hand.complete()
    trial = await hand.trial(group)
    with pytest.raises(Conflict, match="trial"):
        await hand.complete()
    behind = hand.last_event
    hand.last_event = behind - 1
    with pytest.raises(Conflict, match="last event"):
        await hand.complete("failed", Conflict("x").problem)
    hand.last_event = behind
    with pytest.raises(InvalidInput, match="needs a reason"):
        await hand.complete("failed")
    with pytest.raises(Conflict, match="Nobody asked"):
        await hand.complete("cancelled")
    ended = await hand.complete("failed", Conflict("it broke").problem)
    assert ended.state == RunState.FAILED
    assert (await stack.operator.trial(trial)).state == TrialState.ABANDONED
    hand.sequence -= 1  # the same completion again
    assert (await hand.complete("failed", Conflict("it broke").problem)).state == RunState.FAILED


async def test_groups_and_trials_must_fit_the_pinned_spec(stack: Stack) -> None:
    await stage.publish(stack)
    await stage.start(stack)
    hand = await Hand.take(stack)
    with pytest.raises(Conflict, match="has not been started"):
        await hand.group()
    await hand.batch()
    group = await hand.group()
    again = GroupOpened(group=group.model_copy(update={"id": new_id(Prefix.GROUP)}))
    wrong_sampler = group.model_copy(
        update={"id": new_id(Prefix.GROUP), "index": 1, "sampler": new_id(Prefix.SAMPLER)}
    )
    wrong_task = group.model_copy(
        update={"id": new_id(Prefix.GROUP), "index": 1, "task_digest": "sha256:" + "0" * 64}
    )
    for write, error in (
        (again, Conflict),
        (GroupOpened(group=wrong_sampler), InvalidInput),
        (GroupOpened(group=wrong_task), InvalidInput),
        (GroupOpened(group=group.model_copy(update={"index": 1})), Conflict),  # a used id
    ):
        with pytest.raises(error):
            await hand.write(write)
    with pytest.raises(InvalidInput, match="slots 0 to 1"):
        await hand.trial(group, 2)


async def test_a_trial_refers_only_to_uploaded_objects(stack: Stack) -> None:
    await stage.publish(stack)
    await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    artifact = {"path": "report.md", "digest": "sha256:" + "1" * 64, "size": 3}
    with pytest.raises(PracticumError) as refused:
        await hand.settle(trial, artifacts=(artifact,))
    assert refused.value.problem.code == ErrorCode.INVALID_REFERENCE
    digest = await stack.worker.upload(b"hey")
    await hand.settle(trial, artifacts=({**artifact, "digest": digest},))
    assert await stack.operator.object(digest) == b"hey"


@pytest.mark.parametrize("what", ["plan", "dataset"])
async def test_invariant_14_a_resumed_run_refuses_a_changed_digest(stack: Stack, what: str) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    lost = await Hand.take(stack)
    await lost.batch()
    trial = await lost.trial(await lost.group())
    await stage.expire(stack, run)

    def tamper(connection: Connection) -> None:
        if what == "plan":
            old = connection.execute(sa.select(runs.c.spec)).scalar_one()
            new = old.replace(b'"trials_per_task":2', b'"trials_per_task":3')
            connection.execute(sa.update(runs).values(spec=new))
        else:
            old = connection.execute(sa.select(documents.c.content)).scalar_one()
            new = old.replace(b"acme/two", b"acme/wot")
            connection.execute(sa.update(documents).values(content=new))
        assert new != old

    await stack.gateway.database.write(tamper)
    assert await stack.worker.claim(new_id(Prefix.WORKER), 5) is None
    ended = await stack.operator.run(run)
    assert ended.state == RunState.FAILED
    assert ended.reason is not None
    assert ended.reason.code == ErrorCode.DIGEST_MISMATCH
    assert (await stack.operator.trial(trial)).state == TrialState.ABANDONED
