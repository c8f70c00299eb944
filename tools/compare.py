"""Comparing two evaluations, paired by task.

The unit is the task: a task's value is the mean reward of its scored attempts, and the difference
is taken over the tasks that both sides scored. What else differs between the sides is said,
because a difference of scores can only be read beside it.
"""

from statistics import fmean
from typing import Annotated

from pydantic import Field, JsonValue

from runtime.client import OperatorClient
from specs import canonical
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput
from specs.run import Run, RunResult
from tools.context import Context
from tools.differences import Difference, differences
from tools.fields import Cli, Input
from tools.registry import READ, operation
from tools.stats import Interval, paired_interval
from tools.tables import number, pairs, table

RunSide = Annotated[str, Field(description="Run id; a short form will do"), Cli(positional=True)]


class Compare(Input):
    baseline: RunSide
    candidate: RunSide
    family: Annotated[
        tuple[str, ...], Field(description="Tasks of this family alone (may be repeated)")
    ] = ()
    capability: Annotated[
        tuple[str, ...], Field(description="Tasks of this capability alone (may be repeated)")
    ] = ()
    confidence: Annotated[float, Field(gt=0, lt=1, description="Of the interval")] = 0.95


class Side(Contract):
    """One of the two runs."""

    run: str
    state: str
    model: str
    actor: str
    dataset: str | None
    success: float | None
    """Mean over its scored tasks."""
    tasks_scored: int
    attempts_scored: int
    attempts_unscored: int


class FamilyRow(Contract):
    """One family of tasks, over the tasks that both sides scored."""

    family: str
    baseline: float
    candidate: float
    difference: Interval


class Comparison(Contract):
    """Candidate minus baseline."""

    baseline: Side
    candidate: Side
    tasks: int
    """Tasks that both sides scored."""
    only_baseline: list[str]
    only_candidate: list[str]
    difference: Interval | None
    confidence: float
    improved: int
    equal: int
    worse: int
    by_family: list[FamilyRow]
    same_dataset: bool
    same_environment: bool
    same_plan: bool
    same_recipe: bool
    """The profiles agree in everything but name and model."""
    caveats: list[str]
    """What else differs, in words."""
    recipe_differences: list[Difference]


def _text(result: Comparison) -> str:
    def side(one: Side) -> tuple[object, ...]:
        return (one.run, one.model, one.success, one.tasks_scored, one.attempts_scored)

    sides = table(
        ("side", "run", "model", "success", "tasks", "attempts"),
        [("baseline", *side(result.baseline)), ("candidate", *side(result.candidate))],
    )
    summary = pairs(
        {
            "difference": _interval(result.difference, result.confidence),
            "tasks": result.tasks,
            "better, equal, worse": f"{result.improved}, {result.equal}, {result.worse}",
        }
    )
    families = table(
        ("family", "baseline", "candidate", "difference"),
        [
            (f.family, f.baseline, f.candidate, _interval(f.difference, result.confidence))
            for f in result.by_family
        ],
    )
    caveats = [f"note: {text}" for text in result.caveats]
    return "\n".join([sides, "", summary, "", families, *caveats])


def _interval(value: Interval | None, confidence: float) -> str:
    if value is None:
        return "no common task"
    if value.low is None or value.high is None:
        return f"{value.estimate:+.3f} (n={value.n}: no interval)"
    bounds = f"{value.low:+.3f}, {value.high:+.3f}"
    return f"{value.estimate:+.3f} [{bounds}] ({number(confidence * 100)} %, n={value.n})"


@operation("run", "compare", READ, text=_text)
async def compare(context: Context, request: Compare) -> Comparison:
    """Compare two evaluations: success of each, and the paired difference over common tasks.

    Attempts at a task are averaged first; the interval is a t interval over tasks. Families or
    capabilities restrict both sides to those tasks. It also says whether datasets, environments,
    plans or agent recipes differ.
    """
    async with context.gateway() as gateway:
        runs = [await gateway.run(run) for run in (request.baseline, request.candidate)]
        for run in runs:
            if run.kind != "evaluation":
                raise _not_evaluation(run)
        results = [_restrict(run, await gateway.result(run.id), request) for run in runs]
        recipes = [await _recipe(gateway, run) for run in runs]
    changed = differences(recipes[0], recipes[1])
    return compare_results(runs, results, changed, request.confidence)


def compare_results(
    runs: list[Run], results: list[RunResult], recipe: list[Difference], confidence: float
) -> Comparison:
    """The comparison of two runs with their results; pure."""
    left, right = (task_means(result) for result in results)
    common = [task for task in left if task in right]
    paired = [right[task] - left[task] for task in common]
    caveats = _caveats(runs, results, recipe)
    return Comparison(
        baseline=_side(runs[0], results[0]),
        candidate=_side(runs[1], results[1]),
        tasks=len(common),
        only_baseline=[task for task in left if task not in right],
        only_candidate=[task for task in right if task not in left],
        difference=paired_interval(paired, confidence),
        confidence=confidence,
        improved=sum(1 for value in paired if value > 0),
        equal=sum(1 for value in paired if value == 0),
        worse=sum(1 for value in paired if value < 0),
        by_family=_families(runs[0], common, left, right, confidence),
        same_dataset="dataset" not in caveats,
        same_environment="environment" not in caveats,
        same_plan="plan" not in caveats,
        same_recipe="recipe" not in caveats,
        caveats=list(caveats.values()),
        recipe_differences=recipe,
    )


def _restrict(run: Run, result: RunResult, request: Compare) -> RunResult:
    """The result over the tasks of the chosen families and capabilities alone."""
    chosen = {
        task.name
        for task in run.spec.tasks
        if (not request.family or task.metadata.get("family") in request.family)
        and (not request.capability or task.metadata.get("capability") in request.capability)
    }
    by_task = {task: rewards for task, rewards in result.by_task.items() if task in chosen}
    return result.model_copy(update={"by_task": by_task})


def task_means(result: RunResult) -> dict[str, float]:
    """Mean reward of each task that has a scored attempt."""
    scored = {
        task: [reward for reward in rewards if reward is not None]
        for task, rewards in result.by_task.items()
    }
    return {task: fmean(rewards) for task, rewards in scored.items() if rewards}


def _side(run: Run, result: RunResult) -> Side:
    rewards = [reward for task in result.by_task.values() for reward in task]
    means = task_means(result)
    return Side(
        run=run.id,
        state=run.state,
        model=run.model,
        actor=run.spec.actor,
        dataset=run.dataset,
        success=fmean(means.values()) if means else None,
        tasks_scored=len(means),
        attempts_scored=sum(1 for reward in rewards if reward is not None),
        attempts_unscored=sum(1 for reward in rewards if reward is None),
    )


def _families(
    run: Run,
    common: list[str],
    left: dict[str, float],
    right: dict[str, float],
    confidence: float,
) -> list[FamilyRow]:
    families: dict[str, list[str]] = {}
    for entry in run.spec.tasks:
        if entry.name in common:
            families.setdefault(str(entry.metadata.get("family", "-")), []).append(entry.name)
    rows: list[FamilyRow] = []
    for family, tasks in sorted(families.items()):
        interval = paired_interval([right[task] - left[task] for task in tasks], confidence)
        assert interval is not None  # a family has at least one task
        rows.append(
            FamilyRow(
                family=family,
                baseline=fmean(left[task] for task in tasks),
                candidate=fmean(right[task] for task in tasks),
                difference=interval,
            )
        )
    return rows


def _some(versions: list[str]) -> str:
    """The first few of a list that may be as long as the dataset."""
    named = ", ".join(versions[:3]) or "none"
    return f"{named} and {len(versions) - 3} more" if len(versions) > 3 else named


def _caveats(runs: list[Run], results: list[RunResult], recipe: list[Difference]) -> dict[str, str]:
    first, second = runs
    environments = [set(result.environment_versions) for result in results]
    plans = [canonical.digest(_comparable_plan(run)) for run in runs]
    found: dict[str, str] = {}
    if first.spec.dataset_digest != second.spec.dataset_digest:
        found["dataset"] = f"the datasets differ: {first.dataset} and {second.dataset}"
    if environments[0] != environments[1]:
        first_only, second_only = (
            sorted(environments[side] - environments[1 - side]) for side in (0, 1)
        )
        found["environment"] = (
            f"the environment versions differ: {_some(first_only)} only in the first,"
            f" {_some(second_only)} only in the second"
        )
    if plans[0] != plans[1]:
        found["plan"] = "the plans differ in more than their seed"
    if recipe:
        places = ", ".join(difference.pointer for difference in recipe[:5])
        found["recipe"] = f"the agent recipes differ beyond the model: {places}"
    for run in runs:
        if not run.state.terminal:
            found[f"state {run.id}"] = f"{run.id} is still {run.state}"
    return found


def _comparable_plan(run: Run) -> dict[str, JsonValue]:
    plan = run.spec.plan.model_dump(mode="json")
    return {key: value for key, value in plan.items() if key != "seed"}


async def _recipe(gateway: OperatorClient, run: Run) -> JsonValue:
    """The pinned profile without its name and model, checked against its digest."""
    profile = canonical.loads(await gateway.object(run.spec.actor), what="profile")
    if not isinstance(profile, dict) or not isinstance(profile.get("agent"), dict):
        return profile
    agent = profile["agent"]
    assert isinstance(agent, dict)
    return {"agent": {key: value for key, value in agent.items() if key != "model"}}


def _not_evaluation(run: Run) -> InvalidInput:
    return InvalidInput(
        f"{run.id} is a {run.kind} run; only evaluations can be compared.",
        object=ErrorObject(type="run", id=run.id),
        next="Evaluate its checkpoint on held-out tasks: practicum run start",
    )
