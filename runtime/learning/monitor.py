"""What is measured of an update while its gradients are made, and what must hold before its step.

One pass over the pieces and the log-probs that forward returned for them (`docs/training.md`
lists every measure of an update):

* the drift between sampler and trainer (`metrics.Drift`);
* the importance ratio r = exp(trained − sampled): shares of tokens up to each bound, mean and
  extremes;
* `clip_fraction`: share of generated tokens whose gradient the loss cuts off (ppo: r beyond the
  bound on the side of the advantage's sign; cispo: r outside of both bounds);
* `kl_reference`: mean of logp_sampled − logp_reference, an unbiased estimate of
  KL(sampler‖reference) (k1 of http://joschu.net/blog/kl-approx.html).

Before its step an update is on policy, so all ratios are 1 but for error: that is what the
planned thresholds are about (pains: mismatch between sampler and trainer).
"""

import math
from collections.abc import Mapping

import numpy as np

from runtime.compute.losses import ClipRange, Loss, LossConfig, clip_range
from runtime.compute.protocol import FloatArray
from runtime.learning.metrics import Drift, cumulative, histogram, not_recordable
from runtime.learning.work import Piece
from specs.errors import Conflict, ErrorCode, ErrorObject, Internal
from specs.objective import Checks

RATIO_BOUNDS = (0.5, 0.8, 0.9, 0.99, 1.01, 1.1, 1.2, 2.0)
"""Upper edges of the histogram of the importance ratio."""

MAX_LOG_RATIO = 36.0
"""Larger ones count as this: exp of more is no number that canonical JSON holds."""


class Monitor:
    """Collects over the pieces of one update. Not for concurrent use."""

    def __init__(self, loss: Loss, config: LossConfig) -> None:
        self._loss = loss
        self._clip: ClipRange | None = clip_range(loss, config)
        self._drift = Drift()
        self._ratios = _Ratios()
        self._clipped = 0
        self._gaps: list[float] = []
        self._compared = 0

    def add(self, piece: Piece, logprobs: FloatArray) -> None:
        """One piece and the trainer's log-probs [n] of its targets."""
        packed, generated = piece.packed, piece.packed.generated
        if packed.logprobs is not None:
            self._drift = self._drift.add(packed.logprobs, logprobs, generated)
            gap = logprobs[generated].astype(np.float64) - packed.logprobs[generated]
            ratio = np.exp(np.minimum(gap, MAX_LOG_RATIO))
            self._ratios.add(ratio)
            if self._clip is not None:
                advantages = piece.datum.inputs["advantages"][generated]
                self._clipped += _cut_off(self._loss, self._clip, ratio, advantages)
        if piece.gap is not None:
            self._gaps.append(math.fsum(piece.gap[generated].tolist()))
            self._compared += packed.trained_tokens

    def measures(self) -> dict[str, float]:
        """By name; what nothing was measured of is absent."""
        found = {**self._drift.measures(), **self._ratios.measures()}
        if self._clip is not None and self._ratios.tokens:
            found["clip_fraction"] = self._clipped / self._ratios.tokens
        if self._compared:
            found["kl_reference"] = math.fsum(self._gaps) / self._compared
        return found


class _Ratios:
    """Importance ratios of generated tokens."""

    def __init__(self) -> None:
        self.tokens = 0
        self._sums: list[float] = []
        self._least, self._largest = math.inf, 0.0
        self._counts = (0,) * (len(RATIO_BOUNDS) + 1)

    def add(self, ratio: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        if not len(ratio):
            return
        values = ratio.tolist()
        self.tokens += len(values)
        self._sums.append(math.fsum(values))
        self._least = min(self._least, *values)
        self._largest = max(self._largest, *values)
        counts = histogram(values, RATIO_BOUNDS)
        self._counts = tuple(a + b for a, b in zip(self._counts, counts, strict=True))

    def measures(self) -> dict[str, float]:
        if not self.tokens:
            return {}
        shares = zip(RATIO_BOUNDS, cumulative(self._counts), strict=False)
        return {
            "importance_ratio_mean": math.fsum(self._sums) / self.tokens,
            "importance_ratio_min": self._least,
            "importance_ratio_max": self._largest,
            **{f"importance_ratio_up_to_{bound:g}": share for bound, share in shares},
        }


def _cut_off(
    loss: Loss,
    clip: ClipRange,
    ratio: np.ndarray[tuple[int], np.dtype[np.float64]],
    advantages: FloatArray,
) -> int:
    above, below = ratio > clip.high, ratio < clip.low
    if loss is Loss.PPO:
        above, below = above & (advantages > 0), below & (advantages < 0)
    return int(np.count_nonzero(above | below))


def require_sound(measures: Mapping[str, float], checks: Checks, *, run: str, batch: int) -> None:
    """Refuse an update whose step must not be enqueued.

    Raises:
        Internal: a measure is not finite, or so large that it cannot be recorded.
        Conflict: `logprob_mismatch`: sampler and trainer differ by more than planned.
    """
    if bad := not_recordable(measures):
        raise Internal(
            f"The update of batch {batch} has no finite {', '.join(bad)} that can be recorded; its"
            " step was not taken.",
            object=ErrorObject(type="run", id=run),
            next="Lower the learning rate or set grad_clip_norm, and start from the last"
            " checkpoint.",
        )
    for name, limit, key in (
        ("max_logprob_difference", checks.max_logprob_difference, "max_logprob_difference"),
        ("kl_sample_train_v2", checks.max_kl_sample_train, "max_kl_sample_train"),
    ):
        value = measures.get(name)
        if limit is not None and value is not None and value > limit:
            raise Conflict(
                f"In batch {batch} the trainer's log-probs are not those that the tokens were"
                f" sampled with: {name} is {value:.4g}, and the plan allows {limit:g}. The step was"
                " not enqueued; the weights are those of the last checkpoint.",
                code=ErrorCode.LOGPROB_MISMATCH,
                object=ErrorObject(type="run", id=run, pointer=f"/plan/checks/{key}"),
                next=f"practicum run verify {run} samples log-probs again; if the difference is the"
                f" backend's own precision, raise checks.{key} in the plan.",
            )
