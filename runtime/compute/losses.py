"""What each loss reads and is told: names, arrays and parameters as Tinker's `loss_fn` has them.

Everything that two backends must agree on and that needs no tensors. With r = exp(logp − logprobs)
and sums over tokens:

* cross_entropy: −Σ weights · logp
* importance_sampling: −Σ r · advantages
* ppo: −Σ min(r · advantages, clip(r, low, high) · advantages), the clipped surrogate of
  PPO (arXiv:1707.06347); bounds apart from each other as in DAPO (arXiv:2503.14476)
* cispo: −Σ stop_gradient(clip(r, low, high)) · logp · advantages: the weight is clipped and every
  token keeps its gradient (MiniMax-M1, arXiv:2506.13585)

No loss divides by anything: the caller's weights and advantages hold the normaliser.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from specs.errors import ErrorObject, InvalidInput
from specs.objective import CLIP_DEFAULTS


class Loss(StrEnum):
    """Token losses; formulas in the module's text, with the field names of `Datum`."""

    CROSS_ENTROPY = "cross_entropy"
    IMPORTANCE_SAMPLING = "importance_sampling"
    PPO = "ppo"
    CISPO = "cispo"


LOSS_INPUTS: Mapping[Loss, tuple[str, ...]] = MappingProxyType(
    {
        Loss.CROSS_ENTROPY: ("weights",),
        Loss.IMPORTANCE_SAMPLING: ("logprobs", "advantages"),
        Loss.PPO: ("logprobs", "advantages"),
        Loss.CISPO: ("logprobs", "advantages"),
    }
)
"""Arrays that each loss reads."""


def gradient_input(loss: Loss) -> str:
    """The array whose zeros mark the tokens that give no gradient."""
    return "weights" if loss is Loss.CROSS_ENTROPY else "advantages"


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Parameters of one call's loss, each in Tinker's words; None leaves the loss's default.

    The thresholds are ratios, not distances from 1: ppo has 0.8 and 1.2, cispo 0 and 4.
    """

    clip_low_threshold: float | None = None
    clip_high_threshold: float | None = None

    def given(self) -> dict[str, float]:
        """What is not left to the default: a `loss_fn_config`."""
        values = {
            "clip_low_threshold": self.clip_low_threshold,
            "clip_high_threshold": self.clip_high_threshold,
        }
        return {name: value for name, value in values.items() if value is not None}


NO_CONFIG = LossConfig()


@dataclass(frozen=True, slots=True)
class ClipRange:
    """Bounds of the importance ratio."""

    low: float
    high: float


def clip_range(loss: Loss, config: LossConfig) -> ClipRange | None:
    """The bounds that a call's loss works with; None for a loss that does not clip.

    Raises:
        InvalidInput: thresholds for a loss without any, or not 0 ≤ low ≤ high, finite.
    """
    default = CLIP_DEFAULTS.get(loss)
    if default is None:
        if config.given():
            raise _bad(f"{loss} has no parameters, and was given {sorted(config.given())}")
        return None
    low = default.low if config.clip_low_threshold is None else config.clip_low_threshold
    high = default.high if config.clip_high_threshold is None else config.clip_high_threshold
    if not (math.isfinite(low) and math.isfinite(high) and 0 <= low <= high):
        raise _bad(f"{loss} needs finite thresholds 0 ≤ low ≤ high, and has {low} and {high}")
    return ClipRange(low, high)


def _bad(why: str) -> InvalidInput:
    return InvalidInput(
        f"The training call is invalid: {why}.",
        object=ErrorObject(type="training_call", pointer="/config"),
        next="Correct the loss's parameters; nothing was changed.",
    )
