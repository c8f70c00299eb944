"""Each promise of an episode's workflow, by the fact that breaks it alone.

`honest.json` holds the facts of an episode as it was recorded on a stack; every test changes one
thing about them.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.research.facts import Facts
from runtime.research.verdict import verdict
from specs import canonical
from specs.episode import PROMISES

HONEST: dict[str, Any] = canonical.loads(
    Path(__file__).with_name("honest.json").read_bytes(), what="facts"
)  # type: ignore[assignment]
OTHER = "sha256:" + "7" * 64

type Change = Callable[[dict[str, Any]], object]


def facts(*changes: Change) -> Facts:
    document = copy.deepcopy(HONEST)
    for change in changes:
        change(document)
    return Facts.model_validate(document)


def run_of(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(run for run in document["runs"].values() if run["kind"] == kind)


def without_step(kind: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        steps: list[dict[str, Any]] = document["construction"]["steps"]
        document["construction"]["steps"] = [step for step in steps if step["kind"] != kind]

    return change


def put(*path: str | int, to: Any) -> Change:
    """Another value at a place."""

    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = to

    return change


def finding(part: str, cause: str) -> dict[str, Any]:
    return {"row": 3, "id": None, "message": 1, "part": part, "cause": cause, "detail": "x"}


def in_run(kind: str, *path: str | int, to: Any) -> Change:
    return lambda document: put(*path, to=to)(run_of(document, kind))


def in_side(side: str, field: str, to: Any) -> Change:
    return put("comparison", "comparison", side, field, to=to)


def journal(keep: Callable[[dict[str, Any]], bool]) -> Change:
    def change(document: dict[str, Any]) -> None:
        entries = document["journal"]["entries"]
        document["journal"]["entries"] = [entry for entry in entries if keep(entry)]

    return change


def unlinked(document: dict[str, Any]) -> None:
    for entry in document["journal"]["entries"]:
        entry["links"] = [link for link in entry["links"] if link["type"] != "checkpoint"]


def swapped(document: dict[str, Any]) -> None:
    """The bulk data recorded before the probe."""
    steps = {step["kind"]: step for step in document["construction"]["steps"]}
    steps["bulk"]["seq"], steps["probe"]["seq"] = steps["probe"]["seq"], steps["bulk"]["seq"]
    ordered: list[dict[str, Any]] = document["construction"]["steps"]
    ordered.sort(key=lambda step: step["seq"])


def needing_no_weights(document: dict[str, Any]) -> None:
    plan = document["construction"]["plan"]
    plan["method"], plan["budget"]["updates"] = "none", 0


def started_early(document: dict[str, Any]) -> None:
    run_of(document, "supervised")["created_at"] = document["construction"]["created_at"]


def elsewhere(document: dict[str, Any]) -> None:
    """A run of the agent's own that no construction knows of."""
    run = run_of(document, "supervised")
    run["construction"] = None
    document["own"] = list(document["runs"])


BREAKS: list[tuple[str, Change, str]] = [
    ("outcome", put("problems", to=["the outcome cannot be used"]), "cannot be used"),
    ("outcome", put("began", to="2099-01-01T00:00:00.000000Z"), "older than this episode"),
    ("outcome", put("construction", "state", to="training"), "is training, not finished"),
    ("outcome", put("own", to=[]), "was started by somebody else"),
    ("approval", put("construction", "approver", to=None), "never approved"),
    (
        "approval",
        put("construction", "approver", to={"kind": "person", "name": "Ada"}),
        "approved as a person (Ada); this episode takes policy",
    ),
    ("probe", without_step("probe"), "no probe was recorded"),
    ("probe", without_step("bulk"), "no bulk data was recorded"),
    ("probe", swapped, "bulk was recorded before probe"),
    ("probe", started_early, "was started before approval"),
    (
        "probe",
        put("construction", "probe_spend", "spent", "rows", to=99),
        "the probe spent 99 rows",
    ),
    ("review", put("construction", "review", to=None), "was not reviewed"),
    ("review", put("sub_agents", to=[]), "its author's own word"),
    ("review", put("sub_agents", 0, "kind", to="practicum:trainer"), "its author's own word"),
    ("review", put("sub_agents", 0, "began", to="2099-01-01T00:00:00.000000Z"), "own word"),
    ("review", put("sub_agents", 0, "looked_at", to="ls"), "never looked at the probe"),
    ("data", put("rows", 0, "findings", to=[finding("tools", "tool_unknown")]), "row 3: tool_"),
    ("data", put("rows", 0, "readable", to=False), "cannot be checked"),
    ("data", put("rows", 0, "digest", to=OTHER), "never recorded as bulk data"),
    ("data", put("spec_digest", to=OTHER), "is not the plan's"),
    ("data", put("construction", "plan", "model_spec", to=None), "names no model specification"),
    (
        "held_out",
        put("rows", 0, "findings", to=[finding("held_out", "held_out_task")]),
        "row 3: held_out_task",
    ),
    ("held_out", put("held_out", to={}), "cannot be read"),
    ("training", in_run("supervised", "state", to="failed"), "has completed: run_"),
    ("training", without_step("training"), "never recorded as training"),
    ("training", put("construction", "plan", "method", to="grpo"), "approved method is grpo"),
    ("training", needing_no_weights, "the method is none"),
    ("checkpoint", without_step("outcome"), "no outcome was recorded"),
    ("checkpoint", put("checkpoint", to=None), "does not exist"),
    ("checkpoint", put("checkpoint", "deleted_at", to="2026-01-01"), "or no longer"),
    ("checkpoint", put("checkpoint", "run", to="run_" + "0" * 32), "which is no training run"),
    ("checkpoint", put("checkpoint", "base_model", to="another"), "not the baseline"),
    ("evaluation", put("comparison", to=None), "no comparison with the baseline is recorded"),
    ("evaluation", in_side("candidate", "model", "tiny"), "the comparison is about tiny"),
    ("evaluation", in_side("baseline", "model", "other"), "the baseline of the comparison is"),
    ("evaluation", in_side("candidate", "attempts_unscored", 1), "have no reward"),
    ("evaluation", in_side("candidate", "run", "run_" + "0" * 32), "no evaluation that can"),
    ("evaluation", put("comparison", "comparison", "expected", to=False), "more than one thing"),
    (
        "evaluation",
        put("comparison", "comparison", "filters", to={"family": ["copy"]}),
        "leaves tasks out: family",
    ),
    ("evaluation", in_run("evaluation", "state", to="cancelled"), "is cancelled"),
    ("evaluation", put("held_out_digest", to=OTHER), "not of practicum-examples/"),
    ("evaluation", put("episode", "attempts", to=2), "has 1 attempts at a task"),
    ("journal", put("journal", to=None), "there is no journal"),
    ("journal", put("journal", "problems", to=["damaged at byte 7"]), "damaged at byte 7"),
    ("journal", journal(lambda one: one["kind"] != "comparison"), "no entry of kind comparison"),
    ("journal", unlinked, "no entry links checkpoint:ckp_"),
    ("budget", put("episode", "budget", "rows", to=3), "the episode allows 3"),
    ("budget", elsewhere, "was started outside of con_"),
]


def test_an_episode_as_it_was_recorded_keeps_every_promise() -> None:
    report = verdict(facts())
    assert report.reasons == ()
    assert (report.ok, report.reward, report.result) == (True, 1, "checkpoint")
    assert [check.id for check in report.checks] == list(PROMISES)
    assert report.quality is not None and report.quality.difference is not None


@pytest.mark.parametrize(("check", "change", "cause"), BREAKS)
def test_what_breaks_a_promise_is_named_and_costs_the_reward(
    check: str, change: Change, cause: str
) -> None:
    report = verdict(facts(change))
    assert report.reward == 0
    causes = {one.id: one.causes for one in report.checks}
    assert any(cause in text for text in causes[check]), report.reasons  # type: ignore[index]


def test_every_promise_is_broken_by_some_fact() -> None:
    assert {check for check, _, _ in BREAKS} == set(PROMISES)


def test_quality_is_no_part_of_the_reward() -> None:
    worse = {"estimate": -1.0, "low": -1.0, "high": -0.5, "n": 2, "clusters": 2}
    path = ("comparison", "comparison")
    report = verdict(facts(put(*path, "difference", to=worse), put(*path, "verdict", to="worse")))
    assert report.reward == 1
    assert report.quality is not None and report.quality.verdict == "worse"


def test_an_episode_without_a_construction_fails_and_says_so() -> None:
    report = verdict(facts(put("construction", to=None), put("comparison", to=None)))
    assert report.reward == 0
    assert (report.construction, report.checkpoint, report.quality) == (None, None, None)
    assert "outcome: there is no construction" in report.reasons
