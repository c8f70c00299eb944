"""Construction plans: what a plan agrees with, what it lacks, and the one order of its steps."""

from typing import Any

import pytest

from specs.construction import (
    METHOD_RUNS,
    PROBING,
    TRANSITIONS,
    WORKING,
    ConstructionBudget,
    ConstructionPlan,
    ConstructionState,
    content,
)
from tests.specs.contracts import DIGEST, lets, refused

PLAN: dict[str, Any] = {"name": "a/p", "goal": "better answers"}
ASSESSMENT: dict[str, Any] = {
    "dataset": "a/held@v1",
    "attempts": 1,
    "baseline": "tiny",
    "success": "more tasks pass",
}
BUDGET: dict[str, Any] = {"trial_slots": 8, "updates": 1, "probe": {}}
WHOLE: dict[str, Any] = PLAN | {
    "model_spec": {"digest": DIGEST},
    "model": "tiny",
    "tools": [],
    "queries": [{"id": "q1", "text": "what?"}],
    "sources": [{"kind": "dataset", "reference": "a/d@v1"}],
    "method": "grpo",
    "reason": "it pays",
    "assessment": ASSESSMENT,
    "budget": BUDGET,
}


def plan(**values: Any) -> ConstructionPlan:
    return ConstructionPlan.model_validate(PLAN | values)


@pytest.mark.parametrize(
    ("field", "whole", "probe", "allowed"),
    [
        ("trial_slots", 8, 2, True),
        ("trial_slots", 8, 3, False),
        ("trial_slots", 0, 0, True),
        ("rows", 100, 25, True),
        ("rows", 100, 26, False),
        ("tokens", 4, 1, True),
        ("tokens", 4, 2, False),
        ("tokens", 4, None, False),
        ("tokens", None, 10**9, True),
        ("tokens", None, None, True),
        ("seconds", 10.0, 2.5, True),
        ("seconds", 10.0, 2.6, False),
        ("seconds", 10.0, None, False),
        ("seconds", 0.0, 0.0, True),
    ],
)
def test_a_probe_may_spend_a_quarter_and_no_more(
    field: str, whole: float | None, probe: float | None, allowed: bool
) -> None:
    values = {"trial_slots": 0, "probe": {field: probe}} | {field: whole}
    if allowed:
        assert getattr(ConstructionBudget.model_validate(values).probe, field) == probe
    else:
        words = refused(ConstructionBudget, values)
        assert f"probe.{field} is at most a quarter of {field}; it is {probe}" in words


def test_the_first_budget_that_is_too_small_for_its_probe_hides_no_other() -> None:
    fine = {"trial_slots": 8, "rows": 8, "probe": {"trial_slots": 2, "rows": 2}}
    assert ConstructionBudget.model_validate(fine).tokens is None
    for field in ("trial_slots", "rows"):
        assert field in refused(ConstructionBudget, fine | {field: 7})


@pytest.mark.parametrize("field", ["queries", "tools"])
def test_a_query_and_a_tool_are_named_once(field: str) -> None:
    names = ("b", "a", "c")
    key = "id" if field == "queries" else "name"
    rows = [{key: name} | ({"text": "?"} if field == "queries" else {}) for name in names]
    assert len(getattr(plan(**{field: rows}), field)) == 3
    what = "query" if field == "queries" else "tool"
    doubled = PLAN | {field: [*rows, rows[0], rows[1]]}
    assert f"the {what} 'a' is there twice" in refused(ConstructionPlan, doubled)


def test_what_is_held_out_is_no_source() -> None:
    sources = [{"kind": "dataset", "reference": f"a/{name}@v1"} for name in ("d", "held")]
    assert plan(sources=sources).assessment is None
    assert plan(sources=sources[:1], assessment=ASSESSMENT).assessment is not None
    words = refused(ConstructionPlan, PLAN | {"sources": sources, "assessment": ASSESSMENT})
    assert "the held-out dataset a/held@v1 is also a source" in words


@pytest.mark.parametrize(
    ("method", "updates", "words"),
    [
        ("none", 0, None),
        ("none", 1, "method none makes no updates"),
        ("supervised", 1, None),
        ("supervised", 0, "method supervised needs budget.updates"),
        ("grpo", 5, None),
        ("grpo", 0, "method grpo needs budget.updates"),
        (None, 0, None),
        (None, 3, None),
    ],
)
def test_a_method_and_its_budget_of_updates_agree(
    method: str | None, updates: int, words: str | None
) -> None:
    values = PLAN | {"method": method, "budget": BUDGET | {"updates": updates}}
    if words is None:
        assert ConstructionPlan.model_validate(values).method == method
    else:
        assert words in refused(ConstructionPlan, values)
    assert plan(method=method).budget is None


@pytest.mark.parametrize(
    ("field", "empty"),
    [
        ("model_spec", None),
        ("model", None),
        ("model", ""),
        ("tools", None),
        ("queries", []),
        ("sources", []),
        ("method", None),
        ("reason", ""),
        ("assessment", None),
        ("budget", None),
    ],
)
def test_a_proposal_lacks_what_is_empty_and_nothing_else(field: str, empty: object) -> None:
    assert ConstructionPlan.model_validate(WHOLE).missing == []
    assert ConstructionPlan.model_validate(WHOLE | {field: empty}).missing == [f"/{field}"]


def test_a_draft_lacks_everything_and_a_profile_alone_needs_no_sources() -> None:
    assert len(plan().missing) == 9
    nothing: dict[str, Any] = WHOLE | {
        "method": "none",
        "sources": [],
        "budget": BUDGET | {"updates": 0},
    }
    assert ConstructionPlan.model_validate(nothing).missing == []


def test_what_is_given_as_it_would_be_anyway_changes_no_digest() -> None:
    assert content(plan()) == content(plan(reason="", queries=[], model=None))
    assert content(plan()) != content(plan(reason="because"))
    assert b'"schema":"practicum.construction-plan/v1"' in content(plan())


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("queries", ["q", "Q1._:-", "q" * 100], ["", "-q", "q" * 101, "a b"]),
        ("goal", ["g", "g" * 4000], ["", "g" * 4001]),
    ],
)
def test_labels_and_words_have_their_form(field: str, good: list[str], bad: list[str]) -> None:
    def value(text: str) -> object:
        return [{"id": text, "text": "?"}] if field == "queries" else text

    assert [text for text in good if not lets(ConstructionPlan, field, value(text))] == []
    assert [text for text in bad if lets(ConstructionPlan, field, value(text))] == []


def test_steps_lead_from_draft_to_finished_in_one_order() -> None:
    state = ConstructionState.DRAFT
    passed = [state]
    for step in ("propose", "probe", "review", "approve", "bulk", "training", "outcome"):
        before, after = TRANSITIONS[step]
        assert state in before, step
        state = after
        passed.append(state)
    assert passed == list(ConstructionState)


@pytest.mark.parametrize("step", TRANSITIONS)
def test_nothing_is_done_to_a_finished_construction(step: str) -> None:
    before, _ = TRANSITIONS[step]
    assert ConstructionState.FINISHED not in before
    assert len(before) == {"revise": 7, "probe": 3, "review": 2, "propose": 1, "approve": 1}.get(
        step, 3
    )


def test_runs_are_admitted_for_a_probe_before_approval_and_for_work_after_it() -> None:
    order = list(ConstructionState)
    approved = order.index(ConstructionState.APPROVED)
    assert set(order[1:approved]) == PROBING
    assert set(order[approved:-1]) == WORKING


def test_only_methods_that_change_weights_have_runs_that_do() -> None:
    assert set(METHOD_RUNS) == {"supervised", "grpo"}
