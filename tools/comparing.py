"""Two evaluations become one comparison; pure.

A task's value is the mean reward of its scored attempts, and a difference is taken over the
tasks that both sides scored. Attempts without a reward are counted by reason and left out. What
differs between the sides beside the model is listed, because a difference of scores has one
cause only where one thing was changed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from pydantic import JsonValue

from runtime.analysis.stats import all_of, any_of, paired_interval
from specs import canonical
from specs.comparison import (
    AttributeRow,
    Change,
    Comparison,
    Difference,
    Interval,
    MetricRow,
    PassRate,
    Seen,
    Side,
    TaskRow,
    Verdict,
)
from specs.records import Trial
from specs.run import Run
from tools.differences import differences

ATTRIBUTES = ("capability", "severity", "family")
"""Reserved keys of a task's metadata, by which results are reported apart."""
LARGEST_VALUE = 2000
"""Bytes of a value that is shown where specs differ."""


@dataclass(frozen=True)
class Evaluation:
    """One side: its run, its profile, its counted trials, and tool calls where they were read."""

    run: Run
    profile: JsonValue
    trials: Sequence[Trial]
    tools: Mapping[str, int] | None = None

    @property
    def attempts(self) -> list[Trial]:
        """Trials whose work has ended."""
        return [trial for trial in self.trials if trial.settled is not None]


@dataclass(frozen=True)
class Options:
    """How to compare."""

    confidence: float = 0.95
    cluster: str = "task"
    pass_mark: float = 1.0
    filters: Mapping[str, tuple[str, ...]] | None = None
    prompt_price: float | None = None
    """Of a million tokens."""
    output_price: float | None = None


type Values = dict[str, float]
"""One value per task."""


def compare_evaluations(
    baseline: Evaluation, candidate: Evaluation, trained_on: Sequence[Seen], options: Options
) -> Comparison:
    """Candidate minus baseline."""
    sides = (baseline, candidate)
    left, right = (values_of(side, reward_of) for side in sides)
    common = [task for task in left if task in right]
    found = _interval(baseline.run, common, left, right, options)
    rows = [_task_row(task, baseline, candidate, options.pass_mark) for task in common]
    results, flips = Counter(row.result for row in rows), Counter(row.flip for row in rows)
    places = _spec_differences(baseline, candidate)
    changed = _changed(sides, places)
    verdict, advice = _verdict(found)
    return Comparison(
        baseline=_side(baseline, options),
        candidate=_side(candidate, options),
        dataset_digest=baseline.run.spec.dataset_digest,
        confidence=options.confidence,
        pass_mark=options.pass_mark,
        cluster=options.cluster,
        filters=dict(options.filters or {}),
        tasks=len(common),
        only_baseline=[task for task in left if task not in right],
        only_candidate=[task for task in right if task not in left],
        difference=found,
        verdict=verdict,
        advice=advice,
        wins=results["win"],
        ties=results["tie"],
        losses=results["loss"],
        fixed=flips["fixed"],
        broken=flips["broken"],
        by_task=sorted(rows, key=lambda row: (-abs(row.difference), row.task)),
        by_metric=_metrics(sides, common, options),
        by_attribute=_attributes(baseline.run, common, left, right, options),
        changed=changed,
        differences=places,
        expected=changed in ([], ["model"], ["recipe"]),
        trained_on=[seen for seen in trained_on if seen.task in common],
        caveats=_caveats(sides, changed, trained_on, common),
    )


def reward_of(trial: Trial) -> float | None:
    """The reward that reports use."""
    return trial.assessment.reward if trial.assessment else None


def values_of(side: Evaluation, value: Callable[[Trial], float | None]) -> Values:
    """Mean over attempts of each task that has a value; tasks in the order of the dataset."""
    found: dict[str, list[float]] = {}
    for trial in side.attempts:
        one = value(trial)
        if one is not None:
            found.setdefault(trial.task, []).append(one)
    order = {task.name: place for place, task in enumerate(side.run.spec.tasks)}
    return {
        task: fmean(found[task]) for task in sorted(found, key=lambda t: order.get(t, len(order)))
    }


def _verdict(found: Interval | None) -> tuple[Verdict, str]:
    if found is None:
        return "inconclusive", "keep the baseline: no task has a reward on both sides"
    if found.low is None or found.high is None:
        return "inconclusive", "keep the baseline: one unit has no interval; compare more tasks"
    if found.low > 0:
        return "better", "the interval excludes no difference: take the candidate"
    if found.high < 0:
        return "worse", "keep the baseline: the candidate is worse"
    return "inconclusive", "keep the baseline: the interval includes no difference"


def _interval(
    run: Run, tasks: Sequence[str], left: Values, right: Values, options: Options
) -> Interval | None:
    """The paired difference over tasks, clustered as asked; a task without the attribute
    stands alone."""
    clusters = None
    if options.cluster != "task":
        label = _labels(run, options.cluster)
        clusters = [label.get(task, f"\0{task}") for task in tasks]
    paired = [right[task] - left[task] for task in tasks]
    return paired_interval(paired, options.confidence, clusters=clusters)


def _labels(run: Run, attribute: str) -> dict[str, str]:
    """The value of an attribute by task, where it has one."""
    found = ((task.name, task.metadata.get(attribute)) for task in run.spec.tasks)
    return {name: value for name, value in found if isinstance(value, str)}


def _task_row(task: str, baseline: Evaluation, candidate: Evaluation, pass_mark: float) -> TaskRow:
    before, after = (_rewards(side, task) for side in (baseline, candidate))
    difference = fmean(after) - fmean(before)
    solved = [
        sum(r >= pass_mark for r in rewards) * 2 > len(rewards) for rewards in (before, after)
    ]
    flip = None if solved[0] == solved[1] else ("fixed" if solved[1] else "broken")
    return TaskRow(
        task=task,
        baseline=fmean(before),
        candidate=fmean(after),
        baseline_attempts=len(before),
        candidate_attempts=len(after),
        difference=difference,
        result="win" if difference > 0 else "loss" if difference < 0 else "tie",
        flip=flip,
    )


def _rewards(side: Evaluation, task: str) -> list[float]:
    found = [reward_of(trial) for trial in side.attempts if trial.task == task]
    return [reward for reward in found if reward is not None]


def _metrics(
    sides: tuple[Evaluation, Evaluation], common: Sequence[str], options: Options
) -> list[MetricRow]:
    """Each named metric apart, where assessments have more than the one reward."""
    names = [
        {name for t in side.attempts if t.assessment for name in t.assessment.rewards}
        for side in sides
    ]
    rows: list[MetricRow] = []
    for name in sorted(names[0] & names[1]):
        left, right = (values_of(side, _metric(name)) for side in sides)
        tasks = [task for task in common if task in left and task in right]
        interval = _interval(sides[0].run, tasks, left, right, options)
        if interval is not None:
            rows.append(
                MetricRow(
                    metric=name,
                    baseline=fmean(left[task] for task in tasks),
                    candidate=fmean(right[task] for task in tasks),
                    difference=interval,
                )
            )
    return rows


def _metric(name: str) -> Callable[[Trial], float | None]:
    return lambda trial: trial.assessment.rewards.get(name) if trial.assessment else None


def _attributes(
    run: Run, common: Sequence[str], left: Values, right: Values, options: Options
) -> list[AttributeRow]:
    rows: list[AttributeRow] = []
    for attribute in ATTRIBUTES:
        labels = _labels(run, attribute)
        for value in sorted({labels[task] for task in common if task in labels}):
            tasks = [task for task in common if labels.get(task) == value]
            paired = [right[task] - left[task] for task in tasks]
            interval = paired_interval(paired, options.confidence)
            assert interval is not None  # the value is that of at least one task
            rows.append(
                AttributeRow(
                    attribute=attribute,
                    value=value,
                    baseline=fmean(left[task] for task in tasks),
                    candidate=fmean(right[task] for task in tasks),
                    difference=interval,
                )
            )
    return rows


def _side(side: Evaluation, options: Options) -> Side:
    run, attempts = side.run, side.attempts
    means = values_of(side, reward_of)
    scored = [trial for trial in attempts if reward_of(trial) is not None]
    settled = [trial.settled for trial in attempts if trial.settled is not None]
    seals = [one.seal for one in settled if one.seal is not None]
    agent = [one.seconds["agent"] for one in settled if "agent" in one.seconds]
    prompt = sum(seal.prompt_tokens for seal in seals)
    output = sum(seal.output_tokens for seal in seals)
    return Side(
        run=run.id,
        state=run.state,
        model=run.model,
        actor=run.spec.actor,
        dataset=run.dataset,
        success=fmean(means.values()) if means else None,
        tasks_scored=len(means),
        attempts=len(attempts),
        attempts_scored=len(scored),
        attempts_unscored=len(attempts) - len(scored),
        no_reward=dict(
            Counter(
                str(trial.assessment.reason) if trial.assessment else "not_assessed"
                for trial in attempts
                if reward_of(trial) is None
            )
        ),
        outcomes=dict(Counter(str(one.outcome) for one in settled)),
        pass_rates=pass_rates(side, options.pass_mark),
        prompt_tokens=prompt,
        output_tokens=output,
        calls=sum(seal.interactions for seal in seals),
        tools=None if side.tools is None else dict(side.tools),
        agent_seconds=fmean(agent) if agent else None,
        seconds=_seconds(run),
        cost=_cost(prompt, output, options),
    )


def pass_rates(side: Evaluation, pass_mark: float) -> list[PassRate]:
    """pass@k and pass^k for k = 1, 2, 4, … as far as any task has attempts, and for the most
    attempts that every scored task has."""
    by_task = {task: _rewards(side, task) for task in values_of(side, reward_of)}
    counts = [(len(r), sum(x >= pass_mark for x in r)) for r in by_task.values()]
    if not counts:
        return []
    most = max(n for n, _ in counts)
    wanted = {1 << power for power in range(most.bit_length())} | {min(n for n, _ in counts)}
    rates: list[PassRate] = []
    for k in sorted(wanted):
        enough = [(n, c) for n, c in counts if n >= k]
        rates.append(
            PassRate(
                k=k,
                tasks=len(enough),
                any_of_k=fmean(any_of(n, c, k) for n, c in enough),
                all_of_k=fmean(all_of(n, c, k) for n, c in enough),
            )
        )
    return rates


def _cost(prompt: int, output: int, options: Options) -> float | None:
    if options.prompt_price is None and options.output_price is None:
        return None
    prices = (options.prompt_price or 0.0, options.output_price or 0.0)
    return (prompt * prices[0] + output * prices[1]) / 1e6


def _seconds(run: Run) -> float | None:
    if run.started_at is None or run.ended_at is None:
        return None
    started, ended = map(datetime.fromisoformat, (run.started_at, run.ended_at))
    return (ended - started).total_seconds()


def _spec_differences(baseline: Evaluation, candidate: Evaluation) -> list[Difference]:
    """Every field of the pinned specs that differs; ids apart, profiles in place of digests."""

    def whole(side: Evaluation) -> JsonValue:
        spec: dict[str, JsonValue] = side.run.spec.model_dump(mode="json", by_alias=True)
        spec["actor"] = side.profile
        del spec["id"]
        del spec["plan_digest"]
        return spec

    return [
        Difference(pointer=place.pointer, left=_small(place.left), right=_small(place.right))
        for place in differences(whole(baseline), whole(candidate))
    ]


def _small(value: JsonValue) -> JsonValue:
    """A value that fits a record; a large one, such as the tasks of a dataset, by its digest."""
    data = canonical.canonical_bytes(value)
    if len(data) <= LARGEST_VALUE:
        return value
    return {"digest": canonical.digest_bytes(data), "bytes": len(data)}


_CAUSES: tuple[tuple[str, Change | None], ...] = (
    ("/actor/agent/model", "model"),
    ("/sampler", "model"),
    ("/initial_", "model"),
    ("/actor/name", None),
    ("/actor_name", None),
    ("/plan/seed", None),
    ("/actor", "recipe"),
    ("/dataset", "dataset"),
    ("/tasks", "dataset"),
    ("/plan", "plan"),
    ("/fingerprints/renderer", "model"),
    ("/fingerprints/engine", "recipe"),
)
"""Beginnings of pointers and what they tell of; the first that fits. A name and a seed change
nothing, and a sampler or a renderer follows from the model."""


def _changed(sides: tuple[Evaluation, Evaluation], places: Sequence[Difference]) -> list[Change]:
    found: set[Change] = set()
    for place in places:
        cause = _cause(place.pointer)
        if cause is not None:
            found.add(cause)
    if _environments(sides[0]) != _environments(sides[1]):
        found.add("environment")
    order: tuple[Change, ...] = (
        "model",
        "recipe",
        "dataset",
        "plan",
        "environment",
        "platform",
    )
    return [change for change in order if change in found]


def _cause(pointer: str) -> Change | None:
    for start, cause in _CAUSES:
        if pointer.startswith(start):
            return cause
    return "platform"


def _environments(side: Evaluation) -> frozenset[str]:
    settled = (trial.settled for trial in side.attempts)
    return frozenset(one.environment_version for one in settled if one and one.environment_version)


_WORDS: dict[Change, str] = {
    "recipe": "the agent recipes differ beyond the model",
    "dataset": "the datasets differ",
    "plan": "the plans differ in more than their seed",
    "environment": "the environment versions differ",
    "platform": "the programs' versions differ",
}


def _caveats(
    sides: tuple[Evaluation, Evaluation],
    changed: Sequence[Change],
    trained_on: Sequence[Seen],
    common: Sequence[str],
) -> list[str]:
    alone = list(changed) == ["recipe"]
    found = [_WORDS[change] for change in changed if change in _WORDS and not alone]
    found += [
        f"{side.run.id} is still {side.run.state}" for side in sides if not side.run.state.terminal
    ]
    for name, side in zip(("baseline", "candidate"), sides, strict=True):
        unscored = sum(reward_of(trial) is None for trial in side.attempts)
        if unscored:
            found.append(f"{unscored} attempts of the {name} have no reward and are left out")
        seen = len({s.task for s in trained_on if s.side == name and s.task in common})
        if seen:
            found.append(f"the {name}'s model was trained on {seen} of the compared tasks")
    return found
