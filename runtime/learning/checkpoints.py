"""What is recorded of a saved model: its objects, its place in the lineage, and its context.

The context is what a later `resume` is checked against at admission, and what it continues:
optimizer, backend, base weights, steps. The position (batches, examples) is for people: a run
that starts from a checkpoint has a cursor of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from runtime.compute.protocol import TrainerInfo
from runtime.learning.policy import learning_plan
from runtime.learning.resolution import Pending
from specs.ids import Prefix, new_id
from specs.plans import SupervisedPlan
from specs.records import Checkpoint, CheckpointContext
from specs.run import RunSpec, SamplerRef
from specs.sources import FileSource


@dataclass(frozen=True, slots=True)
class Saved:
    """Uploaded objects: digest and size of the adapter, then of the trainer state."""

    adapter: str
    adapter_size: int
    state: str
    state_size: int


def checkpoint_of(
    spec: RunSpec,
    pending: Pending,
    sampler: SamplerRef,
    saved: Saved,
    trainer: TrainerInfo,
    measures: Mapping[str, float],
    *,
    final: bool,
) -> Checkpoint:
    """The checkpoint of an applied update; `trainer` is as it is after the step."""
    plan = learning_plan(spec)
    now = datetime.now(UTC)
    processed = measures.get("examples_processed")
    supervised = isinstance(plan, SupervisedPlan)
    file = plan.source.digest if supervised and isinstance(plan.source, FileSource) else None
    return Checkpoint(
        id=new_id(Prefix.CHECKPOINT),
        run=spec.id,
        update=pending.id,
        batch=pending.batch,
        sampler=sampler.id,
        base_model=sampler.base_model,
        adapter=saved.adapter,
        adapter_size=saved.adapter_size,
        state=saved.state,
        state_size=saved.state_size,
        lora=trainer.lora.model_dump(mode="json"),
        profile=spec.actor,
        parent=spec.initial_checkpoint,
        created_at=now.isoformat(),
        final=final,
        context=CheckpointContext(
            plan=spec.plan_digest,
            backend=sampler.backend,
            base_digest=sampler.base_digest,
            optimizer=plan.optimizer,
            steps=trainer.steps,
            batches=pending.batch + 1,
            examples=None if processed is None else int(processed),
            dataset=spec.dataset,
            dataset_digest=spec.dataset_digest,
            file=file,
        ),
        state_expires_at=expiry(now, plan.checkpoints.state_ttl_sec, trainer.kept_sec),
    )


def expiry(now: datetime, *seconds: float | None) -> str | None:
    """When the first of several periods has passed; None where none of them ends."""
    ends = [period for period in seconds if period is not None]
    return (now + timedelta(seconds=min(ends))).isoformat() if ends else None
