"""Rewards of a sampling group become advantages, over its eligible trials only (invariant 5).

Centred on the mean of the group's eligible rewards; `std` also divides by their population
standard deviation. A spread below `TOLERANCE` of the rewards' size is rounding, not signal:
the group then counts as `zero_variance` and gives no gradient, as does a group of one. So
`std` never divides by a number near zero, and near-equal rewards never become ±1.

All sums are exact (`math.fsum`) and scaled, so neither order nor size of rewards matters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

TOLERANCE = 1e-6
"""Relative to max(1, largest |reward|): float32 rewards agree to about this."""


class GroupKind(StrEnum):
    """What became of a group; census keys are `groups_<kind>`."""

    LEARNABLE = "learnable"
    ZERO_VARIANCE = "zero_variance"
    ONE_MEMBER = "one_member"
    EMPTY = "empty"
    """No eligible trial."""


@dataclass(frozen=True, slots=True)
class Centred:
    """Advantages in the order of the rewards; all zero unless the group is learnable."""

    kind: GroupKind
    advantages: tuple[float, ...]

    @property
    def learnable(self) -> bool:
        return self.kind is GroupKind.LEARNABLE


def centre(rewards: Sequence[float], normalise: Literal["none", "std"] = "none") -> Centred:
    """Advantages of one group's eligible trials; `rewards` must be finite."""
    if len(rewards) < 2:
        kind = GroupKind.ONE_MEMBER if rewards else GroupKind.EMPTY
        return Centred(kind, (0.0,) * len(rewards))
    average = mean(rewards)
    differences = [reward - average for reward in rewards]
    spread = max(map(abs, differences))
    if spread <= TOLERANCE * max(1.0, *map(abs, rewards)):
        return Centred(GroupKind.ZERO_VARIANCE, (0.0,) * len(rewards))
    if normalise == "std":
        scale = population_std(rewards)
        differences = [difference / scale for difference in differences]
    return Centred(GroupKind.LEARNABLE, tuple(differences))


def divisor(
    per_token: Literal["planned", "length", "group"],
    *,
    planned_groups: int,
    group_size: int,
    trial_tokens: int,
    group_tokens: int,
) -> int:
    """What each token's advantage is divided by (`specs.objective.Advantages.per_token`).

    `trial_tokens` and `group_tokens` are generated tokens that are learnt from, of the trial and
    of all eligible trials of its group. Without any there is nothing to divide, and it is 1.
    """
    match per_token:
        case "planned":
            return planned_groups * group_size
        case "length":
            return planned_groups * group_size * max(1, trial_tokens)
        case "group":
            return planned_groups * max(1, group_tokens)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, exact to the last bit of the sum."""
    return math.fsum(values) / len(values)


def population_std(values: Sequence[float]) -> float:
    """Population standard deviation, scaled so that squares neither overflow nor vanish."""
    average = mean(values)
    differences = [value - average for value in values]
    scale = max(map(abs, differences))
    if scale == 0.0:
        return 0.0
    return scale * math.sqrt(math.fsum((d / scale) ** 2 for d in differences) / len(values))
