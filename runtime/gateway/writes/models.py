"""Samplers and checkpoints: what the policy was, and what is kept of it; and what keeps its
service waiting."""

import sqlalchemy as sa

from runtime.gateway import views
from runtime.gateway.refusals import conflict, invalid
from runtime.gateway.writes.batches import require_sampler
from runtime.gateway.writes.change import Change
from runtime.gateway.writes.updates import require_acknowledged
from runtime.storage.tables import checkpoints, samplers
from specs.events import EventType
from specs.records import Checkpoint
from specs.worker_api import CheckpointSaved, ComputeWaiting, SamplerSaved


def sampler_saved(change: Change, write: SamplerSaved) -> None:
    """A frozen state of this run's policy, its adapter uploaded before."""
    sampler = write.sampler
    base = change.spec.sampler
    if sampler.adapter is None:
        raise invalid(
            "A saved sampler has an adapter; the base model has its sampler already.",
            "sampler",
            "/sampler/adapter",
            name=sampler.id,
            next="Upload the adapter and name its digest.",
        )
    same = ("backend", "base_model", "base_digest", "tokenizer_digest", "renderer")
    for field in same:
        if getattr(sampler, field) != getattr(base, field):
            raise invalid(
                f"The sampler's {field} differs from that of the run's spec.",
                "sampler",
                f"/sampler/{field}",
                name=sampler.id,
                next="A run trains one base model.",
            )
    known = change.connection.execute(
        sa.select(samplers).where(samplers.c.id == sampler.id)
    ).one_or_none()
    if known is not None:
        if views.sampler(known) != sampler or known.run_id != change.run.id:
            raise conflict("That id names another sampler.", "sampler", sampler.id)
        return
    change.hold(sampler.id, [sampler.adapter], what="sampler")
    change.insert(samplers, run_id=change.run.id, **sampler.model_dump())
    change.emit(EventType.SAMPLER_SAVED, sampler=sampler.id, adapter=sampler.adapter)


def checkpoint_saved(change: Change, write: CheckpointSaved) -> None:
    """A durable model: sampler, adapter, optional trainer state, and its place in the lineage."""
    checkpoint = write.checkpoint
    update = require_acknowledged(change, checkpoint.update)
    sampler = require_sampler(change, checkpoint.sampler)
    expected = {
        "run": change.run.id,
        "batch": update.batch,
        "sampler": update.sampler_after,
        "adapter": sampler.adapter,
        "base_model": sampler.base_model,
        "profile": change.spec.actor,
        "parent": change.spec.initial_checkpoint,
    }
    for field, value in expected.items():
        if getattr(checkpoint, field) != value:
            raise invalid(
                f"The checkpoint's {field} is {getattr(checkpoint, field)!r};"
                f" its run and update have {value!r}.",
                "checkpoint",
                f"/checkpoint/{field}",
                name=checkpoint.id,
                next="Write what the run and the update say.",
            )
    _store(change, checkpoint)


def _store(change: Change, checkpoint: Checkpoint) -> None:
    digests = [checkpoint.adapter, *([checkpoint.state] if checkpoint.state else [])]
    change.hold(checkpoint.id, digests, what="checkpoint")
    change.insert(
        checkpoints,
        id=checkpoint.id,
        run_id=change.run.id,
        update_id=checkpoint.update,
        sampler_id=checkpoint.sampler,
        batch=checkpoint.batch,
        document=checkpoint.model_dump_json(),
        created_at=checkpoint.created_at,
    )
    change.emit(
        EventType.CHECKPOINT_SAVED,
        checkpoint=checkpoint.id,
        update=checkpoint.update,
        batch=checkpoint.batch,
        sampler=checkpoint.sampler,
        final=checkpoint.final,
    )


def compute_waiting(change: Change, write: ComputeWaiting) -> None:
    """An event alone: nothing is recorded of it elsewhere."""
    change.emit(EventType.COMPUTE_WAITING, **write.model_dump(exclude={"type"}))
