"""Lineage: from a checkpoint or a run back to the tokens, and forward to what used it.

Back: checkpoint → the updates behind it → the groups, trials and token spans that moved them →
the run's profile and dataset → the checkpoint that the run started from, and so on to a base
model. Forward: runs that start from it or learn from its trials, and sampling groups that are
recorded against it. Weights of a checkpoint are those of *all* updates on the way, so spans
are listed over all of them, newest first.

A lineage may be as long as the training. It is read in pages of one section; the overview
shows the head of each.
"""

from typing import Literal

from runtime.analysis.spans import Span, Trials, count_spans, spans
from runtime.client.paging import every
from runtime.client.reads import ReadClient
from specs import cursors
from specs.base import Contract
from specs.ids import Prefix
from specs.operator_api import RecordedGroup
from specs.plans import SupervisedPlan
from specs.records import Checkpoint, Update, UpdateState
from specs.run import Run
from specs.sources import RunSource

type Section = Literal["overview", "updates", "spans", "runs", "groups"]

DEEPEST = 1000
"""Ancestors that are followed; a longer line is cut, and says so."""


class RunNode(Contract):
    """A run on the way: its recipe, its tasks, and where its policy came from."""

    run: str
    kind: str
    state: str
    dataset: str | None
    dataset_digest: str | None
    actor_name: str
    profile: str
    """Digest of the canonical profile."""
    model: str
    plan_digest: str
    sampler: str
    started_from: str | None
    """The checkpoint that it started from; None = the base model."""
    learns_from: str | None
    """The run whose trials a supervised run learns from."""
    through_batch: int | None
    """Updates up to this batch are on the way; None = the run itself is the subject."""


class UpdateNode(Contract):
    """One optimizer step on the way."""

    run: str
    update: str
    batch: int
    checkpoint: str | None
    loss: str | None
    learning_rate: float | None
    sampled_from: str | None
    sampler_after: str | None
    groups: int
    trials: int
    rows: int
    """Rows of a file."""
    spans: int
    trained_tokens: int
    value: float | None
    """The loss that was measured before the step."""


class RunUse(Contract):
    """A run that came later."""

    run: str
    kind: str
    state: str
    model: str
    learns_from: str | None
    dataset: str | None
    actor_name: str
    created_at: str


class Lineage(Contract):
    """Both ways from one record; a page of one section, or the head of each."""

    subject: str
    checkpoint: Checkpoint | None
    """The subject, or what an evaluation ran on."""
    show: Section
    ancestors: list[RunNode]
    """From the run itself, or the one that saved the checkpoint, back to a base model."""
    cut: bool
    """Whether there are more ancestors than were followed."""
    updates: list[UpdateNode]
    """Newest first."""
    spans: list[Span]
    """Of these updates, in the order of their datums."""
    runs: list[RunUse]
    groups: list[RecordedGroup]
    updates_total: int
    spans_total: int
    next: str | None = None
    """Cursor of the section shown; the overview has none."""


async def checkpoint_lineage(
    reads: ReadClient, checkpoint: str, show: Section, limit: int, cursor: str | None
) -> Lineage:
    """The lineage of a checkpoint. On cancel nothing is left behind.

    Raises:
        NotFound: there is no such checkpoint.
        InvalidInput: a cursor that this list did not give.
    """
    found = await reads.checkpoint(checkpoint)
    run = await reads.run(found.run)
    line, cut = await ancestors_of(reads, run, found.batch)
    return await _lineage(reads, found.id, found, (line, cut), show, limit, cursor)


async def run_lineage(
    reads: ReadClient, run: str, show: Section, limit: int, cursor: str | None
) -> Lineage:
    """The lineage of a run; see `checkpoint_lineage`."""
    found = await reads.run(run)
    line = await ancestors_of(reads, found, None)
    used = None
    if found.model.startswith(f"{Prefix.CHECKPOINT}_"):
        used = await reads.checkpoint(found.model)
    return await _lineage(reads, found.id, used, line, show, limit, cursor)


async def _lineage(
    reads: ReadClient,
    subject: str,
    checkpoint: Checkpoint | None,
    line: tuple[list[RunNode], bool],
    show: Section,
    limit: int,
    cursor: str | None,
) -> Lineage:
    ancestors, cut = line
    if show == "overview":
        cursor = None
    steps = [] if show in ("runs", "groups") else await updates_of(reads, ancestors)
    page = Lineage(
        subject=subject,
        checkpoint=checkpoint,
        show=show,
        ancestors=ancestors if show == "overview" else [],
        cut=cut,
        updates=[],
        spans=[],
        runs=[],
        groups=[],
        updates_total=len(steps),
        spans_total=sum(step.spans for step in steps),
    )
    changes: dict[str, object] = {}
    if show in ("overview", "updates"):
        start = cursors.start(cursor)
        changes["updates"] = steps[start : start + limit]
        changes["next"] = str(start + limit) if start + limit < len(steps) else None
    if show in ("overview", "spans"):
        changes |= await _span_page(reads, steps, limit, cursor)
    if show in ("overview", "runs"):
        runs = await reads.runs_using(subject, limit=limit, cursor=cursor)
        changes |= {"runs": [_use(run) for run in runs.items], "next": runs.next}
    if show in ("overview", "groups"):
        groups = await reads.groups_using(subject, limit=limit, cursor=cursor)
        changes |= {"groups": groups.items, "next": groups.next}
    if show == "overview":
        changes["next"] = None
    return page.model_copy(update=changes)


async def _span_page(
    reads: ReadClient, steps: list[UpdateNode], limit: int, cursor: str | None
) -> dict[str, object]:
    """Spans over all steps as one list; the cursor is a position in it."""
    start = cursors.start(cursor)
    found: list[Span] = []
    trials = Trials(reads)
    passed = 0
    for step in steps:
        if len(found) == limit:
            break
        skip = max(0, start - passed)
        passed += step.spans
        if skip < step.spans:
            update = await reads.update(step.update)
            found += await spans(trials, update, skip, limit - len(found))
    end = start + len(found)
    more = end < sum(step.spans for step in steps)
    return {"spans": found, "next": str(end) if more else None}


async def ancestors_of(
    reads: ReadClient, run: Run, through: int | None = None
) -> tuple[list[RunNode], bool]:
    """The run, the run that saved what it started from, and so on."""
    line: list[RunNode] = []
    while len(line) < DEEPEST:
        line.append(_node(run, through))
        parent = run.spec.initial_checkpoint
        if parent is None:
            return line, False
        checkpoint = await reads.checkpoint(parent)
        run, through = await reads.run(checkpoint.run), checkpoint.batch
    return line, True


async def updates_of(reads: ReadClient, line: list[RunNode]) -> list[UpdateNode]:
    """Every acknowledged update on the way, newest first."""
    found: list[UpdateNode] = []
    for node in line:
        saved = {
            item.update: item.id
            for item in await every(lambda c, run=node.run: reads.checkpoints(run, cursor=c))
        }
        steps = await every(lambda c, run=node.run: reads.updates(run, cursor=c))
        found += [
            _step(update, saved.get(update.id))
            for update in reversed(steps)
            if update.state is UpdateState.ACKNOWLEDGED
            and (node.through_batch is None or update.batch <= node.through_batch)
        ]
    return found


def _node(run: Run, through: int | None) -> RunNode:
    spec = run.spec
    return RunNode(
        run=run.id,
        kind=run.kind,
        state=run.state,
        dataset=run.dataset,
        dataset_digest=spec.dataset_digest,
        actor_name=run.actor_name,
        profile=spec.actor,
        model=run.model,
        plan_digest=spec.plan_digest,
        sampler=spec.sampler.id,
        started_from=spec.initial_checkpoint,
        learns_from=_source(run),
        through_batch=through,
    )


def _step(update: Update, checkpoint: str | None) -> UpdateNode:
    contributions = update.contributions
    return UpdateNode(
        run=update.run,
        update=update.id,
        batch=update.batch,
        checkpoint=checkpoint,
        loss=update.loss,
        learning_rate=update.learning_rate,
        sampled_from=update.sampler,
        sampler_after=update.sampler_after,
        groups=len({one.group for one in contributions if one.group is not None}),
        trials=len({one.trial for one in contributions if one.trial is not None}),
        rows=sum(one.row is not None for one in contributions),
        spans=count_spans(update),
        trained_tokens=sum(one.trained_tokens for one in contributions),
        value=update.metrics.get("loss"),
    )


def _use(run: Run) -> RunUse:
    return RunUse(
        run=run.id,
        kind=run.kind,
        state=run.state,
        model=run.model,
        learns_from=_source(run),
        dataset=run.dataset,
        actor_name=run.actor_name,
        created_at=run.created_at,
    )


def _source(run: Run) -> str | None:
    plan = run.spec.plan
    source = plan.source if isinstance(plan, SupervisedPlan) else None
    return source.run if isinstance(source, RunSource) else None
