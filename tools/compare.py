"""Comparing two evaluations, and the record of having done so.

Every look at a held-out dataset spends some of it: a comparison is stored with how many other
pairs the dataset has served before, and a comparison that is repeated is the same record.
"""

from collections import Counter
from typing import Annotated, Any

from pydantic import Field, JsonValue

from runtime.analysis.lineage import RunNode, ancestors_of
from runtime.analysis.spans import calls_of
from runtime.client import OperatorClient, every
from specs import canonical
from specs.base import Contract
from specs.comparison import (
    Comparison,
    ComparisonPage,
    ComparisonSubmission,
    Interval,
    Seen,
    Side,
)
from specs.errors import ErrorObject, InvalidInput
from specs.ids import Prefix, new_id
from specs.records import Trial
from specs.run import Run
from tools.comparing import Evaluation, Options, compare_evaluations
from tools.context import Context
from tools.fields import Cli, Cursor, Input, Limit
from tools.paging import cut
from tools.registry import READ, Traits, operation
from tools.tables import number, pairs, table

RunSide = Annotated[
    str, Field(description="Run id; a unique short form will do"), Cli(positional=True)
]


class Compare(Input):
    baseline: RunSide
    candidate: RunSide
    family: Annotated[tuple[str, ...], Field(description="Tasks of this family alone")] = ()
    capability: Annotated[tuple[str, ...], Field(description="Tasks of this capability alone")] = ()
    severity: Annotated[tuple[str, ...], Field(description="Tasks of this severity alone")] = ()
    cluster: Annotated[
        str,
        Field(description="Task attribute whose tasks may depend on each other, such as family"),
    ] = "task"
    confidence: Annotated[float, Field(gt=0, lt=1, description="Of the interval")] = 0.95
    pass_mark: Annotated[float, Field(description="Reward at which an attempt passes")] = 1.0
    prompt_price: Annotated[
        float | None, Field(ge=0, description="Of a million prompt tokens, for the cost")
    ] = None
    output_price: Annotated[
        float | None, Field(ge=0, description="Of a million output tokens, for the cost")
    ] = None
    tools: Annotated[
        bool, Field(description="Read the evidence too, and count tool calls by name")
    ] = False
    limit: Limit = 20
    cursor: Cursor = None


class ListComparisons(Input):
    dataset: Annotated[
        str | None, Field(description="Digest of the dataset: what it has served alone")
    ] = None
    limit: Limit = 20
    cursor: Cursor = None


class Compared(Comparison):
    """A comparison with its record; `by_task` is a page, largest difference first."""

    id: str
    created_at: str
    earlier: int
    """Comparisons of other pairs that this dataset had served before."""
    next: str | None = None


class ComparisonRow(Contract):
    """A recorded comparison in a list."""

    id: str
    created_at: str
    baseline: str
    candidate: str
    dataset: str | None
    verdict: str
    difference: Interval | None
    earlier: int


class ComparisonRows(Contract):
    items: list[ComparisonRow]
    next: str | None = None


def _text(result: Compared) -> str:
    sides = table(
        ("side", "run", "model", "success", "tasks", "scored", "no reward"),
        [_side_row("baseline", result.baseline), _side_row("candidate", result.candidate)],
    )
    summary = pairs(
        {
            "verdict": f"{result.verdict.upper()}: {result.advice}",
            "difference": _interval(result.difference, result.confidence),
            "clustered by": None if result.cluster == "task" else result.cluster,
            "tasks": result.tasks,
            "wins, ties, losses": f"{result.wins}, {result.ties}, {result.losses}",
            "fixed, broken": f"{result.fixed}, {result.broken}",
            "what changed": ", ".join(result.changed) or "nothing",
            "record": f"{result.id}, after {result.earlier} other comparisons on this dataset",
        }
    )
    notes = [f"note: {text}" for text in result.caveats]
    seen = [
        f"note: {one.task} was trained on in {one.run}"
        + ("" if one.same_version else " (another version)")
        for one in result.trained_on[:10]
    ]
    parts = [sides, summary, *_tables(result), "\n".join([*notes, *seen])]
    return "\n\n".join(part for part in parts if part)


def _tables(result: Compared) -> list[str]:
    def difference(value: Interval) -> str:
        return _interval(value, result.confidence)

    attributes = [
        (row.attribute, row.value, row.baseline, row.candidate, difference(row.difference))
        for row in result.by_attribute
    ]
    metrics = [
        (row.metric, row.baseline, row.candidate, difference(row.difference))
        for row in result.by_metric
    ]
    tasks = [
        (
            row.task,
            f"{number(row.baseline)} ({row.baseline_attempts})",
            f"{number(row.candidate)} ({row.candidate_attempts})",
            f"{row.difference:+.3f}",
            row.result,
            row.flip,
        )
        for row in result.by_task
    ]
    places = [(place.pointer, place.left, place.right) for place in result.differences[:20]]
    found = [
        table(("", "baseline", "candidate"), _facts(result)),
        table(("attribute", "value", "baseline", "candidate", "difference"), attributes),
        table(("metric", "baseline", "candidate", "difference"), metrics),
        table(
            ("task", "baseline", "candidate", "difference", "result", "flip"),
            tasks,
            more=result.next,
        ),
        table(("specs differ in", "baseline", "candidate"), places),
    ]
    return [text for text in found if text != "(none)"]


def _side_row(name: str, side: Side) -> tuple[object, ...]:
    counts = (side.tasks_scored, side.attempts_scored, side.no_reward or None)
    return (name, side.run, side.model, side.success, *counts)


def _facts(result: Comparison) -> list[tuple[object, ...]]:
    sides = (result.baseline, result.candidate)
    rows: list[tuple[object, ...]] = [
        ("outcomes", *(side.outcomes for side in sides)),
        ("model calls", *(side.calls for side in sides)),
        ("tool calls", *(side.tools for side in sides)),
        ("prompt tokens", *(side.prompt_tokens for side in sides)),
        ("output tokens", *(side.output_tokens for side in sides)),
        ("cost", *(side.cost for side in sides)),
        ("seconds of an attempt", *(side.agent_seconds for side in sides)),
        ("seconds of the run", *(side.seconds for side in sides)),
    ]
    rates = [{rate.k: rate for rate in side.pass_rates} for side in sides]
    for k in sorted(rates[0].keys() & rates[1].keys()):
        rows.append((f"pass@{k}", *(found[k].any_of_k for found in rates)))
        if k > 1:
            rows.append((f"pass^{k}", *(found[k].all_of_k for found in rates)))
    return [row for row in rows if any(value is not None for value in row[1:])]


def _interval(value: Interval | None, confidence: float) -> str:
    if value is None:
        return "no common task"
    units = f"n={value.n}" if value.clusters == value.n else f"n={value.n} in {value.clusters}"
    if value.low is None or value.high is None:
        return f"{value.estimate:+.3f} ({units}: no interval)"
    bounds = f"{value.low:+.3f}, {value.high:+.3f}"
    return f"{value.estimate:+.3f} [{bounds}] ({number(confidence * 100)} %, {units})"


def _rows_text(rows: ComparisonRows) -> str:
    return table(
        ("comparison", "baseline", "candidate", "dataset", "verdict", "difference", "earlier"),
        [
            (
                row.id,
                row.baseline,
                row.candidate,
                row.dataset,
                row.verdict,
                None if row.difference is None else f"{row.difference.estimate:+.3f}",
                row.earlier,
            )
            for row in rows.items
        ],
        more=rows.next,
    )


@operation("run", "compare", Traits(idempotent=True), text=_text)
async def compare(context: Context, request: Compare) -> Compared:
    """Compare two evaluations task by task, and decide: better, worse or inconclusive.

    Attempts at a task are averaged first; the interval is a t interval over tasks, or over
    clusters of them. Attempts without a reward are apart. It lists every field in which the
    pinned specs differ and the compared tasks that a side's model was trained on. The comparison
    is recorded, with how many others this dataset has served; the same again is the same record.
    """
    async with context.gateway() as gateway:
        runs = [await gateway.run(run) for run in (request.baseline, request.candidate)]
        for run in runs:
            if run.kind != "evaluation":
                raise _not_evaluation(run)
        options = Options(
            confidence=request.confidence,
            cluster=request.cluster,
            pass_mark=request.pass_mark,
            filters=_filters(request),
            prompt_price=request.prompt_price,
            output_price=request.output_price,
        )
        left, right = [await _evaluation(context, gateway, run, request) for run in runs]
        seen = [
            *await _trained_on(gateway, left.run, "baseline"),
            *await _trained_on(gateway, right.run, "candidate"),
        ]
        found = compare_evaluations(left, right, seen, options)
        submission = ComparisonSubmission(id=new_id(Prefix.COMPARISON), comparison=found)
        record = await gateway.record_comparison(submission)
    rows, following = cut(record.comparison.by_task, request.limit, request.cursor)
    values: dict[str, Any] = {
        name: getattr(record.comparison, name) for name in Comparison.model_fields
    }
    values |= {"by_task": rows, "id": record.id, "created_at": record.created_at}
    return Compared(**values, earlier=record.earlier, next=following)


@operation("run", "comparisons", READ, text=_rows_text)
async def comparisons(context: Context, request: ListComparisons) -> ComparisonRows:
    """List recorded comparisons, newest first: what has been looked at, and what was decided."""
    async with context.gateway() as gateway:
        page: ComparisonPage = await gateway.comparisons(
            dataset=request.dataset, limit=request.limit, cursor=request.cursor
        )
    rows = [
        ComparisonRow(
            id=one.id,
            created_at=one.created_at,
            baseline=one.comparison.baseline.run,
            candidate=one.comparison.candidate.run,
            dataset=one.comparison.baseline.dataset,
            verdict=one.comparison.verdict,
            difference=one.comparison.difference,
            earlier=one.earlier,
        )
        for one in page.items
    ]
    return ComparisonRows(items=rows, next=page.next)


def _filters(request: Compare) -> dict[str, tuple[str, ...]]:
    chosen = {
        "capability": request.capability,
        "severity": request.severity,
        "family": request.family,
    }
    return {name: values for name, values in chosen.items() if values}


async def _evaluation(
    context: Context, gateway: OperatorClient, run: Run, request: Compare
) -> Evaluation:
    """One side, over the chosen tasks alone."""
    filters = _filters(request)
    chosen = {
        task.name
        for task in run.spec.tasks
        if all(task.metadata.get(name) in values for name, values in filters.items())
    }
    counted = await every(lambda cursor: gateway.trials(run.id, counted=True, cursor=cursor))
    trials = [trial for trial in counted if trial.task in chosen]
    tools = None
    if request.tools:
        await context.progress(f"reading the evidence of {run.id}")
        tools = await _tools(gateway, trials)
    profile = canonical.loads(await gateway.object(run.spec.actor), what="profile")
    return Evaluation(run, profile, trials, tools)


async def _tools(gateway: OperatorClient, trials: list[Trial]) -> dict[str, int]:
    """Tool calls of the answers, by the tool's name; one trial's evidence at a time."""
    found: Counter[str] = Counter()
    for trial in trials:
        for call in (await calls_of(gateway, trial)).values():
            found.update(_tool_names(call.answer.content if call.answer else []))
    return dict(found.most_common())


def _tool_names(content: list[JsonValue]) -> list[str]:
    return [
        str(block.get("name"))
        for block in content
        if isinstance(block, dict) and block.get("type") == "tool_use"
    ]


async def _trained_on(gateway: OperatorClient, run: Run, side: str) -> list[Seen]:
    """Tasks of a run's dataset that its model's training has seen, by version or by name."""
    versions = {task.name: task.digest for task in run.spec.tasks}
    names = {digest: name for name, digest in versions.items()}
    line, _ = await ancestors_of(gateway, run)
    found: dict[tuple[str, str], bool] = {}
    for node in line[1:]:
        for name, digest in await _tasks_of(gateway, node):
            task = names.get(digest, name)
            if task in versions:
                same = versions[task] == digest
                found[task, node.run] = found.get((task, node.run), False) or same
    return [
        Seen.model_validate({"task": task, "side": side, "run": of, "same_version": same})
        for (task, of), same in found.items()
    ]


async def _tasks_of(gateway: OperatorClient, node: RunNode) -> list[tuple[str, str]]:
    """Tasks with their digests that a run has learnt from up to its batch; of a supervised run
    all those of its source."""
    if node.kind == "supervised":
        return [(task.name, task.digest) for task in (await gateway.run(node.run)).spec.tasks]
    groups = await every(lambda cursor: gateway.groups(node.run, cursor=cursor))
    last = node.through_batch
    return [(g.task, g.task_digest) for g in groups if last is None or g.batch <= last]


def _not_evaluation(run: Run) -> InvalidInput:
    return InvalidInput(
        f"{run.id} is a {run.kind} run; only evaluations can be compared.",
        object=ErrorObject(type="run", id=run.id),
        next="Evaluate its checkpoint on held-out tasks: practicum run start",
    )
