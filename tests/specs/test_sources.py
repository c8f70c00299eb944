"""Which recorded trials a source selects."""

import pytest
from pydantic import ValidationError

from specs.ids import Prefix, new_id
from specs.sources import RunSource

RUN = new_id(Prefix.RUN)


@pytest.mark.parametrize(
    ("select", "accepted"),
    [
        ("reward >= 1", [1.0, 2.0]),
        ("reward <= 1", [-1.0, 0.0, 1.0]),
        ("reward == 1", [1.0]),
        ("reward > 1", [2.0]),
        ("reward < 1", [-1.0, 0.0]),
        ("reward > -0.5", [0.0, 1.0, 2.0]),
    ],
)
def test_a_condition_selects_what_it_says(select: str, accepted: list[float]) -> None:
    source = RunSource(run=RUN, select=select)
    assert [reward for reward in (-1.0, 0.0, 1.0, 2.0) if source.accepts(reward)] == accepted


@pytest.mark.parametrize("select", ["", "reward", "reward => 1", "score >= 1", "reward >= one"])
def test_any_other_condition_is_refused(select: str) -> None:
    with pytest.raises(ValidationError, match="write it as"):
        RunSource(run=RUN, select=select)
