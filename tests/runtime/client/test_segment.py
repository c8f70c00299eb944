"""What is no id never becomes a part of a route."""

import pytest

from runtime.client.segment import segment
from specs.errors import ErrorCode, InvalidInput


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "../runs", "run_1?x=1", "run_1#x", "run_1/", "a b", "a\nb", "%2e", "x" * 999],
)
def test_what_could_name_another_route_is_refused_by_its_own_name(value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        segment(value)
    problem = refused.value.problem
    assert problem.code is ErrorCode.INVALID_REFERENCE
    assert problem.object is not None
    assert problem.object.id == value[:200]


@pytest.mark.parametrize("value", ["run_01a22b6f", "sha256:" + "0" * 64, "con_" + "f" * 32])
def test_ids_short_forms_and_digests_pass(value: str) -> None:
    assert segment(value) == value
