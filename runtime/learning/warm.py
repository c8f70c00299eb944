"""Whether an optimizer came back: a resumed run proves it before its first update.

A backend may restore weights and silently begin with cold moments; every later number then looks
plausible and is wrong. So two scratch trainers are opened from the saved state, one with its
optimizer and one without, and both take the same *fingerprint step* on a fixed probe:

* before the step both give the same log-probs: they hold the same weights;
* the warm one counts the steps that the checkpoint recorded;
* after the step they differ: AdamW's moments, and nothing else, told them apart. A cold restore
  would give the same parameters twice.

The trainers are closed again, and the run's own trainer is not touched. Their ids follow from
run and fence, so that a later claim closes what a dead worker left (invariant 12).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio
import numpy as np

from runtime.compute.protocol import AdamParams, Compute, Datum, FloatArray, Loss, TrainerInit
from runtime.execution.context import RunContext
from runtime.learning.policy import Policy, adam_params, learning_plan, trainer_init
from specs.errors import ErrorCode, ErrorObject, InvalidInput, Unavailable
from specs.ids import Prefix, derived_id
from specs.records import Checkpoint

PROBE = tuple(range(1, 18))
"""Ids that every vocabulary has."""
PROBE_RATE = 1e-3
SAME = 1e-4
"""Largest difference of log-probs of equal weights, in nats: rounding of one backend."""
CLOSE_SEC = 10.0


@dataclass(frozen=True, slots=True)
class Warmth:
    """What the fingerprint step showed: steps behind the state, and how far the warm and the
    cold trainer are apart after it (largest difference of log-probs, in nats)."""

    steps: int
    difference: float

    @property
    def measures(self) -> dict[str, float]:
        return {"resume_steps": float(self.steps), "resume_warm_difference": self.difference}


async def prove_warm(ctx: RunContext, policy: Policy, checkpoint: Checkpoint | None) -> Warmth:
    """Take the fingerprint step; `checkpoint` is what the run resumes from.

    On cancel the scratch trainers are closed.

    Raises:
        InvalidInput: `resume_incompatible`: the optimizer did not come back.
    """
    plan = learning_plan(ctx.spec)
    warm = await trainer_init(ctx.compute, ctx.client, policy, plan.lora)
    names = [scratch_trainers(ctx.run, fence) for fence in range(1, ctx.claim.fence + 1)]
    params = replace(adam_params(plan), learning_rate=PROBE_RATE, grad_clip_norm=0.0)
    await _close(ctx, [name for pair in names for name in pair])
    try:
        first, second = names[-1]
        returned = await _fingerprint(ctx.compute, first, warm, params)
        cold = await _fingerprint(ctx.compute, second, replace(warm, with_optimizer=False), params)
    finally:
        await _close(ctx, names[-1])
    recorded = checkpoint.context.steps if checkpoint and checkpoint.context else None
    return _judge(ctx.spec.initial_checkpoint, returned, cold, recorded)


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    steps: int
    before: FloatArray
    after: FloatArray


async def _fingerprint(
    compute: Compute, trainer: str, init: TrainerInit, params: AdamParams
) -> _Fingerprint:
    ids = np.array(PROBE, np.int32)
    weights = np.full(len(ids) - 1, 1 / (len(ids) - 1), np.float32)
    data = [Datum(ids[:-1], ids[1:], {"weights": weights})]
    info = await compute.create_trainer(trainer, init)
    before = await compute.forward(trainer, data, Loss.CROSS_ENTROPY, backward=True)
    await compute.optim_step(trainer, params)
    after = await compute.forward(trainer, data, Loss.CROSS_ENTROPY, backward=False)
    return _Fingerprint(info.steps, before.logprobs[0], after.logprobs[0])


def _judge(
    checkpoint: str | None, warm: _Fingerprint, cold: _Fingerprint, recorded: int | None
) -> Warmth:
    noise = _largest(warm.before, cold.before)
    difference = _largest(warm.after, cold.after)
    cause = None
    if noise > SAME:
        cause = f"weights opened twice from one state differ by {noise:.3g} nats"
    elif recorded is not None and warm.steps != recorded:
        cause = f"its state counts {warm.steps} optimizer steps, and {recorded} are on record"
    elif difference <= max(1e-6, 10 * noise):
        cause = "a step with its optimizer gives what a step without gives: it came back cold"
    if cause is not None:
        raise InvalidInput(
            f"Checkpoint {checkpoint} cannot be resumed: {cause}.",
            code=ErrorCode.RESUME_INCOMPATIBLE,
            object=ErrorObject(type="checkpoint", id=checkpoint),
            next='Start with "optimizer_initialization": "fresh".',
        )
    return Warmth(warm.steps, difference)


def _largest(one: FloatArray, other: FloatArray) -> float:
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max())


def scratch_trainers(run: str, fence: int) -> tuple[str, str]:
    """Ids of the warm and the cold scratch trainer of a claim."""

    warm, cold = (derived_id(Prefix.TRAINER, f"{run}/{kind}/{fence}") for kind in ("warm", "cold"))
    return warm, cold


async def _close(ctx: RunContext, trainers: Sequence[str]) -> None:
    with anyio.move_on_after(CLOSE_SEC, shield=True):
        try:
            for trainer in trainers:
                await ctx.compute.close_trainer(trainer)
        except Unavailable as error:
            ctx.log(f"scratch trainers could not be closed: {error}")
