"""Reading what a run recorded: events, groups, trials, updates, checkpoints, result, logs."""

from typing import Annotated, Literal

import anyio
from pydantic import Field

from runtime.client import OperatorClient
from specs.base import Contract
from specs.errors import Conflict, ErrorCode, ErrorObject, PracticumError, Unavailable
from specs.events import Event, EventPage, EventType
from specs.operator_api import CheckpointPage, GroupPage, LogPage, TrialPage
from specs.records import Trial
from specs.run import RunResult, RunState
from tools.checkpoint import page_text as checkpoints_text
from tools.context import Context
from tools.fields import Cli, Cursor, Duration, Input, Limit, RunRef
from tools.registry import READ, operation
from tools.tables import cell, number, pairs, table
from tools.views import UpdateView

FOLLOW_POLL_SEC = 20.0
BLOCKED_POLL_SEC = 1.0
TELL_SEC = 10.0
"""How often waiting for an event is told as progress, so that a client knows of it."""


class Events(Input):
    run: RunRef
    after: Annotated[int, Field(ge=0, description="Cursor: the last sequence number seen")] = 0
    limit: Limit = 100
    wait: Annotated[
        Duration, Field(description="Wait so long for an event when there is none yet", le=60)
    ] = 0.0
    follow: Annotated[
        bool,
        Field(description="Read on until the run ends, or the timeout passes"),
        Cli(agent=False),
    ] = False
    timeout: Annotated[
        Duration | None,
        Field(description="With --follow: give up after this long"),
        Cli(agent=False),
    ] = None


class Groups(Input):
    run: RunRef
    limit: Limit = 50
    cursor: Cursor = None


class Trials(Input):
    run: RunRef
    batch: Annotated[int | None, Field(ge=0, description="Of this batch alone")] = None
    group: Annotated[str | None, Field(description="Of this group alone")] = None
    trial: Annotated[str | None, Field(description="This trial alone")] = None
    all: Annotated[bool, Field(description="Also abandoned trials, which do not count")] = False
    limit: Limit = 20
    cursor: Cursor = None


class Paged(Input):
    run: RunRef
    limit: Limit = 20
    cursor: Cursor = None


class Result(Input):
    run: RunRef


class Logs(Input):
    run: RunRef
    source: Annotated[
        Literal["worker", "setup", "harness", "verifier"] | None,
        Field(description="Of this source alone"),
    ] = None
    trial: Annotated[str | None, Field(description="Of this trial alone")] = None
    limit: Limit = 20
    cursor: Cursor = None


class UpdateViewPage(Contract):
    items: list[UpdateView]
    next: str | None = None


def event_line(event: Event) -> str:
    """One event on one line."""
    data = " ".join(f"{key}={cell(value)}" for key, value in event.data.items())
    return f"{event.seq:>6}  {event.at}  {event.type:<20}  {data}".rstrip()


def _events_text(page: EventPage) -> str:
    lines = [event_line(event) for event in page.events]
    if not page.terminal:
        lines.append(f"more: --after {page.next}")
    return "\n".join(lines)


def _groups_text(page: GroupPage) -> str:
    rows = [(g.id, g.batch, g.index, g.task, g.size, g.sampler) for g in page.items]
    return table(("group", "batch", "place", "task", "size", "sampler"), rows, more=page.next)


def _trial_row(trial: Trial) -> tuple[object, ...]:
    assessment = trial.assessment
    scored = None if assessment is None else assessment.reward
    return (
        trial.id,
        f"{trial.batch}.{trial.index}",
        trial.task,
        trial.settled.outcome if trial.settled else trial.state,
        scored if scored is not None else (assessment.reason if assessment else None),
        trial.eligible if trial.ineligible_reason is None else trial.ineligible_reason,
        trial.advantage,
        trial.settled.seal.interactions if trial.settled and trial.settled.seal else None,
    )


def _trials_text(page: TrialPage) -> str:
    head = ("trial", "slot", "task", "outcome", "reward", "eligible", "advantage", "calls")
    return table(head, [_trial_row(trial) for trial in page.items], more=page.next)


def _updates_text(page: UpdateViewPage) -> str:
    rows = [
        (
            u.id,
            u.batch,
            u.state,
            u.contributions,
            u.trained_tokens,
            u.metrics.get("loss"),
            u.metrics.get("kl_sample_train_v1"),
            u.reason,
        )
        for u in page.items
    ]
    head = ("update", "batch", "state", "trials", "tokens", "loss", "kl", "reason")
    return table(head, rows, more=page.next)


def _result_text(result: RunResult) -> str:
    counts = pairs(
        {
            "run": result.run,
            "state": result.state,
            "success": None if result.success is None else number(result.success),
            "mean reward": result.reward_mean,
            "planned slots": result.planned_slots,
            "trials started": result.trials_started,
            "trials settled": result.trials_settled,
            "trials scored": result.trials_scored,
            "trials eligible": result.trials_eligible,
            "trials abandoned": result.trials_abandoned,
            "launch failed": result.launch_failed,
            "distinct tasks": result.distinct_tasks,
            "batches": result.batches,
            "updates": result.updates,
            "checkpoints": result.checkpoints,
            "prompt tokens": result.prompt_tokens,
            "output tokens": result.output_tokens,
            "seconds": result.seconds,
            **{
                f"budget {one.name}": f"{one.used:.0f} of {one.limit:g}"
                + (" (extended)" if one.extended else "")
                for one in result.budgets
            },
            "environment versions": len(result.environment_versions),
        }
    )
    families = list(result.by_family.items())
    return f"{counts}\n{table(('family', 'success'), families)}" if families else counts


def _logs_text(page: LogPage) -> str:
    pieces = [
        f"--- {piece.seq} {piece.source} {piece.trial or ''} {piece.at}\n{piece.text.rstrip()}"
        for piece in page.items
    ]
    return "\n".join([*pieces, *([f"more: --cursor {page.next}"] if page.next else [])])


@operation("run", "events", READ, text=_events_text)
async def events(context: Context, request: Events) -> EventPage:
    """Read events after a cursor; repeat with `after` = `next` until `terminal`.

    With `follow` it reads on until the run ends, each event as it comes, and stops with an
    error when the run is blocked or the timeout passes; resume with `after`. On cancel nothing
    is lost: the cursor is yours.
    """
    async with context.gateway() as gateway:
        if not request.follow:
            return await _awaited(context, gateway, request)
        cursor, wait = request.after, BLOCKED_POLL_SEC
        with anyio.move_on_after(request.timeout or float("inf")):
            while True:
                page = await gateway.events(request.run, after=cursor, wait=wait)
                for event in page.events:
                    await _emit(context, event)
                cursor, wait = page.next, FOLLOW_POLL_SEC
                if page.terminal:
                    return EventPage(events=[], next=cursor, terminal=True)
                if not page.events:
                    await _refuse_blocked(gateway, request.run)
                elif page.events[-1].type is EventType.RUN_BLOCKED:
                    wait = BLOCKED_POLL_SEC
    raise Unavailable(
        f"Run {request.run} has not ended within {request.timeout:.0f} s.",
        code=ErrorCode.WAIT_TIMED_OUT,
        object=ErrorObject(type="run", id=request.run),
        next=f"Read on: practicum run events {request.run} --follow --after {cursor}",
    )


@operation("run", "groups", READ, text=_groups_text)
async def groups(context: Context, request: Groups) -> GroupPage:
    """List sampling groups: one task, one setup, some attempts, all on one sampler."""
    async with context.gateway() as gateway:
        return await gateway.groups(request.run, limit=request.limit, cursor=request.cursor)


@operation("run", "trials", READ, text=_trials_text)
async def trials(context: Context, request: Trials) -> TrialPage:
    """List counted trials in slot order: outcome, reward or reason, eligibility, advantage."""
    async with context.gateway() as gateway:
        if request.trial is not None:
            trial = await gateway.trial(request.trial)
            return TrialPage(items=[trial])
        return await gateway.trials(
            request.run,
            batch=request.batch,
            group=request.group,
            counted=None if request.all else True,
            limit=request.limit,
            cursor=request.cursor,
        )


@operation("run", "updates", READ, text=_updates_text)
async def updates(context: Context, request: Paged) -> UpdateViewPage:
    """List updates with state and metrics; `update show` lists the trials behind one."""
    async with context.gateway() as gateway:
        page = await gateway.updates(request.run, limit=request.limit, cursor=request.cursor)
    return UpdateViewPage(items=[UpdateView.of(update) for update in page.items], next=page.next)


@operation("run", "checkpoints", READ, text=checkpoints_text)
async def checkpoints(context: Context, request: Paged) -> CheckpointPage:
    """List the checkpoints that a run saved, also a failed one."""
    async with context.gateway() as gateway:
        return await gateway.checkpoints(request.run, limit=request.limit, cursor=request.cursor)


@operation("run", "result", READ, text=_result_text)
async def result(context: Context, request: Result) -> RunResult:
    """Show counts that must not be mixed up (slots, trials, tasks, updates) and the scores."""
    async with context.gateway() as gateway:
        return await gateway.result(request.run)


@operation("run", "logs", READ, text=_logs_text)
async def logs(context: Context, request: Logs) -> LogPage:
    """Read logs in bounded pieces, oldest first."""
    async with context.gateway() as gateway:
        return await gateway.logs(
            request.run,
            source=request.source,
            trial=request.trial,
            limit=request.limit,
            cursor=request.cursor,
        )


async def _awaited(context: Context, gateway: OperatorClient, request: Events) -> EventPage:
    """A page of events, waited for as long as was asked; on cancel the cursor still holds."""
    until = anyio.current_time() + request.wait
    while True:
        left = max(0.0, until - anyio.current_time())
        page = await gateway.events(
            request.run, after=request.after, limit=request.limit, wait=min(left, TELL_SEC)
        )
        if page.events or page.terminal or left <= TELL_SEC:
            return page
        await context.progress(f"no event after {request.after} yet")


async def _refuse_blocked(gateway: OperatorClient, run: str) -> None:
    """Stop following a run in which nothing happens until an operator acts."""
    found = await gateway.run(run)
    if found.state is not RunState.BLOCKED:
        return
    if found.reason is not None:
        raise PracticumError.from_problem(found.reason)
    raise Conflict(
        f"Run {found.id} is blocked.",
        object=ErrorObject(type="run", id=found.id),
        next=f"See why: practicum run show {found.id}",
    )


async def _emit(context: Context, event: Event) -> None:
    if context.emit is not None:
        await context.emit(event, event_line(event))
    else:
        await context.progress(event_line(event))
