"""Starting, stopping and looking at a stack from a command.

Every function is quick when there is nothing to do, and none keeps state of its own: the lock,
the state file and the sockets tell everything.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from runtime.home import Home
from runtime.supervisor.health import healthy
from runtime.supervisor.parts import PARTS, Part, code_folder
from runtime.supervisor.settings import read_settings
from runtime.supervisor.state import (
    PartState,
    PartStatus,
    StackState,
    is_locked,
    lives,
    read_state,
)
from specs.base import Contract
from specs.errors import ErrorObject, Unavailable

UP_TIMEOUT_SEC = 120.0
DOWN_TIMEOUT_SEC = 120.0
CRASHES = 3
"""So many ends of a part while `up` waits are a failure, not a delay."""
TAIL_LINES = 15


class PartReport(Contract):
    """One process of the stack."""

    name: str
    pid: int | None
    state: PartState
    healthy: bool
    uptime_sec: float | None
    restarts: int
    last_exit: int | None
    log: str


class StackReport(Contract):
    """The stack of one home."""

    home: str
    running: bool
    """A supervisor lives."""
    healthy: bool
    """It and all four parts work."""
    pid: int | None
    uptime_sec: float | None
    parts: list[PartReport]

    @property
    def ok(self) -> bool:
        """The exit code of `status` follows."""
        return self.healthy


def up(
    home: Home, *, timeout: float = UP_TIMEOUT_SEC, flags: Mapping[str, str] | None = None
) -> StackReport:
    """Start the stack unless it runs, and wait until every part is healthy.

    `flags` are settings by their variables; they change nothing about a stack that runs.

    Raises:
        InvalidInput: the settings are wrong; nothing was started.
        Unavailable: `stack_unavailable` with the end of the log of the part that fails.
    """
    home.create()
    environment = {**os.environ, **(flags or {})}
    read_settings(home, environment)
    daemon = None if is_locked(home) else _spawn(home, environment)
    before = _restarts(home) if daemon is None else {}
    deadline = time.monotonic() + timeout
    while True:
        report = status(home)
        if report.healthy:
            return report
        if not report.running and daemon is not None and daemon.poll() not in (None, 0):
            raise _failed(home, "supervisor", home.logs / "supervisor.log", "ended at once")
        for part in report.parts:
            if part.restarts - before.get(part.name, 0) >= CRASHES:
                raise _failed(home, part.name, Path(part.log), f"keeps ending ({part.last_exit})")
        if time.monotonic() > deadline:
            late = next((part for part in report.parts if not part.healthy), None)
            name, log = (late.name, Path(late.log)) if late else ("supervisor", home.logs)
            raise _failed(home, name, log, f"is not healthy after {timeout:.0f} s")
        if not report.running and (daemon is None or daemon.poll() == 0):
            daemon = _spawn(home, environment)
        time.sleep(0.05)


def down(home: Home, *, timeout: float = DOWN_TIMEOUT_SEC) -> bool:
    """Stop the stack and wait until its supervisor has gone; False when none was running.

    Raises:
        Unavailable: it did not stop in time.
    """
    deadline = time.monotonic() + timeout
    told: StackState | None = None
    while is_locked(home) or (told is not None and lives(told.pid, told.ticks)):
        state = read_state(home)
        unaware = state is not None and (told is None or state.pid != told.pid)
        if state is not None and unaware and lives(state.pid, state.ticks):
            os.kill(state.pid, signal.SIGTERM)
            told = state
        if time.monotonic() > deadline:
            raise _failed(home, "supervisor", home.logs / "supervisor.log", "does not stop")
        time.sleep(0.02)
    return told is not None


def status(home: Home) -> StackReport:
    """What runs, from the lock, the state file and the sockets."""
    running = is_locked(home)
    state = read_state(home) if running else None
    if state is not None and not lives(state.pid, state.ticks):
        state = None  # of an earlier stack: the supervisor that has the lock now wrote none yet
    parts = [_part_report(part, home, _status_of(part, state)) for part in PARTS]
    return StackReport(
        home=str(home.root),
        running=running,
        healthy=running and all(part.healthy for part in parts),
        pid=state.pid if state else None,
        uptime_sec=_since(state.started_at if state else None),
        parts=parts,
    )


def may_start(home: Home) -> bool:
    """Whether a command may start or await the stack: `PRACTICUM_NO_AUTOSTART=1` forbids it."""
    return os.environ.get("PRACTICUM_NO_AUTOSTART") != "1" or is_locked(home)


def not_running(home: Home) -> Unavailable:
    """The error of a command that needs a stack and must not start one."""
    return Unavailable(
        f"No stack runs in {home.root}, and PRACTICUM_NO_AUTOSTART=1 forbids starting one.",
        object=ErrorObject(type="stack", id=str(home.root)),
        next=f"Run: practicum up --home {home.root}",
    )


def _spawn(home: Home, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the supervisor in a session of its own; it outlives this command."""
    with (home.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "runtime.supervisor", "--home", str(home.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.root,
            env={**environment, "PYTHONPATH": code_folder()},
            start_new_session=True,
        )


def _status_of(part: Part, state: StackState | None) -> PartStatus:
    return state.parts[part.name] if state else PartStatus(name=part.name)


def _restarts(home: Home) -> dict[str, int]:
    state = read_state(home)
    return {name: part.restarts for name, part in state.parts.items()} if state else {}


def _part_report(part: Part, home: Home, seen: PartStatus) -> PartReport:
    return PartReport(
        name=part.name,
        pid=seen.pid,
        state=seen.state,
        healthy=healthy(part, home, seen),
        uptime_sec=_since(seen.started_at) if seen.pid else None,
        restarts=seen.restarts,
        last_exit=seen.last_exit,
        log=str(part.log(home)),
    )


def _since(moment: float | None) -> float | None:
    return None if moment is None else round(max(0.0, time.time() - moment), 1)


def _failed(home: Home, name: str, log: Path, what: str) -> Unavailable:
    return Unavailable(
        f"The {name} of {home.root} {what}. Last lines of {log}:\n{tail(log)}",
        object=ErrorObject(type="process", id=name),
        next=f"Read {log}, then run: practicum down; practicum up",
    )


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, read from its end."""
    if not path.is_file():
        return "(no log)"
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 16_384))
        text = file.read().decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:]) or "(empty log)"
