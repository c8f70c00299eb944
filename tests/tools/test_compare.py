"""A comparison is paired by task, leaves out what has no reward, says what else differs, and
decides no more than its interval allows."""

from typing import Any

import pytest
from pydantic import JsonValue

from specs.assessment import Assessment, NoReward
from specs.canonical import digest
from specs.comparison import Comparison, Seen
from specs.ids import Prefix, new_id
from specs.records import Trial, TrialOutcome, TrialSettled, TrialState
from specs.run import Run
from tools.comparing import Evaluation, Options, compare_evaluations, reward_of, values_of
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
    sampler = changes.pop("sampler", "0")
    spec = {
        "id": run_id(number),
        "dataset": "t/held-out@v1",
        "dataset_digest": changes.pop("dataset_digest", SHA),
        "tasks": [
            {
                "name": name,
                "digest": SHA,
                "size": 1,
                "metadata": {"family": family, "severity": "high"},
            }
            for name, family in FAMILIES.items()
        ],
        "actor_name": "t/agent",
        "actor": SHA,
        "plan": plan,
        "plan_digest": digest(plan),
        "sampler": {
            "id": "smp_" + sampler * 32,
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


PROFILE: dict[str, JsonValue] = {"name": "t/agent", "agent": {"model": "tiny", "args": ["a"]}}


def trial_of(run: str, task: str, reward: float | None, **changes: Any) -> Trial:
    trial = new_id(Prefix.TRIAL)
    metrics: dict[str, float] = changes.pop("metrics", {})
    settled = {
        "trial": trial,
        "outcome": TrialOutcome.COMPLETED,
        "environment_version": changes.pop("environment", SHA),
        "seconds": {"agent": 2.0},
    }
    return Trial(
        id=trial,
        run=run,
        group=new_id(Prefix.GROUP),
        batch=0,
        index=0,
        task=task,
        sampler="smp_" + "0" * 32,
        fence=1,
        state=TrialState.SETTLED,
        counted=True,
        opened_at="2026-01-01T00:00:00Z",
        settled=TrialSettled.model_validate({**settled, **changes}),
        assessment=Assessment(
            id=new_id(Prefix.ASSESSMENT),
            trial=trial,
            assessor="verifier",
            reward=reward,
            rewards=metrics if reward is not None else {},
            reason=None if reward is not None else NoReward.INFRASTRUCTURE,
        ),
    )


def side(
    number: int,
    rewards: Rewards,
    *,
    profile: dict[str, JsonValue] = PROFILE,
    trial: dict[str, Any] | None = None,
    **changes: Any,
) -> Evaluation:
    run = a_run(number, **changes)
    trials = [
        trial_of(run.id, task, reward, **(trial or {}))
        for task, values in rewards.items()
        for reward in values
    ]
    return Evaluation(run, profile, trials)


def compared(left: Evaluation, right: Evaluation, *seen: Seen, **options: Any) -> Comparison:
    return compare_evaluations(left, right, seen, Options(**options))


BEFORE: Rewards = {"t/a": [0, 0], "t/b": [1, 0], "t/c": [0, None]}
AFTER: Rewards = {"t/a": [1, 1], "t/b": [1, 0], "t/c": [1, 1]}


def test_attempts_are_averaged_before_tasks_are_paired() -> None:
    found = compared(side(1, BEFORE), side(2, AFTER))
    assert found.difference is not None
    assert found.difference.estimate == pytest.approx((1 + 0 + 1) / 3)
    assert (found.wins, found.ties, found.losses) == (2, 1, 0)
    assert (found.fixed, found.broken) == (2, 0)
    assert found.baseline.success == pytest.approx(0.5 / 3)
    assert (found.baseline.attempts_scored, found.baseline.attempts_unscored) == (5, 1)
    rows = [(row.attribute, row.value, row.difference.n) for row in found.by_attribute]
    assert rows == [("severity", "high", 3), ("family", "copy", 2), ("family", "sort", 1)]
    assert [row.task for row in found.by_task] == ["t/a", "t/c", "t/b"]
    assert found.caveats == ["1 attempts of the baseline have no reward and are left out"]


def test_a_failure_of_the_infrastructure_is_counted_apart_and_is_no_zero() -> None:
    """Invariant 4."""
    missing: Rewards = {**BEFORE, "t/c": [None, None]}
    left = side(1, missing)
    found = compared(left, side(2, AFTER))
    assert (found.tasks, found.only_candidate) == (2, ["t/c"])
    assert values_of(left, reward_of) == {"t/a": 0, "t/b": 0.5}
    assert found.baseline.no_reward == {"infrastructure": 2}
    assert found.baseline.attempts == 6


def test_no_common_task_is_no_difference_and_no_reason_to_change() -> None:
    found = compared(side(1, {"t/a": [1]}), side(2, {"t/b": [1]}))
    assert (found.difference, found.tasks, found.verdict) == (None, 0, "inconclusive")
    assert found.advice.startswith("keep the baseline")


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ({"t/a": [1, 1], "t/b": [1, 1], "t/c": [1, 0.9]}, "better"),
        ({"t/a": [-1, -1], "t/b": [-1, -1], "t/c": [-1, -0.9]}, "worse"),
        ({"t/a": [1, 1], "t/b": [-1, -1], "t/c": [1, 1]}, "inconclusive"),
    ],
)
def test_the_verdict_needs_an_interval_without_zero(after: Rewards, verdict: str) -> None:
    before: Rewards = {"t/a": [0, 0], "t/b": [0, 0], "t/c": [0, 0]}
    found = compared(side(1, before), side(2, after))
    assert found.verdict == verdict
    assert ("keep the baseline" in found.advice) == (verdict != "better")


def test_one_unit_is_never_conclusive() -> None:
    found = compared(side(1, {"t/a": [0]}), side(2, {"t/a": [1]}))
    assert found.verdict == "inconclusive"
    clustered = compared(side(1, BEFORE), side(2, AFTER), cluster="severity")
    assert clustered.difference is not None
    assert (clustered.difference.clusters, clustered.difference.low) == (1, None)


def test_tasks_of_one_cluster_are_not_independent() -> None:
    """By hand: d = 1, 0, 1; mean 2/3; clusters copy {1/3, -2/3} and sort {1/3} have sums -1/3 and
    1/3, so the squared error is 2/1 · (2/9) / 9 and its root 2/9; t(1 df) = 12.706."""
    found = compared(side(1, BEFORE), side(2, AFTER), cluster="family").difference
    assert found is not None
    assert found.high is not None
    assert (found.n, found.clusters) == (3, 2)
    assert found.high - found.estimate == pytest.approx(12.7062047 * 2 / 9, rel=1e-6)


def test_pass_rates_are_unbiased_and_told_per_side() -> None:
    """By hand, n = 2: t/a 2 of 2, t/b 1 of 2, t/c 2 of 2."""
    rates = {
        rate.k: rate for rate in compared(side(1, BEFORE), side(2, AFTER)).candidate.pass_rates
    }
    assert (rates[1].any_of_k, rates[1].all_of_k) == (pytest.approx(5 / 6), pytest.approx(5 / 6))
    assert (rates[2].any_of_k, rates[2].all_of_k) == (1.0, pytest.approx(2 / 3))


def test_each_named_metric_is_compared_apart() -> None:
    left = side(1, BEFORE, trial={"metrics": {"tests": 0.25, "style": 1.0}})
    right = side(2, AFTER, trial={"metrics": {"tests": 0.75}})
    (row,) = compared(left, right).by_metric
    assert (row.metric, row.baseline, row.candidate) == ("tests", 0.25, 0.75)
    assert row.difference.estimate == pytest.approx(0.5)


def model_of(name: str, **agent: JsonValue) -> dict[str, JsonValue]:
    return {"name": "t/other", "agent": {"model": name, "args": ["a"], **agent}}


def test_one_cause_is_the_model_alone_or_the_recipe_alone() -> None:
    base = side(1, BEFORE)
    model = compared(base, side(2, AFTER, profile=model_of("m2"), sampler="1", model="m2"))
    assert (model.changed, model.expected) == (["model"], True)
    places = [place.pointer for place in model.differences]
    assert places == ["/actor/agent/model", "/actor/name", "/sampler/id"]
    recipe = compared(base, side(2, AFTER, profile=model_of("tiny", args=["b"])))
    assert (recipe.changed, recipe.expected) == (["recipe"], True)
    both = compared(base, side(2, AFTER, profile=model_of("m2", args=["b"]), sampler="1"))
    assert (both.changed, both.expected) == (["model", "recipe"], False)
    assert "the agent recipes differ beyond the model" in both.caveats


def test_whatever_else_differs_is_said() -> None:
    other = side(
        2,
        AFTER,
        dataset_digest=OTHER,
        plan={"limits": {"max_calls": 1}},
        trial={"environment": OTHER},
    )
    found = compared(side(1, BEFORE), other)
    assert found.changed == ["dataset", "plan", "environment"]
    assert not found.expected
    assert {"/dataset_digest", "/plan/limits"} <= {place.pointer for place in found.differences} | {
        place.pointer[: len("/plan/limits")] for place in found.differences
    }


def test_another_seed_is_the_same_plan_and_a_running_side_is_noted() -> None:
    found = compared(side(1, AFTER), side(2, AFTER, plan={"seed": 7}, state="running"))
    assert found.changed == []
    assert found.caveats == [f"{run_id(2)} is still running"]


def test_a_large_difference_is_named_by_digest() -> None:
    args: list[JsonValue] = ["x" * 5000]
    found = compared(side(1, AFTER), side(2, AFTER, profile=model_of("tiny", args=args)))
    (place,) = [one for one in found.differences if one.pointer == "/actor/agent/args/0"]
    assert isinstance(place.right, dict)
    assert place.right["digest"] == digest("x" * 5000)


def test_tasks_that_a_side_was_trained_on_are_named() -> None:
    seen = [
        Seen(task=task, side="candidate", run=run_id(9), same_version=True)
        for task in ("t/a", "t/elsewhere")
    ]
    found = compared(side(1, BEFORE), side(2, AFTER), *seen)
    assert [one.task for one in found.trained_on] == ["t/a"]
    assert "the candidate's model was trained on 1 of the compared tasks" in found.caveats


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
