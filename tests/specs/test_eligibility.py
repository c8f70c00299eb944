"""What a call's own record says about learning from it, in the order of the checks."""

import math
from array import array
from typing import Any

import pytest

from specs.eligibility import Unfit, unfit
from specs.interaction import CallState, Delivery
from tests.specs.calls import call

ABORTED: dict[str, Any] = {"state": CallState.SUPERSEDED, "delivery": Delivery.ABORTED}
FINE: dict[str, Any] = {}
LOST: dict[str, Any] = {"state": CallState.LOST, "provenance": None}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (FINE, None),
        (LOST, Unfit.LOST),
        (LOST | {"output": array("i")}, Unfit.LOST),
        ({"output": array("i")}, Unfit.NO_TOKENS),
        ({"output": array("i"), "replaced": True}, Unfit.NO_TOKENS),
        ({"replaced": True}, Unfit.EMPTY_REPLY),
        (ABORTED | {"replaced": True}, Unfit.EMPTY_REPLY),
        (ABORTED, Unfit.NOT_DELIVERED),
        (ABORTED | {"delivery": Delivery.SETTLED}, None),
        ({"provenance": "scripted"}, Unfit.NOT_SAMPLED),
        ({"provenance": "upstream"}, Unfit.NOT_SAMPLED),
        ({"provenance": None}, Unfit.NOT_SAMPLED),
        ({"sampling": {"temperature": 0.99}}, Unfit.SAMPLING_ALTERED),
        ({"sampling": {"temperature": 1.01}}, Unfit.SAMPLING_ALTERED),
        ({"sampling": {"top_p": 0.99}}, Unfit.SAMPLING_ALTERED),
        ({"sampling": {"top_p": 1.01}}, Unfit.SAMPLING_ALTERED),
        ({"sampling": {"top_k": 1}}, Unfit.SAMPLING_ALTERED),
        ({"sampling": {"top_k": 0}}, None),
        ({"logprobs": None}, Unfit.LOGPROBS_MISSING),
        ({"logprobs": array("f", [-1.0])}, Unfit.LOGPROBS_MISALIGNED),
        ({"logprobs": array("f", [-1.0] * 3)}, Unfit.LOGPROBS_MISALIGNED),
        ({"logprobs": array("f", [-1.0, -math.inf])}, Unfit.LOGPROBS_NOT_FINITE),
        ({"logprobs": array("f", [math.nan, -1.0])}, Unfit.LOGPROBS_NOT_FINITE),
    ],
)
def test_a_call_is_learnt_from_or_the_first_reason_is_named(
    values: dict[str, Any], expected: Unfit | None
) -> None:
    assert unfit(call(**values), extended=False) is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (FINE, None),
        (ABORTED, None),
        ({"replaced": True}, None),
        (LOST, Unfit.LOST),
        ({"output": array("i")}, Unfit.NO_TOKENS),
        (ABORTED | {"logprobs": None}, Unfit.LOGPROBS_MISSING),
    ],
)
def test_an_answer_that_another_call_goes_on_from_had_arrived(
    values: dict[str, Any], expected: Unfit | None
) -> None:
    assert unfit(call(**values), extended=True) is expected
