"""Invariant 4: what a trial's steps add up to is a number that a record can hold, or a reason."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from runtime.execution.board import Board, Verdict
from runtime.execution.conclude import conclude
from specs.assessment import NoReward
from specs.records import TrialOutcome

if TYPE_CHECKING:
    from harbor.models.trial.result import TrialResult


def of_steps(rewards: dict[str, Any] | None) -> Verdict:
    """The verdict on a task with steps, whose rewards Harbor has combined."""
    combined = None if rewards is None else SimpleNamespace(rewards=rewards)
    result = SimpleNamespace(
        exception_info=None, agent_execution=None, step_results=["one"], verifier_result=combined
    )
    board = Board("trl_1", 30.0)
    board.end(TrialOutcome.COMPLETED)
    return conclude(board, cast("TrialResult", result), scored=True)


@pytest.mark.parametrize(
    ("rewards", "reward"),
    [({"reward": 1.5, "style": -1}, 1.5), ({"score": 0}, 0.0), ({"reward": 2**53 - 1}, 2**53 - 1)],
    ids=["by name", "the only one", "the largest"],
)
def test_steps_that_left_numbers_have_a_reward(rewards: dict[str, Any], reward: float) -> None:
    assert (of_steps(rewards).reward, of_steps(rewards).reason) == (reward, None)


@pytest.mark.parametrize(
    "rewards",
    [
        {"reward": 2.0**53},
        {"reward": 1, "style": -1e16},
        {"reward": 10**400},
        {"reward": float("inf")},
        {"reward": float("nan")},
        {"a": 1, "b": 2},
    ],
    ids=["too large", "a part too large", "no float", "infinite", "no number", "no main one"],
)
def test_invariant_4_steps_whose_rewards_no_record_can_hold_are_malformed(
    rewards: dict[str, Any],
) -> None:
    verdict = of_steps(rewards)
    assert (verdict.reward, verdict.reason) == (None, NoReward.REWARD_MALFORMED)
    assert verdict.detail


def test_invariant_4_steps_that_left_nothing_have_no_reward() -> None:
    assert of_steps(None).reason == NoReward.REWARD_MISSING
