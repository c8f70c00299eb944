"""The teacher of the native loop solves the practice tasks of its families as they stand."""

import json
from pathlib import Path
from typing import Any

from runtime.compute.scenario import read_scenario
from scripts.native_loop import FAMILIES, SMOKE
from specs.plans import parse_plan
from specs.profile import Profile

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NATIVE = EXAMPLES / "native"


def test_the_teacher_looks_and_then_does_what_the_solution_does() -> None:
    scenario = json.loads((NATIVE / "scenarios" / "demos.json").read_text())
    read_scenario((NATIVE / "scenarios" / "demos.json").read_bytes())
    tasks = [
        folder
        for family in FAMILIES
        for folder in (EXAMPLES / "shell-practice").glob(f"*-{family}")
    ]
    assert {f"practicum-examples/{task.name}" for task in tasks} == scenario["replies"].keys()
    for task in tasks:
        *calls, last = scenario["replies"][f"practicum-examples/{task.name}"]
        commands = [call["calls"][0]["input"]["command"] for call in calls]
        solution = (task / "solution" / "solve.sh").read_text().splitlines()[3:]
        assert commands[-len(solution) :] == solution
        assert (len(commands), last) == (2, {"text": "Done."})


def test_the_learner_differs_from_the_teacher_in_its_model_alone() -> None:
    learner, teacher = (read_profile(name) for name in ("learner", "teacher"))
    assert {**learner["agent"], "model": ""} == {**teacher["agent"], "model": ""}


def read_profile(name: str) -> dict[str, Any]:
    text = (NATIVE / "profiles" / f"{name}.json").read_text()
    Profile.model_validate_json(text)
    return json.loads(text)


def test_every_plan_is_one_also_for_a_smoke_run() -> None:
    for name, changes in SMOKE.items():
        plan = json.loads((NATIVE / "plans" / f"{name}.json").read_text())
        parse_plan(plan)
        parse_plan(plan | changes)
