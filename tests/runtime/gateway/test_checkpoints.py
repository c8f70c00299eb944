"""Checkpoints: resumed only where that is possible, deleted only where nothing refers to them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import JsonValue

from runtime.gateway import uploads
from runtime.storage.tables import checkpoints, objects
from specs.errors import Conflict, ErrorCode, InvalidInput
from specs.model import Optimizer
from specs.operator_api import ModelList, ProfilePublish, SessionRequest
from specs.records import Checkpoint, CheckpointContext
from specs.run import RunState
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack
from tests.runtime.gateway.test_flow import train_one_batch

pytestmark = pytest.mark.anyio

RESUME: dict[str, JsonValue] = {**stage.TRAINING, "optimizer_initialization": "resume"}


async def trained(stack: Stack, **changes: Any) -> Checkpoint:
    """A checkpoint of a run that is over, with its context."""
    await stage.publish(stack)
    await stage.start(stack, stage.TRAINING)
    hand = await Hand.take(stack)
    name = await train_one_batch(stack, hand)
    assert (await hand.complete()).state == RunState.COMPLETED
    context = CheckpointContext(
        plan=hand.claim.spec.plan_digest,
        backend="torch",
        base_digest=stage.model().digest,
        optimizer=Optimizer(),
        steps=1,
        batches=1,
    )
    return await mark(stack, name, **{"context": context, **changes})


async def mark(stack: Stack, name: str, **changes: Any) -> Checkpoint:
    """Change a stored record, as time or another program would have."""
    changed = (await stack.operator.checkpoint(name)).model_copy(update=changes)
    await stack.gateway.database.write(
        lambda connection: connection.execute(
            sa.update(checkpoints)
            .where(checkpoints.c.id == name)
            .values(document=changed.model_dump_json())
        )
    )
    return changed


async def refusal(stack: Stack, plan: dict[str, JsonValue], model: str) -> tuple[str, str]:
    """Pointer and cause of a start that cannot be resumed."""
    with pytest.raises(InvalidInput) as refused:
        await stack.operator.start(stage.submission(plan, model=model))
    problem = refused.value.problem
    assert problem.code is ErrorCode.RESUME_INCOMPATIBLE
    assert problem.object is not None
    assert problem.next
    return problem.object.pointer or "", problem.detail


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


async def test_resume_is_refused_where_the_state_is_missing_deleted_or_expired(
    stack: Stack,
) -> None:
    kept = await trained(stack)
    await mark(stack, kept.id, state_expires_at=ago(1))
    pointer, cause = await refusal(stack, RESUME, kept.id)
    assert (pointer, "expired" in cause) == ("/optimizer_initialization", True)
    await mark(stack, kept.id, state_expires_at=ago(-3600))
    assert (await stack.operator.dry_run(stage.submission(RESUME, model=kept.id))).batches == 2
    await mark(stack, kept.id, state_deleted_at=ago(1))
    assert "was deleted" in (await refusal(stack, RESUME, kept.id))[1]
    await mark(stack, kept.id, state_deleted_at=None, state=None, state_size=None)
    assert "no state" in (await refusal(stack, RESUME, kept.id))[1]
    await mark(stack, kept.id, state="sha256:" + "7" * 64, state_size=5)
    assert "not in the object store" in (await refusal(stack, RESUME, kept.id))[1]
    fresh = await stack.operator.dry_run(stage.submission(stage.TRAINING, model=kept.id))
    assert fresh.optimizer_initialization == "fresh"


async def test_resume_is_refused_where_optimizer_backend_or_base_differ(stack: Stack) -> None:
    kept = await trained(stack)
    other: dict[str, JsonValue] = {**RESUME, "optimizer": {"beta1": 0.8}}
    assert (await refusal(stack, other, kept.id))[0] == "/optimizer"
    same: dict[str, JsonValue] = {**RESUME, "optimizer": {"beta1": 0.9}}
    assert (await stack.operator.dry_run(stage.submission(same, model=kept.id))).overrides
    assert kept.context is not None
    optimizer = Optimizer(beta1=0.7)
    await mark(stack, kept.id, context=kept.context.model_copy(update={"optimizer": optimizer}))
    admission = await stack.operator.dry_run(stage.submission(RESUME, model=kept.id))
    assert f"optimizer beta1 0.7 of checkpoint {kept.id} replaces the default" in (
        admission.overrides
    )
    assert admission.plan["optimizer"] == optimizer.model_dump()
    await mark(stack, kept.id, context=kept.context)
    moved = stage.model(backend="tinker", family="qwen3")
    await stack.worker.put_models(ModelList(models=[moved]))
    assert "backend torch" in (await refusal(stack, RESUME, kept.id))[1]
    changed = stage.model(digest="sha256:" + "3" * 64)
    await stack.worker.put_models(ModelList(models=[changed]))
    with pytest.raises(InvalidInput, match="other weights"):
        await stack.operator.start(stage.submission(RESUME, model=kept.id))


async def in_use(stack: Stack, name: str, cause: str, *, state_only: bool = False) -> None:
    with pytest.raises(Conflict, match=cause) as refused:
        await stack.operator.delete_checkpoint(name, state_only=state_only)
    assert refused.value.problem.code is ErrorCode.CHECKPOINT_IN_USE
    kept = await stack.operator.checkpoint(name)
    assert (kept.deleted_at, kept.state_deleted_at) == (None, None)
    assert await stack.worker.object(kept.adapter) == b"adapter"


async def test_a_checkpoint_is_not_deleted_while_anything_refers_to_it(stack: Stack) -> None:
    await stage.publish(stack)
    await stage.start(stack, stage.TRAINING)
    hand = await Hand.take(stack)
    name = await train_one_batch(stack, hand)
    for state_only in (False, True):
        await in_use(stack, name, "is not over", state_only=state_only)
    await hand.complete()
    request = ProfilePublish(version="v1", profile=stage.profile(model=name))
    await stack.operator.publish_profile(request)
    await in_use(stack, name, "profile acme/solver@v1 names it")
    opened = await stack.operator.open_session(SessionRequest(model=name, purpose="agent"))
    await in_use(stack, name, f"session {opened.session.id}")
    run = (await stack.operator.start(stage.submission(RESUME, model=name))).run
    for state_only in (False, True):
        await in_use(stack, name, f"run {run} starts from it", state_only=state_only)
    uses = await stack.operator.checkpoint_uses(name)
    assert (uses.runs, uses.active_runs, uses.own_run_active) == ([run], [run], False)
    assert (uses.profiles, uses.sessions) == (["acme/solver@v1"], [opened.session.id])
    await stack.operator.cancel(run)
    await in_use(stack, name, f"run {run} used it")


async def test_calls_that_were_sampled_from_its_weights_protect_a_checkpoint(stack: Stack) -> None:
    """They are evidence: `run verify` derives their log-probabilities again."""
    await stage.publish(stack)
    await stage.start(stack, stage.TRAINING)
    hand = await Hand.take(stack)
    name = await train_one_batch(stack, hand)
    kept = await stack.operator.checkpoint(name)
    await hand.batch(1, kept.sampler)
    await hand.group(batch=1, sampler=kept.sampler)
    await hand.complete("failed", Conflict("It was made to fail.").problem)
    assert (await stack.operator.checkpoint_uses(name)).groups == 1
    await in_use(stack, name, "1 sampling groups")
    gone = await stack.operator.delete_checkpoint(name, state_only=True)
    assert gone.state_deleted_at is not None
    assert gone.deleted_at is None
    assert await stack.worker.object(kept.adapter) == b"adapter"


async def sweep(stack: Stack) -> None:
    """What the next start of the gateway does, with the objects old enough."""
    await stack.gateway.database.write(
        lambda connection: connection.execute(sa.update(objects).values(stored_at=0.0))
    )
    await uploads.sweep(stack.gateway.database, stack.gateway.objects)


async def test_a_deleted_checkpoint_keeps_its_record_and_loses_its_bytes(stack: Stack) -> None:
    kept = await trained(stack)
    assert kept.state is not None
    gone = await stack.operator.delete_checkpoint(kept.id)
    assert await stack.operator.delete_checkpoint(kept.id) == gone
    assert gone.deleted_at is not None
    assert gone.state_deleted_at is not None
    assert (gone.adapter, gone.state, gone.parent) == (kept.adapter, kept.state, kept.parent)
    assert await stack.operator.checkpoint(kept.id) == gone
    with pytest.raises(InvalidInput, match="was deleted") as refused:
        await stack.operator.start(stage.submission(model=kept.id))
    assert refused.value.problem.code is ErrorCode.MODEL_UNKNOWN
    await sweep(stack)
    stored = await stack.gateway.objects.stored("org_local")
    assert kept.adapter not in stored
    assert kept.state not in stored


async def test_an_expired_state_is_forgotten_at_a_start_and_a_kept_one_is_not(
    stack: Stack,
) -> None:
    kept = await trained(stack, state_expires_at=ago(-3600))
    assert kept.state is not None
    await sweep(stack)
    assert await stack.worker.object(kept.state) == b"state"
    forever = await stack.operator.keep_checkpoint(kept.id, None)
    assert forever.state_expires_at is None
    timed = await stack.operator.keep_checkpoint(kept.id, 60.0)
    assert timed.state_expires_at is not None
    assert datetime.fromisoformat(timed.state_expires_at) > datetime.now(UTC)
    await mark(stack, kept.id, state_expires_at=ago(1))
    with pytest.raises(Conflict, match="no trainer state any more"):
        await stack.operator.keep_checkpoint(kept.id, None)
    await sweep(stack)
    stored = await stack.gateway.objects.stored("org_local")
    assert kept.adapter in stored
    assert kept.state not in stored
    assert (await stack.operator.checkpoint(kept.id)).state_deleted_at is not None


async def test_what_a_queued_run_starts_from_is_held_by_the_run(stack: Stack) -> None:
    kept = await trained(stack, state_expires_at=ago(-3600))
    assert kept.state is not None
    run = (await stack.operator.start(stage.submission(RESUME, model=kept.id))).run
    await mark(stack, kept.id, state_expires_at=ago(1))
    await sweep(stack)
    assert await stack.worker.object(kept.state) == b"state"
    spec = (await stack.operator.run(run)).spec
    assert (spec.id, spec.initial_checkpoint, spec.initial_state) == (run, kept.id, kept.state)
    assert (await stack.operator.checkpoints(run)).items == []
