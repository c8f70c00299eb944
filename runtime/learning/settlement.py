"""A group settles: verdicts first, then advantages, then the rows that it gives its update.

Pure, and local to the group: nothing here depends on the rest of the batch, so that a group
can be submitted before the others have settled. The same records give the same settlement at
any time, which is how a resumed run goes on and how `verify` checks what was recorded
(invariants 4 and 5). `Tally` adds up what a batch's groups say.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.learning.advantages import Centred, centre
from runtime.learning.datums import token_weight
from runtime.learning.eligibility import Reason, Verdict, for_reinforcement
from runtime.learning.evidence import Evidence
from runtime.learning.metrics import reward_measures
from runtime.learning.packing import pack
from runtime.learning.work import Row
from specs.plans import TrainingPlan
from specs.records import Eligible, Trial


@dataclass(frozen=True, slots=True)
class Judged:
    """A counted trial with its verdict and the generated tokens it would train on."""

    trial: Trial
    verdict: Verdict
    tokens: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is recorded of groups, and what they give to their update.

    :ivar rewards: of the eligible trials.
    """

    verdicts: tuple[Eligible, ...]
    rows: tuple[Row, ...]
    census: dict[str, int]
    rewards: tuple[float, ...]


class Tally:
    """What the groups of a batch add up to."""

    def __init__(self) -> None:
        self._census: Counter[str] = Counter()
        self._rewards = array("d")

    def add(self, settlement: Settlement) -> None:
        """Count another group."""
        self._census.update(settlement.census)
        self._rewards.extend(settlement.rewards)

    @property
    def census(self) -> dict[str, int]:
        """Groups and trials by what became of them."""
        return dict(self._census)

    @property
    def measures(self) -> dict[str, float]:
        """Of the batch's eligible trials, and the census as numbers."""
        counts = {name: float(count) for name, count in self._census.items()}
        return {**reward_measures(self._rewards), **counts}


def judge(trial: Trial, found: Evidence, *, sampler: str, plan: TrainingPlan) -> Judged:
    """The verdict on one counted trial of a batch that samples from `sampler`."""
    verdict = for_reinforcement(trial, found.interactions, sampler=sampler, rules=plan.eligibility)
    if found.problem is not None and verdict.reason is Reason.NO_INTERACTIONS:
        verdict = found.problem
    tokens = sum(packed.trained_tokens for packed in pack(found.interactions))
    return Judged(trial, verdict, tokens if verdict.eligible else 0)


def settle(judged: Sequence[Judged], plan: TrainingPlan) -> Settlement:
    """Advantages per group over its eligible trials; groups in the order of their trials."""
    groups: dict[str, list[Judged]] = {}
    for item in judged:
        groups.setdefault(item.trial.group, []).append(item)
    verdicts: list[Eligible] = []
    rows: list[Row] = []
    census: Counter[str] = Counter()
    for group, members in groups.items():
        eligible = [item for item in members if item.verdict.eligible]
        centred = centre([reward_of(item.trial) for item in eligible], plan.advantages.normalise)
        census[f"groups_{centred.kind}"] += 1
        advantages = dict(
            zip((item.trial.id for item in eligible), centred.advantages, strict=True)
        )
        verdicts += [_verdict(item, advantages.get(item.trial.id)) for item in members]
        rows += _rows(group, eligible, centred, plan)
    return Settlement(
        verdicts=tuple(verdicts),
        rows=tuple(rows),
        census=_census(judged, len(groups), census),
        rewards=tuple(reward_of(item.trial) for item in judged if item.verdict.eligible),
    )


def reward_of(trial: Trial) -> float:
    """The reward of a trial that has one."""
    assert trial.assessment is not None
    assert trial.assessment.reward is not None
    return trial.assessment.reward


def _verdict(item: Judged, advantage: float | None) -> Eligible:
    return Eligible(
        trial=item.trial.id,
        eligible=item.verdict.eligible,
        reason=item.verdict.text,
        advantage=advantage,
    )


def _rows(
    group: str, eligible: Sequence[Judged], centred: Centred, plan: TrainingPlan
) -> list[Row]:
    if not centred.learnable:
        return []
    slots = plan.batch.tasks * plan.batch.trials_per_task
    return [
        Row(
            trial=item.trial,
            group=group,
            weight=token_weight(
                advantage,
                per_token=plan.advantages.per_token,
                planned_slots=slots,
                trial_tokens=item.tokens,
            ),
        )
        for item, advantage in zip(eligible, centred.advantages, strict=True)
    ]


def _census(judged: Sequence[Judged], groups: int, by_kind: Counter[str]) -> dict[str, int]:
    excluded = Counter(
        f"excluded_{item.verdict.reason}" for item in judged if item.verdict.reason is not None
    )
    return {
        "groups": groups,
        **by_kind,
        "trials": len(judged),
        "trials_eligible": len(judged) - excluded.total(),
        **excluded,
    }
