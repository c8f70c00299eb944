"""Verdicts: each reason by its case, in the order of the checks (invariants 2, 4, 5)."""

import math
from dataclasses import replace
from typing import Any

import pytest

from runtime.learning.eligibility import Reason, for_imitation, for_reinforcement
from specs.assessment import NoReward
from specs.ids import Prefix, new_id
from specs.interaction import Interaction
from specs.objective import Eligibility
from specs.records import Trial, TrialOutcome, TrialState
from tests.runtime.learning.support import SAMPLER, Recorded, Turn, record, trial_of

GOOD = Turn([1, 2], [3, 4])
RULES = Eligibility()


def verdict(trial: Trial, recorded: Recorded, rules: Eligibility = RULES) -> str | None:
    return for_reinforcement(trial, recorded.calls, sampler=SAMPLER, rules=rules).text


@pytest.mark.parametrize("reward", [1.0, 0.0, -2.5])
def test_any_valid_reward_is_eligible_zero_included_invariant_4(reward: float) -> None:
    recorded = record([GOOD])
    assert verdict(trial_of(recorded, reward=reward), recorded) is None


@pytest.mark.parametrize("reason", list(NoReward))
def test_a_missing_reward_is_never_eligible_and_keeps_its_reason_invariant_4(
    reason: NoReward,
) -> None:
    recorded = record([GOOD])
    trial = trial_of(recorded, reward=None, reason=reason)
    assert verdict(trial, recorded) == f"no_reward: {reason}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"state": TrialState.OPEN, "settled": None}, "not_settled"),
        ({"outcome": TrialOutcome.CANCELLED}, "cancelled"),
        ({"outcome": TrialOutcome.LAUNCH_FAILED}, "launch_failed"),
        ({"outcome": TrialOutcome.INFRASTRUCTURE}, "infrastructure"),
        ({"assessment": None}, "no_reward: not_assessed"),
        ({"reward": 1e31}, "reward_out_of_range"),
        ({"fence": 2}, "evidence_mismatch: seal"),
        ({"run": new_id(Prefix.RUN)}, "evidence_mismatch: seal"),
    ],
)
def test_a_trial_that_did_no_assessed_work_of_its_own_is_excluded(
    changes: dict[str, Any], expected: str
) -> None:
    recorded = record([GOOD])
    assert verdict(trial_of(recorded, **changes), recorded) == expected


@pytest.mark.parametrize("outcome", [TrialOutcome.AGENT_FAILED, TrialOutcome.AGENT_TIMEOUT])
def test_work_that_ended_badly_but_was_assessed_learns(outcome: TrialOutcome) -> None:
    recorded = record([GOOD])
    assert verdict(trial_of(recorded, outcome=outcome), recorded) is None


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (Turn([1], [3], lost=True), Reason.EVIDENCE_INCOMPLETE),
        (Turn([1], [3], superseded=True), Reason.NO_INTERACTIONS),
        (Turn([1], [3], provenance="scripted"), Reason.NOT_SAMPLED),
        (Turn([1], [3], provenance="upstream"), Reason.NOT_SAMPLED),
        (Turn([1], [3], temperature=0.7), Reason.SAMPLING_ALTERED),
        (Turn([1], [3], top_p=0.9), Reason.SAMPLING_ALTERED),
        (Turn([1], [3], top_k=40), Reason.SAMPLING_ALTERED),
        (Turn([1], [3], sampler=new_id(Prefix.SAMPLER)), Reason.WRONG_SAMPLER),
        (Turn([1], [3], logprobs=None), Reason.LOGPROBS_MISSING),
        (Turn([1], [3], logprobs=[-1.0, -1.0]), Reason.LOGPROBS_MISALIGNED),
        (Turn([1], [3], logprobs=[math.nan]), Reason.LOGPROBS_NOT_FINITE),
        (Turn([1], [3], logprobs=[-math.inf]), Reason.LOGPROBS_NOT_FINITE),
    ],
)
def test_evidence_that_gives_no_importance_ratio_is_excluded(turn: Turn, reason: Reason) -> None:
    recorded = record([turn])
    found = for_reinforcement(trial_of(recorded), recorded.calls, sampler=SAMPLER, rules=RULES)
    assert found.reason is reason


def test_one_bad_call_among_good_ones_excludes_the_trial() -> None:
    recorded = record([GOOD, Turn([7], [8], extends=0, temperature=0.5)])
    assert verdict(trial_of(recorded), recorded) is not None


def test_no_seal_means_incomplete_and_no_call_means_no_interactions() -> None:
    recorded = record([GOOD])
    assert verdict(trial_of(None), recorded) == "evidence_incomplete"
    empty = record([])
    assert verdict(trial_of(empty), empty) == "no_interactions"


def test_calls_of_another_trial_are_not_this_trials_evidence() -> None:
    mine, other = record([GOOD]), record([GOOD])
    calls: tuple[Interaction, ...] = other.calls
    found = for_reinforcement(trial_of(mine), calls, sampler=SAMPLER, rules=RULES)
    assert found.reason is Reason.EVIDENCE_MISMATCH


@pytest.mark.parametrize(("rule", "expected"), [("exclude", "overlong"), ("keep", None)])
def test_an_answer_cut_at_max_tokens_follows_the_plan(rule: Any, expected: str | None) -> None:
    recorded = record([Turn([1], [3], stop="length")])
    assert verdict(trial_of(recorded), recorded, Eligibility(overlong=rule)) == expected


@pytest.mark.parametrize(("rule", "expected"), [("exclude", "missing_output"), ("keep", None)])
def test_a_missing_required_output_follows_the_plan(rule: Any, expected: str | None) -> None:
    recorded = record([GOOD])
    trial = trial_of(recorded, outcome=TrialOutcome.MISSING_OUTPUT)
    assert verdict(trial, recorded, Eligibility(missing_output=rule)) == expected


def test_imitation_takes_tokens_of_any_provenance_and_sampling() -> None:
    recorded = record([Turn([1], [3], provenance="scripted", logprobs=None, temperature=0.2)])
    assert for_imitation(trial_of(recorded), recorded.calls).eligible


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (2.0**52, None),
        (-(2.0**52), None),
        (2.0**52 + 1, "reward_out_of_range"),
        (-1e31, "reward_out_of_range"),
    ],
)
def test_a_reward_is_in_range_up_to_its_bound(reward: float, expected: str | None) -> None:
    recorded = record([GOOD])
    assert verdict(trial_of(recorded, reward=reward), recorded) == expected


def test_the_first_reason_that_applies_is_recorded_with_what_it_is_about() -> None:
    """Each trial has two; the verdict names the earlier check, and the call where one is meant."""
    recorded = record([GOOD, Turn([7], [8], extends=0, temperature=0.5)])
    first, second = (call.intent.interaction for call in recorded.calls)
    assert verdict(trial_of(recorded), recorded) == f"sampling_altered: {second}"
    unscored = trial_of(recorded, reward=None, outcome=TrialOutcome.CANCELLED)
    assert verdict(unscored, recorded) == "cancelled"
    both = record([Turn([1], [3], parse_error="?", stop="length")])
    rules = Eligibility(overlong="exclude", parse_error="exclude")
    assert verdict(trial_of(both), both, rules) == "overlong"
    unread = Eligibility(parse_error="exclude")
    assert verdict(trial_of(both), both, unread) == (
        f"parse_error: {both.calls[0].intent.interaction}"
    )
    assert verdict(trial_of(recorded, fence=2), recorded) == "evidence_mismatch: seal"
    other = trial_of(recorded)
    assert other.settled is not None
    assert other.settled.seal is not None
    calls = [
        replace(recorded.calls[0], intent=recorded.calls[0].intent.model_copy(update=changes))
        for changes in ({"fence": 9}, {"trial": new_id(Prefix.TRIAL)})
    ]
    for call in calls:
        found = for_imitation(other, [recorded.calls[1], call])
        assert found.text == f"evidence_mismatch: {first}"


def test_a_seal_that_is_not_complete_is_enough_to_exclude_invariant_2() -> None:
    recorded = record([GOOD])
    trial = trial_of(recorded)
    assert trial.settled is not None
    seal = recorded.seal.model_copy(update={"complete": False})
    settled = trial.settled.model_copy(update={"seal": seal})
    changed = trial.model_copy(update={"settled": settled})
    assert verdict(changed, recorded) == "evidence_incomplete"
    opened = trial_of(recorded, state=TrialState.ABANDONED)
    assert verdict(opened, recorded) == "not_settled"
