"""Hints about the reward, by hand."""

from dataclasses import replace

import pytest

from runtime.learning.hints import Attempt, hints_of
from specs.assessment import Assessment, NoReward
from specs.ids import Prefix, new_id
from specs.records import Trial
from tests.runtime.learning.support import Turn, record, trial_of

A, B = new_id(Prefix.GROUP), new_id(Prefix.GROUP)
X, Y = ("sha256:" + letter * 64 for letter in "ab")


def attempt(
    reward: float | None,
    tokens: int = 1,
    *,
    group: str = A,
    files: dict[str, str] | None = None,
    reason: NoReward | None = None,
) -> Attempt:
    trial: Trial = trial_of(record([Turn([1], [2])]), reward=reward, reason=reason, group=group)
    assert trial.assessment is not None
    assessed: Assessment = trial.assessment.model_copy(update={"artifacts": files or {}})
    trial = trial.model_copy(update={"assessment": assessed})
    return Attempt(trial, tokens, eligible=reward is not None)


def test_reward_and_length_correlate_within_groups_not_between_them() -> None:
    longer = [attempt(0, 10), attempt(1, 20), attempt(0.5, 15)]
    assert hints_of(longer).measures()["reward_length_correlation"] == pytest.approx(1)
    # A hard task with long answers and an easy one with short ones say nothing by themselves.
    apart = [attempt(0, 100), attempt(0, 100), attempt(1, 5, group=B), attempt(1, 5, group=B)]
    assert "reward_length_correlation" not in hints_of(apart).measures()
    both = hints_of([*longer, attempt(1, 5, group=B), attempt(0, 15, group=B)])
    x = [-0.5, 0.5, 0, 0.5, -0.5]
    y = [-5, 5, 0, -5, 5]
    expected = sum(a * b for a, b in zip(x, y, strict=True)) / (sum(a * a for a in x) * 100) ** 0.5
    assert both.measures()["reward_length_correlation"] == pytest.approx(expected)


def test_the_same_files_with_other_rewards_are_the_verifiers_own_chance() -> None:
    log = {"session/1.jsonl": X}
    group = [
        attempt(1, files={"out": X, **log}),
        attempt(0, files={"out": X, "session/2.jsonl": Y}),
        attempt(1, files={"out": X}),
        attempt(0, files={"out": Y}),
        attempt(0, files=log),  # left nothing but its log
        attempt(0, files={"out": X}, group=B),
    ]
    assert hints_of(group).measures()["verifier_disagreement"] == pytest.approx(2 / 3)


def test_only_what_the_verifier_could_not_do_is_its_failure_invariant_4() -> None:
    group = [
        attempt(0.0),
        attempt(None, reason=NoReward.VERIFIER_FAILED),
        attempt(None, reason=NoReward.REWARD_MALFORMED),
        attempt(None, reason=NoReward.INFRASTRUCTURE),
        attempt(None, reason=NoReward.CANCELLED),
    ]
    assert hints_of(group).measures() == {"verifier_failure_rate": pytest.approx(2 / 3)}


def test_hints_of_groups_add_up_to_those_of_the_batch() -> None:
    one = [attempt(0, 3), attempt(1, 9, files={"out": X}), attempt(0, 4, files={"out": X})]
    two = [attempt(1, 2, group=B), attempt(0.25, 8, group=B)]
    assert (hints_of(one) + hints_of(two)).measures() == pytest.approx(
        hints_of([*one, *two]).measures()
    )


def test_what_cannot_be_said_is_absent() -> None:
    assert hints_of([]).measures() == {}
    same = [attempt(1, 5), attempt(1, 9)]  # no difference in reward
    even = [attempt(0, 5), attempt(1, 5)]  # none in length
    for group in (same, even):
        assert hints_of(group).measures() == {"verifier_failure_rate": 0.0}
    shorter = hints_of([attempt(0, 9), attempt(1, 5)]).measures()
    assert shorter["reward_length_correlation"] == pytest.approx(-1)


def test_only_eligible_trials_correlate_and_only_scored_ones_are_compared() -> None:
    aside = replace(attempt(1, 1), eligible=False)
    group = [attempt(0, 10), attempt(1, 20), aside]
    assert hints_of(group).measures()["reward_length_correlation"] == pytest.approx(1)
    unscored = [
        attempt(None, files={"out": X}, reason=NoReward.REWARD_MISSING),
        attempt(1, files={"out": X}),
    ]
    found = hints_of(unscored).measures()
    assert found == {"verifier_failure_rate": 0.5}
    unassessed = Attempt(aside.trial.model_copy(update={"assessment": None}), 1, eligible=True)
    assert hints_of([unassessed]).measures() == {}
    agreeing = [attempt(1, files={"out": X}), attempt(1, files={"out": X})]
    assert hints_of(agreeing).measures()["verifier_disagreement"] == 0.0
