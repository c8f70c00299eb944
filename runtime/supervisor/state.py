"""What a supervisor leaves for others to read: the lock, the state file, and the sweep.

The lock (`flock` on `<home>/run/lock`) says whether a supervisor lives. The state file says
which processes it runs; it is replaced as a whole at each change and means nothing without the
lock. A process is named by pid and start time, so that a reused pid is never mistaken for ours.
"""

import fcntl
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

from pydantic import ValidationError

from runtime import exclusive
from runtime.home import Home
from specs.base import Contract

type PartState = Literal["starting", "running", "backoff", "stopped"]


class PartStatus(Contract):
    """One process as its supervisor sees it."""

    name: str
    pid: int | None = None
    ticks: int | None = None
    """Start time of the pid in clock ticks since boot."""
    state: PartState = "stopped"
    started_at: float | None = None
    restarts: int = 0
    """Starts after the first one."""
    last_exit: int | None = None
    """Exit code of the last ended process; negative = the signal that ended it."""


class StackState(Contract):
    """The state file."""

    pid: int
    ticks: int | None
    started_at: float
    version: str
    parts: dict[str, PartStatus]


def lock_path(home: Home) -> Path:
    return home.run / "lock"


def state_path(home: Home) -> Path:
    return home.run / "supervisor.json"


def acquire(home: Home, patience: float = 2.0) -> IO[str] | None:
    """The lock, held until the returned file is closed; None when another process keeps it.

    `status` asks by taking the lock for an instant, hence the patience.
    """
    return exclusive.acquire(lock_path(home), patience)


def is_locked(home: Home) -> bool:
    """Whether a supervisor of this home lives."""
    try:
        file = lock_path(home).open("r")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def write_state(home: Home, state: StackState) -> None:
    """Replace the state file atomically; when that fails (`OSError`) nothing has changed."""
    descriptor, name = tempfile.mkstemp(dir=home.run, prefix=".state-")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(state.model_dump_json())
        path.replace(state_path(home))
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def read_state(home: Home) -> StackState | None:
    """The state file, or None where there is none that can be read."""
    try:
        return StackState.model_validate_json(state_path(home).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def start_ticks(pid: int) -> int | None:
    """Start time of a living process (field 22 of its stat), None for a dead one or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def lives(pid: int | None, ticks: int | None) -> bool:
    """Whether this very process is still there."""
    return pid is not None and ticks is not None and start_ticks(pid) == ticks


def kill_group(pid: int) -> None:
    """End every process of a group at once; each part leads a group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def sweep(home: Home) -> list[str]:
    """Remove what a killed stack left; the caller holds the lock. Returns what was swept."""
    swept: list[str] = []
    left = read_state(home)
    for part in left.parts.values() if left else ():
        if part.pid is not None and lives(part.pid, part.ticks):
            kill_group(part.pid)
            swept.append(f"{part.name} (pid {part.pid})")
    for path in (home.gateway_socket, home.proxy_socket, home.compute_socket):
        if path.exists():
            path.unlink()
            swept.append(path.name)
    for path in home.run.glob(".state-*"):
        path.unlink()
    return swept
