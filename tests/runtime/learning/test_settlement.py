"""A group settles: who contributes, with which weight, under each rule of the plan (invariants 4
and 5)."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from runtime.learning.eligibility import Reason, Verdict
from runtime.learning.evidence import Evidence
from runtime.learning.settlement import Judged, Settlement, Tally, judge, settle
from specs.assessment import Assessment
from specs.ids import Prefix, new_id
from specs.plans import BatchShape, TrainingPlan
from specs.records import TrialOutcome
from tests.runtime.learning.support import SAMPLER, Turn, record, trial_of

LONG = [Turn([1], [2, 3, 4])]
SHORT = [Turn([1], [5])]
KL = {"kl": {"coefficient": 0.1}}


def plan(**rules: Any) -> TrainingPlan:
    shape = BatchShape(tasks=2, trials_per_task=4)
    return TrainingPlan.model_validate({"num_batches": 1, "batch": shape.model_dump(), **rules})


def settled(
    members: Sequence[tuple[list[Turn], float | None]],
    rules: dict[str, Any] | None = None,
    **changes: Any,
) -> Settlement:
    """One group of trials with these turns and rewards; `changes` to the first of them."""
    group, wanted = new_id(Prefix.GROUP), plan(**(rules or {}))
    judged: list[Judged] = []
    for index, (turns, reward) in enumerate(members):
        recorded = record(turns)
        trial = trial_of(recorded, reward=reward, group=group, **(changes if not index else {}))
        judged.append(judge(trial, Evidence(recorded.calls), sampler=SAMPLER, plan=wanted))
    return settle(judged, wanted)


def weights(settlement: Settlement) -> list[float]:
    return [row.weight for row in settlement.rows]


@pytest.mark.parametrize(
    ("per_token", "expected"),
    [
        ("planned", [0.5 / 8, -0.5 / 8]),
        ("length", [0.5 / (8 * 3), -0.5 / 8]),
        ("group", [0.5 / (2 * 4), -0.5 / (2 * 4)]),
    ],
)
def test_divisors_are_planned_or_the_groups_own(per_token: str, expected: list[float]) -> None:
    rules = {"advantages": {"per_token": per_token}}
    found = settled([(LONG, 1.0), (SHORT, 0.0)], rules)
    assert weights(found) == pytest.approx(expected)
    assert [row.weight * row.divisor for row in found.rows] == pytest.approx([0.5, -0.5])


def test_std_divides_the_centred_rewards_of_the_group() -> None:
    found = settled([(SHORT, 3.0), (SHORT, 1.0)], {"advantages": {"normalise": "std"}})
    assert weights(found) == [1 / 8, -1 / 8]


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ([(SHORT, 1.0)], "one_member"),
        ([(SHORT, 0.3), (LONG, 0.1 + 0.2)], "zero_variance"),
        ([(SHORT, 0.0), (SHORT, 0.0)], "zero_variance"),
    ],
)
def test_a_group_without_difference_gives_no_reward_gradient_and_is_counted_invariant_5(
    members: list[tuple[list[Turn], float | None]], kind: str
) -> None:
    found = settled(members)
    assert found.rows == ()
    assert found.census[f"groups_{kind}"] == 1
    assert [verdict.advantage for verdict in found.verdicts] == [0.0] * len(members)
    # A term that needs no difference applies all the same, and the reward still gives nothing.
    assert weights(settled(members, KL)) == [0.0] * len(members)


def test_a_group_of_which_everything_is_excluded_gives_nothing_penalty_or_not_invariant_4() -> None:
    for rules in ({}, KL):
        found = settled([(SHORT, None), ([Turn([1], [2], lost=True)], 1.0)], rules)
        assert found.rows == ()
        assert found.census["groups_empty"] == 1
        assert found.census["trials_eligible"] == 0
        assert [verdict.advantage for verdict in found.verdicts] == [None, None]
        assert found.rewards == ()


def test_what_is_excluded_shifts_no_sibling_also_in_the_groups_tokens_invariant_5() -> None:
    rules = {"advantages": {"per_token": "group"}}
    alone = settled([(LONG, 1.0), (SHORT, 0.0)], rules)
    beside = settled([(LONG, 1.0), (SHORT, 0.0), (LONG, None)], rules)
    assert weights(alone) == weights(beside)
    assert beside.census["excluded_no_reward"] == 1


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e31])
def test_a_reward_that_is_no_number_is_excluded_and_poisons_no_sibling_invariant_4(
    reward: float,
) -> None:
    """No record holds one that is not finite; if one did, it would be excluded like this."""
    recorded = record(SHORT)
    trial = trial_of(recorded, reward=0.0)
    assert trial.assessment is not None
    if not math.isfinite(reward):
        with pytest.raises(ValidationError):
            Assessment.model_validate({**trial.assessment.model_dump(), "reward": reward})
    broken = trial.assessment.model_copy(update={"reward": reward})
    found = settled([(SHORT, 0.0), (SHORT, 1.0), (SHORT, 0.0)], assessment=broken)
    assert [verdict.advantage for verdict in found.verdicts] == [None, 0.5, -0.5]
    assert found.verdicts[0].reason == "reward_out_of_range"


def test_an_answer_without_a_token_teaches_nothing_and_hides_none_that_has_some() -> None:
    empty = settled([([Turn([1], [])], 1.0), (SHORT, 0.0), (SHORT, 0.5)])
    assert empty.verdicts[0].reason == "no_interactions"
    assert [verdict.advantage for verdict in empty.verdicts] == [None, -0.25, 0.25]
    beside = settled([([Turn([1], [2]), Turn([3], [], extends=0)], 1.0), (SHORT, 0.0)])
    assert [verdict.eligible for verdict in beside.verdicts] == [True, True]


@pytest.mark.parametrize(
    ("rule", "turn", "reason"),
    [
        ("overlong", Turn([1], [2], stop="length"), "overlong"),
        ("parse_error", Turn([1], [2], parse_error="no tool call"), "parse_error"),
    ],
)
def test_answers_cut_or_unread_are_kept_or_excluded_as_declared(
    rule: str, turn: Turn, reason: str
) -> None:
    members: list[tuple[list[Turn], float | None]] = [([turn], 1.0), (SHORT, 0.0), (SHORT, 0.0)]
    kept = settled(members)
    assert [verdict.eligible for verdict in kept.verdicts] == [True, True, True]
    found = settled(members, {"eligibility": {rule: "exclude"}})
    assert found.verdicts[0].reason is not None
    assert found.verdicts[0].reason.startswith(reason)
    assert found.census[f"excluded_{reason}"] == 1
    assert found.rows == ()  # its siblings do not differ


@pytest.mark.parametrize(
    ("outcome", "rule"),
    [
        (TrialOutcome.AGENT_FAILED, "agent_failed"),
        (TrialOutcome.AGENT_TIMEOUT, "agent_timeout"),
        (TrialOutcome.MISSING_OUTPUT, "missing_output"),
    ],
)
def test_trials_that_ended_badly_are_kept_or_excluded_as_declared(
    outcome: TrialOutcome, rule: str
) -> None:
    members: list[tuple[list[Turn], float | None]] = [(SHORT, 1.0), (SHORT, 0.0)]
    kept = settled(members, {"eligibility": {rule: "keep"}}, outcome=outcome)
    assert kept.verdicts[0].eligible
    found = settled(members, {"eligibility": {rule: "exclude"}}, outcome=outcome)
    assert found.verdicts[0].reason == rule


def test_a_trial_of_which_credit_leaves_nothing_is_excluded_with_that_reason() -> None:
    delegated = [Turn([1], [2], agent="sub")]
    found = settled(
        [(delegated, 1.0), (SHORT, 0.0), (SHORT, 1.0)], {"credit": {"delegated": "exclude"}}
    )
    assert found.verdicts[0].reason == "no_credit"
    assert [verdict.advantage for verdict in found.verdicts] == [None, -0.5, 0.5]


def test_lengths_count_the_tokens_that_learn() -> None:
    turns = [Turn([1], [2], agent="sub"), Turn([9], [3, 4])]
    rules = {"advantages": {"per_token": "length"}, "credit": {"delegated": "exclude"}}
    found = settled([(turns, 1.0), (SHORT, 0.0)], rules)
    assert [row.divisor for row in found.rows] == [8 * 2, 8]
    assert found.census["calls_left_out_delegated"] == 1


def test_evidence_that_is_damaged_is_the_reason_and_not_that_nothing_was_called() -> None:
    recorded = record(SHORT)
    problem = Verdict(Reason.EVIDENCE_MISMATCH, "seal")
    damaged = judge(
        trial_of(recorded, reward=1.0), Evidence((), problem), sampler=SAMPLER, plan=plan()
    )
    empty = judge(trial_of(recorded, reward=1.0), Evidence(), sampler=SAMPLER, plan=plan())
    assert (damaged.verdict, empty.verdict.reason) == (problem, Reason.NO_INTERACTIONS)
    unscored = judge(
        trial_of(recorded, reward=None), Evidence((), problem), sampler=SAMPLER, plan=plan()
    )
    assert unscored.verdict.reason is Reason.NO_REWARD


def test_a_batch_is_what_its_groups_add_up_to() -> None:
    tally = Tally()
    assert (tally.census, tally.measures) == ({}, {})
    tally.add(settled([(LONG, 1.0), (SHORT, 0.0)]))
    tally.add(settled([(SHORT, 4.0), (SHORT, None)]))
    assert tally.census == {
        "groups": 2,
        "groups_learnable": 1,
        "groups_one_member": 1,
        "trials": 4,
        "trials_eligible": 3,
        "excluded_no_reward": 1,
    }
    measures = tally.measures
    assert (measures["reward_mean"], measures["reward_max"]) == (pytest.approx(5 / 3), 4.0)
    assert measures["reward_length_correlation"] == pytest.approx(1.0)
    assert measures["verifier_failure_rate"] == 0.25
    assert measures["trials"] == 4.0


def test_trials_of_several_groups_are_centred_apart_in_the_order_of_their_groups() -> None:
    wanted = plan()
    groups = [new_id(Prefix.GROUP), new_id(Prefix.GROUP)]
    judged: list[Judged] = []
    for group, reward in ((1, 1.0), (0, 9.0), (1, 0.0), (0, 7.0)):
        recorded = record(SHORT)
        trial = trial_of(recorded, reward=reward, group=groups[group])
        judged.append(judge(trial, Evidence(recorded.calls), sampler=SAMPLER, plan=wanted))
    found = settle(judged, wanted)
    assert [row.group for row in found.rows] == [groups[1]] * 2 + [groups[0]] * 2
    assert [verdict.advantage for verdict in found.verdicts] == [0.5, -0.5, 1.0, -1.0]
    assert found.rewards == (1.0, 9.0, 0.0, 7.0)
    assert (found.census["groups"], found.census["groups_learnable"]) == (2, 2)


def test_an_excluded_trial_has_no_tokens_and_its_calls_are_not_counted_as_left_out() -> None:
    delegated = [Turn([1], [2], agent="sub"), Turn([3], [4])]
    rules = {"credit": {"delegated": "exclude"}}
    recorded = record(delegated)
    excluded = judge(
        trial_of(recorded, reward=None),
        Evidence(recorded.calls),
        sampler=SAMPLER,
        plan=plan(**rules),
    )
    assert (excluded.tokens, excluded.left_out) == (0, {"delegated": 1})
    census = settle([excluded], plan(**rules)).census
    assert "calls_left_out_delegated" not in census
    found = settled([(delegated, 1.0), (delegated, 0.0), (delegated, None)], rules)
    assert found.census["calls_left_out_delegated"] == 2
