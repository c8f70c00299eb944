"""Lineage of a checkpoint or of a run, back to the tokens and forward to what used it."""

from typing import Annotated

from pydantic import Field

from runtime.analysis.lineage import Lineage, Section, checkpoint_lineage, run_lineage
from tools.checkpoint import OneCheckpoint
from tools.context import Context
from tools.fields import Cursor, Input, Limit, RunRef
from tools.registry import READ, operation
from tools.tables import pairs, short, table

Show = Annotated[
    Section, Field(description="The head of every section, or one section page by page")
]


class OfCheckpoint(OneCheckpoint):
    show: Show = "overview"
    limit: Limit = 20
    cursor: Cursor = None


class OfRun(Input):
    run: RunRef
    show: Show = "overview"
    limit: Limit = 20
    cursor: Cursor = None


def _text(lineage: Lineage) -> str:
    parts = {
        "overview": (_ancestors, _updates, _spans, _runs, _groups),
        "updates": (_updates,),
        "spans": (_spans,),
        "runs": (_runs,),
        "groups": (_groups,),
    }[lineage.show]
    head = pairs(
        {
            "lineage of": lineage.subject,
            "on checkpoint": None
            if lineage.checkpoint is None or lineage.checkpoint.id == lineage.subject
            else lineage.checkpoint.id,
        }
    )
    more = [] if lineage.next is None else [f"more: --show {lineage.show} --cursor {lineage.next}"]
    return "\n\n".join([head, *(part(lineage) for part in parts), *more])


def _ancestors(lineage: Lineage) -> str:
    rows = [
        (
            node.run,
            node.kind,
            node.through_batch,
            node.dataset,
            f"{node.actor_name} {short(node.profile)}",
            node.started_from or node.model,
            node.learns_from,
        )
        for node in lineage.ancestors
    ]
    head = ("run", "kind", "to batch", "dataset", "profile", "started from", "learns from")
    note = "\n(older ancestors are left out)" if lineage.cut else ""
    return f"Back to the base model\n{table(head, rows)}{note}"


def _updates(lineage: Lineage) -> str:
    rows = [
        (
            step.update,
            step.batch,
            step.checkpoint,
            step.loss,
            step.value,
            step.groups,
            step.trials,
            step.spans,
            step.trained_tokens,
        )
        for step in lineage.updates
    ]
    head = (
        "update",
        "batch",
        "checkpoint",
        "loss",
        "value",
        "groups",
        "trials",
        "spans",
        "tokens",
    )
    title = _title("Updates", len(rows), lineage.updates_total)
    return f"{title}\n{table(head, rows)}"


def _spans(lineage: Lineage) -> str:
    rows = [
        (
            span.update,
            span.trial or (f"line {span.row.line}" if span.row else None),
            span.task,
            span.call,
            span.tokens if span.start is None else f"{span.start}…{span.end}",
            span.weight,
            span.reward,
            span.advantage,
        )
        for span in lineage.spans
    ]
    head = ("update", "trial", "task", "call", "tokens", "weight", "reward", "advantage")
    title = _title("Token spans, with the weight of each token", len(rows), lineage.spans_total)
    return f"{title}\n{table(head, rows)}"


def _runs(lineage: Lineage) -> str:
    rows = [
        (use.run, use.kind, use.state, use.dataset, use.model, use.learns_from)
        for use in lineage.runs
    ]
    head = ("run", "kind", "state", "dataset", "model", "learns from")
    return f"Later runs that used it\n{table(head, rows)}"


def _groups(lineage: Lineage) -> str:
    rows = [
        (one.run, one.group.id, one.group.batch, one.group.task, one.group.size)
        for one in lineage.groups
    ]
    head = ("run", "group", "batch", "task", "trials")
    return f"Groups that sampled from it\n{table(head, rows)}"


def _title(text: str, shown: int, total: int) -> str:
    return text if shown == total else f"{text} ({shown} of {total})"


@operation("checkpoint", "lineage", READ, text=_text)
async def of_checkpoint(context: Context, request: OfCheckpoint) -> Lineage:
    """Show what moved a checkpoint, token span by token span, and what used it since.

    Back: every update on the way, the trials and token spans in each with the weight of their
    tokens, the runs with profile and dataset, to the base model. Forward: runs that started
    from it and sampling groups recorded against it. `show` one section to read all of it page
    by page; tokens are read with `run interactions`, by trial and call.
    """
    async with context.gateway() as gateway:
        return await checkpoint_lineage(
            gateway, request.checkpoint, request.show, request.limit, request.cursor
        )


@operation("run", "lineage", READ, text=_text)
async def of_run(context: Context, request: OfRun) -> Lineage:
    """Show where a run's model came from, what its trials moved, and what used it since.

    The sections are those of `checkpoint lineage`. Forward: runs that start from its checkpoints
    or learn from its trials, and every group that sampled from what it saved.
    """
    async with context.gateway() as gateway:
        return await run_lineage(gateway, request.run, request.show, request.limit, request.cursor)
