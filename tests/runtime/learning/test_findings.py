"""A check counts what it compares, and lists as many violations as a report may hold."""

from runtime.learning.findings import Finding
from specs.verify import MAX_VIOLATIONS


def finding() -> Finding:
    return Finding("some.check", 3, "something holds")


def test_every_comparison_counts_and_what_does_not_hold_is_kept() -> None:
    made = finding()
    assert (made.expect(True, "not kept"), made.expect(False, "kept")) == (True, False)
    assert (made.equal("one", 1, 1), made.equal("two", 1, "1")) == (True, False)
    result = made.result()
    assert (result.id, result.invariant, result.promise) == ("some.check", 3, "something holds")
    assert (result.checked, result.violated, result.skipped) == (4, 2, None)
    assert result.violations == ("kept", "two: recorded 1, derived '1'")


def test_a_report_lists_the_first_violations_cut_and_counts_them_all() -> None:
    made = finding()
    made.skipped = "for a reason"
    for number in range(MAX_VIOLATIONS + 1):
        made.expect(False, f"{number}" + "x" * 2000)
    result = made.result()
    assert (result.violated, len(result.violations)) == (MAX_VIOLATIONS + 1, MAX_VIOLATIONS)
    assert [len(text) for text in result.violations] == [1000] * MAX_VIOLATIONS
    assert result.violations[0].startswith("0x")
    assert result.skipped == "for a reason"
