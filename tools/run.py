"""Runs: starting an evaluation, finding runs, waiting for one, extending and cancelling one."""

from typing import Annotated

import anyio
from pydantic import Field

from runtime.client import OperatorClient
from specs.errors import ErrorCode, ErrorObject, Unavailable
from specs.operator_api import Extend
from specs.plans import Budget
from specs.run import Run, RunState
from tools.context import Context
from tools.fields import Cursor, Duration, Input, Limit, RunRef
from tools.registry import READ, Traits, operation
from tools.start import Start, StartResult, start, start_text
from tools.views import RunRow, RunRows, RunView, rows_text, run_text

LONGEST_POLL_SEC = 20.0


class ListRuns(Input):
    limit: Limit = 20
    cursor: Cursor = None


class OneRun(Input):
    run: RunRef


class Extension(Input):
    run: RunRef
    run_tokens: Annotated[
        int | None, Field(ge=1, description="New limits.run.max_tokens, in all")
    ] = None
    run_seconds: Annotated[
        float | None, Field(gt=0, description="New limits.run.max_sec, in all")
    ] = None
    update_tokens: Annotated[
        int | None, Field(ge=1, description="New limits.update.max_tokens")
    ] = None
    update_seconds: Annotated[
        float | None, Field(gt=0, description="New limits.update.max_sec")
    ] = None


class Wait(Input):
    run: RunRef
    timeout: Annotated[
        Duration, Field(description="Give up after this long, such as 10m", le=86_400)
    ] = 600.0


class Waited(RunView):
    """A run that was waited for."""

    @property
    def ok(self) -> bool:
        """Whether it ended well; the exit code follows."""
        return self.state == RunState.COMPLETED


@operation("run", "start", Traits(spends=True), text=start_text)
async def start_run(context: Context, request: Start) -> StartResult:
    """Start an evaluation: attempts at every selected task with one fixed agent setup.

    The run is durable: it goes on when this command or its terminal ends, and any terminal can
    follow it by id. Training plans are refused here; use `train start`.
    """
    return await start(context, request, "run")


@operation("run", "list", READ, text=rows_text)
async def list_runs(context: Context, request: ListRuns) -> RunRows:
    """List runs, newest first."""
    async with context.gateway() as gateway:
        page = await gateway.runs(limit=request.limit, cursor=request.cursor)
    rows = [
        RunRow(
            id=run.id,
            kind=run.kind,
            state=run.state,
            created_at=run.created_at,
            dataset=run.dataset,
            actor_name=run.actor_name,
            model=run.model,
        )
        for run in page.items
    ]
    return RunRows(items=rows, next=page.next)


@operation("run", "show", READ, text=run_text)
async def show(context: Context, request: OneRun) -> RunView:
    """Show a run: state, reason, pinned digests, plan, sampler and fingerprints."""
    async with context.gateway() as gateway:
        return RunView.of(await gateway.run(request.run))


@operation("run", "wait", READ, text=run_text)
async def wait(context: Context, request: Wait) -> Waited:
    """Wait until a run has ended, or is blocked and needs an operator.

    Reports progress while it waits. The run does not depend on it; cancelling stops the waiting
    alone. The command exits 1 when the run did not complete.
    """
    async with context.gateway() as gateway:
        run = await gateway.run(request.run)
        with anyio.move_on_after(request.timeout):
            run = await settled(context, gateway, run)
    if run.state.terminal or run.state is RunState.BLOCKED:
        return Waited.of(run)
    raise Unavailable(
        f"Run {run.id} is still {run.state} after {request.timeout:.0f} s.",
        code=ErrorCode.WAIT_TIMED_OUT,
        object=ErrorObject(type="run", id=run.id),
        next=f"Wait again: practicum run wait {run.id} --timeout 10m",
    )


@operation("run", "cancel", Traits(destructive=True, idempotent=True), text=run_text)
async def cancel(context: Context, request: OneRun) -> RunView:
    """Ask for the cancellation of a run; its sandboxes end and every record is settled.

    Repeating it is harmless. Checkpoints that were saved stay.
    """
    async with context.gateway() as gateway:
        return RunView.of(await gateway.cancel(request.run))


@operation("run", "extend", Traits(spends=True), text=run_text)
async def extend(context: Context, request: Extension) -> RunView:
    """Raise a budget of a run that has spent it; the run goes on from its records.

    Give the new total, not what is to be added. The plan stays as it was admitted; what was
    raised is told by the event `run.extended` and shown in the result.
    """
    more = Extend(
        run=Budget(max_tokens=request.run_tokens, max_sec=request.run_seconds),
        update=Budget(max_tokens=request.update_tokens, max_sec=request.update_seconds),
    )
    async with context.gateway() as gateway:
        return RunView.of(await gateway.extend(request.run, more))


async def settled(context: Context, gateway: OperatorClient, run: Run) -> Run:
    """Read on until the run ends or is blocked; what happens is told as progress."""
    after = run.last_event
    while not run.state.terminal and run.state is not RunState.BLOCKED:
        page = await gateway.events(run.id, after=after, wait=LONGEST_POLL_SEC)
        for event in page.events:
            await context.progress(f"{event.seq} {event.type}")
        after = page.next
        run = await gateway.run(run.id)
    return run
