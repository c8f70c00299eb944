"""Hints that a reward measures something else than the work, recorded with every update.

None of them is proof; each is a number to look at when rewards rise.

* `reward_length_correlation`: Pearson correlation of reward and generated tokens over eligible
  trials, both centred within their group so that hard tasks do not count as long ones. Near 1
  or -1, the policy may be learning length (Dr. GRPO, arXiv:2503.20783, §3).
* `verifier_failure_rate`: share of finished trials that the verifier could not score.
* `verifier_disagreement`: among pairs of trials of a group that left the very same files, the
  share with different rewards: what the verifier's own chance adds. Absent where no pair is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import combinations

from runtime.execution.engine import SESSION
from runtime.learning.advantages import mean
from specs.assessment import NoReward
from specs.records import Trial

_UNSCORED = (NoReward.VERIFIER_FAILED, NoReward.REWARD_MISSING, NoReward.REWARD_MALFORMED)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A counted trial, how many tokens it generated, and whether it learns."""

    trial: Trial
    tokens: int
    eligible: bool


@dataclass(frozen=True, slots=True)
class Hints:
    """Sums that the measures are made of; those of several groups add up."""

    xy: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    """Products of reward (x) and tokens (y), both less their group's mean."""
    verified: int = 0
    unscored: int = 0
    pairs: int = 0
    disagreeing: int = 0

    def __add__(self, other: "Hints") -> "Hints":
        names = (field.name for field in fields(self))
        return Hints(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def measures(self) -> dict[str, float]:
        """By name; what cannot be said is absent."""
        found: dict[str, float] = {}
        if self.xx > 0 and self.yy > 0:
            correlation = self.xy / (math.sqrt(self.xx) * math.sqrt(self.yy))
            found["reward_length_correlation"] = max(-1.0, min(1.0, correlation))
        if self.verified:
            found["verifier_failure_rate"] = self.unscored / self.verified
        if self.pairs:
            found["verifier_disagreement"] = self.disagreeing / self.pairs
        return found


NO_HINTS = Hints()


def hints_of(attempts: Sequence[Attempt]) -> Hints:
    """Of the counted trials of one group or more."""
    groups = _by_group(attempts)
    points = [point for group in groups for point in _centred(group)]
    verified = [scored for one in attempts if (scored := _scored(one.trial)) is not None]
    pairs = [agree for group in groups for agree in _pairs(group)]
    return Hints(
        xy=math.fsum(x * y for x, y in points),
        xx=math.fsum(x * x for x, _ in points),
        yy=math.fsum(y * y for _, y in points),
        verified=len(verified),
        unscored=verified.count(False),
        pairs=len(pairs),
        disagreeing=pairs.count(False),
    )


def _by_group(attempts: Iterable[Attempt]) -> list[list[Attempt]]:
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(attempt.trial.group, []).append(attempt)
    return list(groups.values())


def _centred(group: Sequence[Attempt]) -> list[tuple[float, float]]:
    """Reward and tokens of a group's eligible trials, each less its mean."""
    rows = [
        (attempt.trial.assessment.reward, float(attempt.tokens))
        for attempt in group
        if attempt.eligible
        and attempt.trial.assessment is not None
        and attempt.trial.assessment.reward is not None
    ]
    if not rows:
        return []
    reward, tokens = mean([row[0] for row in rows]), mean([row[1] for row in rows])
    return [(row[0] - reward, row[1] - tokens) for row in rows]


def _scored(trial: Trial) -> bool | None:
    """Whether the verifier gave a reward; None where it was not its turn."""
    if trial.assessment is None:
        return None
    if trial.assessment.reason is None:
        return True
    return False if trial.assessment.reason in _UNSCORED else None


def _pairs(group: Sequence[Attempt]) -> list[bool]:
    """For each pair that left the same files, whether the rewards agree."""
    left = [
        (files, attempt.trial.assessment.reward)
        for attempt in group
        if attempt.trial.assessment is not None
        and attempt.trial.assessment.reward is not None
        and (files := _files(attempt.trial))
    ]
    return [mine[1] == other[1] for mine, other in combinations(left, 2) if mine[0] == other[0]]


def _files(trial: Trial) -> dict[str, str]:
    """Digests of what a trial left, without the log of its session, which names times and ids."""
    assert trial.assessment is not None
    return {
        path: digest
        for path, digest in trial.assessment.artifacts.items()
        if not path.startswith(f"{SESSION}/")
    }
