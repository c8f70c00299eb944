"""A group settles: verdicts first, then advantages, then the rows that it gives its update.

Pure, and local to the group: nothing here depends on the rest of the batch, so that a group
can be submitted before the others have settled. The same records give the same settlement at
any time, which is how a resumed run goes on and how `verify` checks what was recorded
(invariants 4 and 5). `Tally` adds up what a batch's groups say.
"""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.learning.advantages import Centred, centre, divisor
from runtime.learning.credit import credit
from runtime.learning.eligibility import Reason, Verdict, for_reinforcement
from runtime.learning.evidence import Evidence
from runtime.learning.hints import NO_HINTS, Attempt, Hints, hints_of
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
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """Calls that the plan's credit leaves out, by why."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is recorded of groups, and what they give to their update.

    :ivar rewards: of the eligible trials.
    """

    verdicts: tuple[Eligible, ...]
    rows: tuple[Row, ...]
    census: dict[str, int]
    rewards: tuple[float, ...]
    hints: Hints


class Tally:
    """What the groups of a batch add up to."""

    def __init__(self) -> None:
        self._census: Counter[str] = Counter()
        self._rewards = array("d")
        self._hints = NO_HINTS

    def add(self, settlement: Settlement) -> None:
        """Count another group."""
        self._census.update(settlement.census)
        self._rewards.extend(settlement.rewards)
        self._hints += settlement.hints

    @property
    def census(self) -> dict[str, int]:
        """Groups and trials by what became of them."""
        return dict(self._census)

    @property
    def measures(self) -> dict[str, float]:
        """Of the batch's eligible trials, and the census as numbers."""
        counts = {name: float(count) for name, count in self._census.items()}
        return {**reward_measures(self._rewards), **self._hints.measures(), **counts}


def judge(trial: Trial, found: Evidence, *, sampler: str, plan: TrainingPlan) -> Judged:
    """The verdict on one counted trial of a batch that samples from `sampler`."""
    verdict = for_reinforcement(trial, found.interactions, sampler=sampler, rules=plan.eligibility)
    if found.problem is not None and verdict.reason is Reason.NO_INTERACTIONS:
        verdict = found.problem
    credits = credit(found.interactions, plan.credit)
    tokens = sum(packed.trained_tokens for packed in pack(found.interactions, credits.weights))
    if verdict.eligible and not tokens:
        verdict = Verdict(Reason.NO_CREDIT)
    return Judged(trial, verdict, tokens if verdict.eligible else 0, credits.left_out)


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
        hints=hints_of([Attempt(i.trial, i.tokens, i.verdict.eligible) for i in judged]),
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
    """Who moves the update: all that are eligible in a group whose rewards differ, or wherever
    the plan has a term that needs no difference in reward (invariant 5)."""
    if not centred.learnable and plan.kl is None:
        return []
    group_tokens = sum(item.tokens for item in eligible)
    rows: list[Row] = []
    for item, advantage in zip(eligible, centred.advantages, strict=True):
        by = divisor(
            plan.advantages.per_token,
            planned_groups=plan.batch.tasks,
            group_size=plan.batch.trials_per_task,
            trial_tokens=item.tokens,
            group_tokens=group_tokens,
        )
        rows.append(Row(item.trial, group, weight=advantage / by, divisor=float(by)))
    return rows


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
        **_left_out(judged),
    }


def _left_out(judged: Sequence[Judged]) -> dict[str, int]:
    """Calls of eligible trials that the plan's credit leaves out."""
    total: Counter[str] = Counter()
    for item in judged:
        if item.verdict.eligible:
            total.update({f"calls_left_out_{why}": n for why, n in item.left_out.items()})
    return dict(total)
