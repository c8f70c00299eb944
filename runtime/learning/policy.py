"""Where the policy of a run stands between batches, and how a trainer takes it up.

A policy is a sampler (what the next batch samples from) and a saved trainer state (what its
update continues from). Both are named by content or by the update that made them, so any
worker on any machine can go on from the records alone: what compute lacks is put there from
the object store. A state in compute has one owner, who drops it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.compute.protocol import AdamParams, Compute, TrainerInfo, TrainerInit
from runtime.learning.evidence import Objects
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.ids import Prefix, new_id
from specs.model import LoraSpec
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan
from specs.records import Update, UpdateState
from specs.run import RunSpec, SamplerRef
from specs.worker_api import RunRecords


@dataclass(frozen=True, slots=True)
class Policy:
    """`state` is the trainer state's name in compute, `state_digest` its bytes in the store;
    both None until the first update of a run that starts without optimizer state.

    :ivar checkpoint: what the state is the run's own copy of; None where the run made the state.
        Runs that resume one checkpoint beside each other each drop their own.
    """

    sampler: SamplerRef
    state: str | None = None
    state_digest: str | None = None
    checkpoint: str | None = None

    @property
    def source(self) -> str | None:
        """What records call the state: the update or the checkpoint that it is of."""
        return self.checkpoint or self.state


def learning_plan(spec: RunSpec) -> TrainingPlan | SupervisedPlan:
    """The plan of a run that learns."""
    if isinstance(spec.plan, EvaluationPlan):
        raise InvalidInput(
            "An evaluation has no updates.",
            object=ErrorObject(type="run", id=spec.id),
            next="Start a training or supervised run.",
        )
    return spec.plan


def adam_params(plan: TrainingPlan | SupervisedPlan) -> AdamParams:
    """The parameters of a plan's optimizer steps."""
    optimizer = plan.optimizer
    return AdamParams(
        learning_rate=plan.learning_rate,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        grad_clip_norm=plan.grad_clip_norm,
    )


def initial_policy(spec: RunSpec) -> Policy:
    """S₀, and the state to resume from where the plan says `resume`."""
    if learning_plan(spec).optimizer_initialization == "fresh":
        return Policy(spec.sampler)
    if spec.initial_checkpoint is None or spec.initial_state is None:
        raise InvalidInput(
            f"Run {spec.id} is to resume an optimizer, and its actor names no checkpoint"
            " with trainer state.",
            code=ErrorCode.RESUME_INCOMPATIBLE,
            object=ErrorObject(type="plan", id=spec.id, pointer="/optimizer_initialization"),
            next="Name a checkpoint id as the actor's model, or use fresh.",
        )
    checkpoint = spec.initial_checkpoint
    return Policy(spec.sampler, f"{spec.id}.{checkpoint}", spec.initial_state, checkpoint)


def policy_before(spec: RunSpec, records: RunRecords, batch: int) -> Policy:
    """The policy on which `batch` samples: that after the last acknowledged update before it
    (invariant 7)."""
    policy = initial_policy(spec)
    samplers = {sampler.id: sampler for sampler in records.samplers}
    for update in sorted(records.updates, key=lambda update: update.batch):
        if update.batch < batch and update.state is UpdateState.ACKNOWLEDGED:
            assert update.sampler_after is not None
            policy = Policy(samplers[update.sampler_after], update.id, update.state_digest)
    return policy


def settled_batches(updates: Sequence[Update]) -> set[int]:
    """Batches whose update is over: acknowledged or skipped."""
    over = (UpdateState.ACKNOWLEDGED, UpdateState.SKIPPED)
    return {update.batch for update in updates if update.state in over}


def after_update(policy: Policy, *, adapter: str, state: str, state_digest: str) -> Policy:
    """The policy that an applied update leaves, under a new sampler id."""
    sampler = policy.sampler.model_copy(update={"id": new_id(Prefix.SAMPLER), "adapter": adapter})
    return Policy(sampler, state, state_digest)


async def trainer_init(
    compute: Compute, objects: Objects, policy: Policy, lora: LoraSpec
) -> TrainerInit:
    """How a trainer takes the policy up, its objects brought into compute.

    On cancel an object may have been put, which is harmless.
    """
    base = policy.sampler.base_model
    if policy.state is not None:
        if await compute.find_state(policy.state) is None:
            assert policy.state_digest is not None
            await compute.put_state(policy.state, await objects.object(policy.state_digest))
        return TrainerInit(base_model=base, lora=lora, state=policy.state)
    await bring_adapter(compute, objects, policy.sampler)
    return TrainerInit(base_model=base, lora=lora, adapter=policy.sampler.adapter)


async def bring_adapter(compute: Compute, objects: Objects, sampler: SamplerRef) -> None:
    """Put the sampler's adapter into compute unless it is there. Harmless to repeat."""
    if sampler.adapter is not None and not await compute.has_adapter(sampler.adapter):
        await compute.put_adapter(sampler.adapter, await objects.object(sampler.adapter))


def require_shape(trainer: TrainerInfo, lora: LoraSpec) -> None:
    """Refuse to go on with an adapter of another shape than the plan's.

    Raises:
        InvalidInput: `resume_incompatible`.
    """
    if (trainer.lora.rank, trainer.lora.alpha) != (lora.rank, lora.alpha):
        raise InvalidInput(
            f"The checkpoint's adapter has rank {trainer.lora.rank} and alpha {trainer.lora.alpha},"
            f" the plan asks for rank {lora.rank} and alpha {lora.alpha}.",
            code=ErrorCode.RESUME_INCOMPATIBLE,
            object=ErrorObject(type="plan", pointer="/lora"),
            next="Give the plan the checkpoint's lora, or start from the base model.",
        )
