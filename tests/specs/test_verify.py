"""The report of `run verify`: a bounded list, beside the count of all."""

import pytest

from specs.verify import Check
from tests.specs.contracts import lets


@pytest.mark.parametrize(("listed", "allowed"), [(0, True), (50, True), (51, False)])
def test_fifty_violations_of_a_check_are_listed(listed: int, allowed: bool) -> None:
    assert lets(Check, "violations", ["x"] * listed) == allowed


def test_a_check_that_found_nothing_says_so() -> None:
    check = Check(id="a", invariant=None, promise="it holds", checked=3)
    assert (check.violated, check.violations, check.skipped) == (0, (), None)
