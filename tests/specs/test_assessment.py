"""Invariant 4: a reward, or the reason why there is none."""

from typing import Any

import pytest

from specs.assessment import Assessment, NoReward
from specs.ids import Prefix, new_id
from tests.specs.contracts import TRIAL, refused

BASE: dict[str, Any] = {"id": new_id(Prefix.ASSESSMENT), "trial": TRIAL, "assessor": "verifier"}


@pytest.mark.parametrize("reward", [0.0, 1.0, -3.5])
def test_a_reward_needs_no_reason_and_zero_is_one(reward: float) -> None:
    found = Assessment.model_validate(BASE | {"reward": reward})
    assert (found.reward, found.reason) == (reward, None)


@pytest.mark.parametrize("reason", NoReward)
def test_a_reason_stands_where_no_reward_is(reason: NoReward) -> None:
    found = Assessment.model_validate(BASE | {"reason": reason})
    assert (found.reward, found.reason, found.rewards) == (None, reason, {})


@pytest.mark.parametrize("both", [{}, {"reward": 0.0, "reason": "cancelled"}])
def test_neither_and_both_are_refused(both: dict[str, Any]) -> None:
    assert "either a reward or a reason" in refused(Assessment, BASE | both)
