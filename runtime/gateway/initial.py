"""Training that starts from a checkpoint: what the plan takes over from it, and what excludes it.

Weights alone (`fresh`) ask for the same LoRA shape. An optimizer that goes on (`resume`) also
asks for its state, which must be there and not expired, for the same optimizer, and for the
same backend and base weights. Refused here, at admission, so that nothing has begun.
"""

from datetime import UTC, datetime

from sqlalchemy import Connection

from runtime.gateway import references
from runtime.gateway.refusals import invalid
from runtime.gateway.resolution import Policy
from specs.errors import ErrorCode, InvalidInput
from specs.model import Optimizer
from specs.plans import SupervisedPlan, TrainingPlan
from specs.records import Checkpoint


def fit_to_checkpoint[P: TrainingPlan | SupervisedPlan](
    connection: Connection, org: str, plan: P, policy: Policy, overrides: list[str]
) -> P:
    """The plan with the shape of the checkpoint that it starts from; each value that is taken
    over is an override in words.

    Raises:
        InvalidInput: `resume_incompatible`, naming the field.
    """
    checkpoint = policy.checkpoint
    if plan.optimizer_initialization == "resume":
        if checkpoint is None:
            raise _incompatible(
                "/optimizer_initialization",
                "there is nothing to resume: the model is not a checkpoint",
            )
        _require_state(connection, org, checkpoint)
        _require_same_origin(checkpoint, policy)
        plan = _with_optimizer(plan, checkpoint, overrides)
    return plan if checkpoint is None else _with_shape(plan, checkpoint, overrides)


def _require_state(connection: Connection, org: str, checkpoint: Checkpoint) -> None:
    cause = None
    if checkpoint.state is None:
        cause = "it has no state"
    elif checkpoint.state_deleted_at is not None:
        cause = f"its state was deleted at {checkpoint.state_deleted_at}"
    elif expired(checkpoint):
        cause = f"its state expired at {checkpoint.state_expires_at}"
    elif not references.sizes(connection, org, [checkpoint.state]):
        cause = f"its state {checkpoint.state} is not in the object store"
    if cause is not None:
        raise _incompatible(
            "/optimizer_initialization", f"checkpoint {checkpoint.id} cannot be resumed: {cause}"
        )


def expired(checkpoint: Checkpoint) -> bool:
    """Whether its trainer state may be gone."""
    at = checkpoint.state_expires_at
    return at is not None and datetime.fromisoformat(at) <= datetime.now(UTC)


def _require_same_origin(checkpoint: Checkpoint, policy: Policy) -> None:
    assert policy.sampler is not None  # a checkpoint has one
    found = (("backend", policy.base.backend), ("base_digest", policy.base.digest))
    for name, now in found:
        recorded = getattr(checkpoint.context or policy.sampler, name)
        if recorded != now:
            raise _incompatible(
                "/optimizer_initialization",
                f"checkpoint {checkpoint.id} was trained with {name} {recorded},"
                f" and {checkpoint.base_model} now has {now}",
            )


def _with_optimizer[P: TrainingPlan | SupervisedPlan](
    plan: P, checkpoint: Checkpoint, overrides: list[str]
) -> P:
    recorded = checkpoint.context.optimizer if checkpoint.context else Optimizer()
    if plan.optimizer == recorded:
        return plan
    differing = [
        f"{name} {getattr(recorded, name)}"
        for name in Optimizer.model_fields
        if getattr(recorded, name) != getattr(plan.optimizer, name)
    ]
    told = ", ".join(differing)
    if "optimizer" in plan.model_fields_set:
        raise _incompatible(
            "/optimizer",
            f"the state of checkpoint {checkpoint.id} belongs to an optimizer of {told}",
        )
    overrides.append(f"optimizer {told} of checkpoint {checkpoint.id} replaces the default")
    return plan.model_copy(update={"optimizer": recorded})


def _with_shape[P: TrainingPlan | SupervisedPlan](
    plan: P, checkpoint: Checkpoint, overrides: list[str]
) -> P:
    shape = {name: checkpoint.lora.get(name) for name in ("rank", "alpha")}
    if "lora" not in plan.model_fields_set:
        overrides.append(f"lora {shape} of checkpoint {checkpoint.id} replaces the default")
        kept = plan.lora.model_copy(update=checkpoint.lora)
        return plan.model_copy(update={"lora": kept})
    wanted = {name: getattr(plan.lora, name) for name in shape}
    if wanted != shape:
        raise _incompatible("/lora", f"the plan's LoRA {wanted} is not the checkpoint's {shape}")
    return plan


def _incompatible(pointer: str, cause: str) -> InvalidInput:
    return invalid(
        f"The training cannot start there: {cause}.",
        "plan",
        pointer,
        code=ErrorCode.RESUME_INCOMPATIBLE,
        next="Say `fresh`, name a checkpoint with state, or leave `lora` and `optimizer` to it.",
    )
