"""The KL penalty of a group, as a term of each token's advantage (`specs.objective.KlPenalty`).

With d = logp_sampled − logp_reference at a generated token and m the mean of d over all generated
tokens of the group's eligible trials, the token gets coefficient · (m − d). In expectation over
samples of the policy this is the gradient of −coefficient · KL(policy‖reference), with m as a
baseline. It stands in the advantages, so it goes through the same ratio and clipping as the
reward, and it needs no difference in reward (invariant 5). Observations get nothing, also where
a discount passes over them (invariant 6).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime.compute.protocol import FloatArray
from runtime.learning.packing import Packed
from specs.objective import KlPenalty

type Terms = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Compared:
    """A sequence and the reference's log-probs [n] of its targets."""

    packed: Packed
    reference: FloatArray


def differences(item: Compared) -> Terms:
    """logp_sampled − logp_reference at generated targets, zero elsewhere; [n]."""
    assert item.packed.logprobs is not None  # eligible trials have them
    gap = item.packed.logprobs.astype(np.float64) - item.reference.astype(np.float64)
    return np.where(item.packed.generated, gap, 0.0)


def penalties(group: Sequence[Compared], penalty: KlPenalty) -> list[Terms]:
    """The term of each token of a group's sequences, in their order; not yet divided."""
    gaps = [differences(item) for item in group]
    tokens = sum(item.packed.trained_tokens for item in group)
    if not tokens:
        return gaps
    average = math.fsum(math.fsum(gap.tolist()) for gap in gaps) / tokens
    terms: list[Terms] = []
    for item, gap in zip(group, gaps, strict=True):
        own = np.where(item.packed.generated, penalty.coefficient * (average - gap), 0.0)
        if penalty.discount > 0:
            own = np.where(item.packed.generated, discounted(own, penalty.discount), 0.0)
        terms.append(own)
    return terms


def discounted(values: Terms, discount: float) -> Terms:
    """Σ_k discount^k · values[i+k] for each i; every position counts as one step."""
    result = np.empty_like(values)
    running = 0.0
    for index in range(len(values) - 1, -1, -1):
        running = float(values[index]) + discount * running
        result[index] = running
    return result
