"""Objectives: the bounds of clipping, credit, penalty and checks."""

from typing import Any

import pytest
from pydantic import BaseModel

from specs.objective import (
    LOGPROB_DIFFERENCE,
    NO_CHECKS,
    Advantages,
    Checks,
    Clip,
    Credit,
    Eligibility,
    KlPenalty,
)
from tests.specs.contracts import lets


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (Clip, "low", [0, 1], [-0.1, 1.1]),
        (Clip, "high", [1, 1e6], [0.9, 1e6 + 1]),
        (Credit, "discount", [0.01, 1], [0, 1.01]),
        (KlPenalty, "coefficient", [1e-9, 1e3], [0, 1e3 + 1]),
        (KlPenalty, "discount", [0, 1], [-0.1, 1.1]),
        (KlPenalty, "reference", ["b", "b" * 128], ["", "b" * 129]),
        (Checks, "max_logprob_difference", [1e-9, None], [0]),
        (Checks, "max_kl_sample_train", [1e-9, None], [0]),
    ],
)
def test_a_number_has_its_bounds(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []


def test_what_is_left_out_moves_every_call_alike() -> None:
    assert (Advantages().normalise, Advantages().per_token) == ("none", "planned")
    assert (Credit().discount, Credit().delegated, Credit().helpers) == (1, "train", "exclude")
    penalty = KlPenalty(coefficient=0.1)
    assert (penalty.reference, penalty.discount) == ("base", 0)
    kept = {name for name, rule in Eligibility().model_dump().items() if rule == "keep"}
    assert kept == {"overlong", "parse_error", "agent_failed", "agent_timeout"}


def test_only_tokens_of_ones_own_policy_are_checked() -> None:
    assert Checks().max_kl_sample_train == 0.1
    assert NO_CHECKS.max_kl_sample_train is None
    assert NO_CHECKS.max_logprob_difference is None


def test_the_largest_difference_that_is_rounding_is_a_hundredth_and_promised_by_torch_alone() -> (
    None
):
    assert [LOGPROB_DIFFERENCE.get(name) for name in ("torch", "tinker")] == [0.01, None]
