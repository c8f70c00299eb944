"""The losses of `losses` over tensors. Positions without weight may hold anything, also NaN:
they reach neither the value nor the gradient (invariant 6)."""

from collections.abc import Sequence

import numpy as np
import torch

from runtime.compute.losses import ClipRange, Loss
from runtime.compute.protocol import Datum

MAX_LOG_RATIO = 80.0
"""exp of more is not a float32. A clipped loss is flat long before; one that is not has a value
there that no update may be made of."""


def token_loss(
    loss: Loss, clip: ClipRange | None, logprobs: torch.Tensor, data: Sequence[Datum]
) -> torch.Tensor:
    """The loss of `data`, summed over tokens; `logprobs` [Σn] are the targets', flat in order."""

    def flat(key: str) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([datum.inputs[key] for datum in data]))

    if loss is Loss.CROSS_ENTROPY:
        return -(logprobs * flat("weights")).sum()
    advantages = flat("advantages")
    counts = advantages != 0
    logprobs = torch.where(counts, logprobs, 0.0)
    log_ratio = logprobs - torch.where(counts, flat("logprobs"), 0.0)
    if clip is None:
        return -(log_ratio.exp() * advantages).sum()
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    if loss is Loss.CISPO:
        weight = ratio.detach().clamp(clip.low, clip.high)
        return -(weight * logprobs * advantages).sum()
    # min(r·A, clip(r)·A): only the bound on the side of the advantage's sign can matter.
    bounded = torch.where(advantages > 0, ratio.clamp(max=clip.high), ratio.clamp(min=clip.low))
    return -(bounded * advantages).sum()
