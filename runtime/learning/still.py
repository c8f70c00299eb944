"""A step with learning rate 0 must change nothing: not the weights, and no log-prob.

It is the whole way of an update on a real backend, with the one outcome that can be checked
exactly (open-instruct#1473: a difference that grows at learning rate 0). Where a plan has that
learning rate the boundary compares what it saved before and after the step.
"""

from collections.abc import Sequence

import numpy as np

from runtime.compute.losses import Loss, LossConfig
from runtime.compute.protocol import Compute, Datum, FloatArray
from specs.errors import Conflict, ErrorCode, ErrorObject


async def weights(compute: Compute, trainer: str) -> str:
    """Digest of the trainer's current adapter."""
    return (await compute.save_adapter(trainer)).digest


async def logprob_change(
    compute: Compute,
    trainer: str,
    loss: Loss,
    config: LossConfig,
    before: tuple[Sequence[Datum], Sequence[FloatArray]],
) -> float:
    """Largest difference of a target's log-prob from what it was `before`; adds no gradient."""
    data, known = before
    again = await compute.forward(trainer, data, loss, backward=False, config=config)
    pairs = zip(known, again.logprobs, strict=True)
    return max((float(np.abs(new - old).max(initial=0.0)) for old, new in pairs), default=0.0)


def require_still(run: str, before: str, after: str, change: float, limit: float | None) -> None:
    """Refuse to go on with a backend that moves weights at learning rate 0.

    Raises:
        Conflict: `weights_changed`.
    """
    moved = change > limit if limit is not None else False
    if before == after and not moved:
        return
    what = f"log-probs by up to {change:.4g}" if before == after else f"weights {before} to {after}"
    raise Conflict(
        f"An optimizer step with learning rate 0 changed {what}.",
        code=ErrorCode.WEIGHTS_CHANGED,
        object=ErrorObject(type="run", id=run),
        next=f"Do not train on this backend; practicum run updates {run} --json has the measures.",
    )
