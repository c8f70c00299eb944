"""The local stack: `up`, `status`, `down`, and the start that other operations cause."""

from collections.abc import Mapping
from typing import Annotated

import anyio.to_thread
from pydantic import Field

from runtime.home import Home
from runtime.supervisor import control
from runtime.supervisor.control import StackReport
from runtime.supervisor.health import answers
from runtime.supervisor.settings import LEASE, PREFIX, RUNS, STAGE, THREADS
from specs.base import Contract
from tools.context import Context
from tools.fields import Duration, Input
from tools.registry import READ_LOCAL, Traits, operation
from tools.tables import pairs, table


class Up(Input):
    timeout: Annotated[Duration, Field(description="How long to wait for health")] = (
        control.UP_TIMEOUT_SEC
    )
    threads: Annotated[
        int | None, Field(ge=1, description="Threads of compute, if this starts it")
    ] = None
    lease: Annotated[
        Duration | None, Field(description="Lease of the worker, if this starts it")
    ] = None
    runs: Annotated[
        int | None, Field(ge=1, description="Runs at work at once, if this starts it")
    ] = None
    prefix_bytes: Annotated[
        int | None,
        Field(ge=0, description="Memory of compute's prefix cache, if this starts it"),
    ] = None
    stage_bytes: Annotated[
        int | None,
        Field(ge=1 << 20, description="Evidence that may wait for the store, if this starts it"),
    ] = None


class Down(Input):
    timeout: Annotated[Duration, Field(description="How long to wait for the end")] = (
        control.DOWN_TIMEOUT_SEC
    )


class Status(Input):
    pass


class Stopped(Contract):
    """What `down` did."""

    home: str
    stopped: bool
    """False when nothing was running."""


def _report_text(report: StackReport) -> str:
    if not report.running:
        return f"No stack runs in {report.home}."
    rows = [
        (
            part.name,
            "healthy" if part.healthy else part.state,
            part.pid,
            part.uptime_sec,
            part.restarts,
            part.last_exit,
        )
        for part in report.parts
    ]
    head = pairs({"home": report.home, "supervisor": report.pid})
    return f"{head}\n{table(('part', 'health', 'pid', 'uptime s', 'restarts', 'last exit'), rows)}"


def _stopped_text(stopped: Stopped) -> str:
    return (
        f"Stopped the stack of {stopped.home}."
        if stopped.stopped
        else f"No stack runs in {stopped.home}."
    )


@operation("stack", "up", Traits(idempotent=True, local=True, agent=False), text=_report_text)
async def up(context: Context, request: Up) -> StackReport:
    """Start gateway, proxy, compute and worker in the background and wait until all are healthy.

    Harmless when they run. The stack outlives the terminal; `practicum down` ends it.
    """
    report = await anyio.to_thread.run_sync(control.status, context.require_local("up"))
    if not report.healthy:
        flags = {
            THREADS: request.threads,
            LEASE: request.lease,
            RUNS: request.runs,
            PREFIX: request.prefix_bytes,
            STAGE: request.stage_bytes,
        }
        chosen = {name: str(value) for name, value in flags.items() if value is not None}
        await _start(context, request.timeout, chosen)
        report = await anyio.to_thread.run_sync(control.status, context.home)
    return report


@operation("stack", "status", READ_LOCAL, text=_report_text)
async def status(context: Context, _: Status) -> StackReport:
    """Show each process with its health, uptime and restarts; starts nothing.

    The command exits 1 unless all four are healthy.
    """
    return await anyio.to_thread.run_sync(control.status, context.require_local("status"))


@operation(
    "stack",
    "down",
    Traits(destructive=True, idempotent=True, local=True, agent=False),
    text=_stopped_text,
)
async def down(context: Context, request: Down) -> Stopped:
    """Stop the four processes in order and wait for them.

    Runs that were at work are queued again and go on after the next `up`.
    """
    home = context.require_local("down")
    stopped = await anyio.to_thread.run_sync(lambda: control.down(home, timeout=request.timeout))
    return Stopped(home=str(home.root), stopped=stopped)


async def ensure_stack(context: Context) -> None:
    """Have a gateway that answers, for an operation that needs one.

    Raises:
        Unavailable: the stack cannot be started, or must not be (`PRACTICUM_NO_AUTOSTART=1`).
    """
    if await anyio.to_thread.run_sync(_gateway_answers, context.home):
        return
    if not control.may_start(context.home):
        raise control.not_running(context.home)
    await context.progress(f"starting the stack of {context.home.root}")
    await _start(context, control.UP_TIMEOUT_SEC)


async def _start(context: Context, timeout: float, flags: Mapping[str, str] | None = None) -> None:
    """Start the stack and make the models of this machine known to its gateway.

    On cancel the stack goes on starting in the background.
    """
    from tools.model import register_local_models

    await anyio.to_thread.run_sync(
        lambda: control.up(context.home, timeout=timeout, flags=flags), abandon_on_cancel=True
    )
    await register_local_models(context)


def _gateway_answers(home: Home) -> bool:
    return home.gateway_socket.exists() and answers(home.gateway_socket)
