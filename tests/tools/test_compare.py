"""A comparison is paired by task, leaves out what has no reward, and says what else differs."""

from typing import Any

import pytest

from specs.canonical import digest
from specs.run import Run, RunResult
from tools.compare import compare_results, task_means
from tools.differences import differences

SHA = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64
FAMILIES = {"t/a": "copy", "t/b": "copy", "t/c": "sort"}

type Rewards = dict[str, list[float | None]]


def run_id(number: int) -> str:
    return f"run_{number:032x}"


def a_run(number: int, **changes: Any) -> Run:
    """A completed evaluation of three tasks."""
    plan = {"kind": "evaluation", "trials_per_task": 2, **changes.pop("plan", {})}
    spec = {
        "id": run_id(number),
        "dataset": "t/held-out@v1",
        "dataset_digest": changes.pop("dataset_digest", SHA),
        "tasks": [
            {"name": name, "digest": SHA, "size": 1, "metadata": {"family": family}}
            for name, family in FAMILIES.items()
        ],
        "actor_name": "t/agent",
        "actor": SHA,
        "plan": plan,
        "plan_digest": digest(plan),
        "sampler": {
            "id": "smp_" + "0" * 32,
            "backend": "torch",
            "base_model": "tiny",
            "base_digest": SHA,
            "tokenizer_digest": SHA,
            "renderer": "chatml/1",
        },
    }
    return Run.model_validate(
        {
            "id": run_id(number),
            "kind": "evaluation",
            "state": "completed",
            "created_at": "2026-01-01T00:00:00Z",
            "dataset": "t/held-out@v1",
            "actor_name": "t/agent",
            "model": "tiny",
            "last_event": 9,
            "spec": spec,
            **changes,
        }
    )


def a_result(number: int, by_task: Rewards, environment: str = SHA) -> RunResult:
    counts = dict.fromkeys(
        (
            "planned_slots",
            "trials_started",
            "trials_settled",
            "trials_scored",
            "trials_eligible",
            "trials_abandoned",
            "launch_failed",
            "distinct_tasks",
            "batches",
            "prompt_tokens",
            "output_tokens",
        ),
        0,
    )
    return RunResult.model_validate(
        {
            **counts,
            "run": run_id(number),
            "kind": "evaluation",
            "state": "completed",
            "updates": {},
            "checkpoints": [],
            "reward_mean": None,
            "success": None,
            "by_task": by_task,
            "by_family": {},
            "environment_versions": [environment],
            "seconds": 1.0,
        }
    )


BEFORE: Rewards = {"t/a": [0, 0], "t/b": [1, 0], "t/c": [0, None]}
AFTER: Rewards = {"t/a": [1, 1], "t/b": [1, 0], "t/c": [1, 1]}


def test_attempts_are_averaged_before_tasks_are_paired() -> None:
    found = compare_results(
        [a_run(1), a_run(2)], [a_result(1, BEFORE), a_result(2, AFTER)], [], 0.95
    )
    assert found.difference is not None
    assert found.difference.estimate == pytest.approx((1 + 0 + 1) / 3)
    assert (found.improved, found.equal, found.worse) == (2, 1, 0)
    assert found.baseline.success == pytest.approx(0.5 / 3)
    assert (found.baseline.attempts_scored, found.baseline.attempts_unscored) == (5, 1)
    assert [(row.family, row.difference.n) for row in found.by_family] == [("copy", 2), ("sort", 1)]
    assert found.caveats == []


def test_a_task_without_a_reward_on_one_side_is_not_compared() -> None:
    """Invariant 4: a missing reward is not a zero."""
    missing: Rewards = {**BEFORE, "t/c": [None, None]}
    found = compare_results(
        [a_run(1), a_run(2)], [a_result(1, missing), a_result(2, AFTER)], [], 0.95
    )
    assert (found.tasks, found.only_candidate) == (2, ["t/c"])
    assert task_means(a_result(1, missing)) == {"t/a": 0, "t/b": 0.5}


def test_no_common_task_has_no_difference() -> None:
    found = compare_results(
        [a_run(1), a_run(2)], [a_result(1, {"t/a": [1]}), a_result(2, {"t/b": [1]})], [], 0.95
    )
    assert (found.difference, found.tasks) == (None, 0)


def test_what_else_differs_is_said() -> None:
    recipe = differences({"agent": {"args": ["a"]}}, {"agent": {"args": ["b"]}})
    found = compare_results(
        [a_run(1), a_run(2, dataset_digest=OTHER, plan={"limits": {"max_calls": 1}})],
        [a_result(1, BEFORE), a_result(2, AFTER, OTHER)],
        recipe,
        0.95,
    )
    same = (found.same_dataset, found.same_environment, found.same_plan, found.same_recipe)
    assert same == (False, False, False, False)
    assert len(found.caveats) == 4
    assert "/agent/args/0" in found.caveats[3]


def test_another_seed_is_the_same_plan_and_a_running_side_is_noted() -> None:
    found = compare_results(
        [a_run(1), a_run(2, plan={"seed": 7}, state="running")],
        [a_result(1, BEFORE), a_result(2, AFTER)],
        [],
        0.95,
    )
    assert found.same_plan
    assert found.caveats == [f"{run_id(2)} is still running"]


@pytest.mark.parametrize(
    ("left", "right", "pointers"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, ["/a"]),
        ({"a": True}, {"a": 1}, ["/a"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["/a/1"]),
        ({"a": [1]}, {"a": [1, 2]}, ["/a"]),
        ({"a/b": {"~": 1}}, {}, ["/a~1b"]),
        (1, 2, ["/"]),
    ],
)
def test_differences_are_pointers(left: Any, right: Any, pointers: list[str]) -> None:
    assert [found.pointer for found in differences(left, right)] == pointers
