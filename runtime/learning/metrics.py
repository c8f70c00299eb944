"""Measures of an update, computed in one pass over its chunks.

`Drift` compares the sampler's log-probs with the trainer's on the generated tokens, before
the step: with an exact backend both are the same policy and every measure is rounding.

* `kl_sample_train_v1` = mean(sampled - trained), an unbiased estimate of KL(sampler‖trainer)
* `kl_sample_train_v2` = mean((sampled - trained)²) / 2, always ≥ 0 and of lower variance
* `max_logprob_difference` = max |sampled - trained|
* `entropy` = -mean(sampled), an estimate of the sampler's entropy per token
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.compute.protocol import FloatArray
from runtime.learning.advantages import mean, population_std
from runtime.learning.packing import Mask
from specs.canonical import holds

DIFFERENCE_BOUNDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Upper edges of the histogram of |sampled - trained|."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Sums over generated tokens that have a sampled log-prob; `add` gives a new one."""

    tokens: int = 0
    difference: float = 0.0
    squared: float = 0.0
    largest: float = 0.0
    sampled: float = 0.0
    histogram: tuple[int, ...] = (0,) * (len(DIFFERENCE_BOUNDS) + 1)

    def add(self, sampled: FloatArray, trained: FloatArray, generated: Mask) -> "Drift":
        """With one datum's arrays, all [n]."""
        old = sampled[generated].astype(np.float64)
        if not len(old):
            return self
        gap = old - trained[generated].astype(np.float64)
        counts = histogram(np.abs(gap).tolist(), DIFFERENCE_BOUNDS)
        return Drift(
            tokens=self.tokens + len(old),
            difference=self.difference + float(gap.sum()),
            squared=self.squared + float((gap**2).sum()),
            largest=max(self.largest, float(np.abs(gap).max())),
            sampled=self.sampled + float(old.sum()),
            histogram=tuple(a + b for a, b in zip(self.histogram, counts, strict=True)),
        )

    def measures(self) -> dict[str, float]:
        """By name; nothing where no token had a sampled log-prob."""
        if not self.tokens:
            return {}
        shares = zip(DIFFERENCE_BOUNDS, cumulative(self.histogram), strict=False)
        return {
            "kl_sample_train_v1": self.difference / self.tokens,
            "kl_sample_train_v2": 0.5 * self.squared / self.tokens,
            "max_logprob_difference": self.largest,
            "entropy": -self.sampled / self.tokens,
            **{f"logprob_difference_within_{bound:g}": share for bound, share in shares},
        }


def histogram(values: Sequence[float], bounds: Sequence[float]) -> tuple[int, ...]:
    """Counts per bin: ≤ bounds[0], ≤ bounds[1], …, above the last."""
    places = np.searchsorted(np.asarray(bounds), np.asarray(values, np.float64), side="left")
    return tuple(np.bincount(places, minlength=len(bounds) + 1).tolist())


def cumulative(counts: Sequence[int]) -> list[float]:
    """Share of all values in each bin and those below it."""
    total = sum(counts)
    return (np.cumsum(counts) / total).tolist() if total else [0.0] * len(counts)


def reward_measures(rewards: Sequence[float]) -> dict[str, float]:
    """Mean, population spread and range of the eligible trials' rewards."""
    if not rewards:
        return {}
    return {
        "reward_mean": mean(rewards),
        "reward_std": population_std(rewards),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
    }


def not_recordable(measures: Mapping[str, float]) -> list[str]:
    """Names of measures that no record can hold; such an update must not be applied."""
    return [name for name, value in measures.items() if not holds(value)]
