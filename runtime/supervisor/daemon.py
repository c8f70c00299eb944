"""The supervisor process: starts the parts, restarts what crashes, stops them in order.

It runs in a session of its own, so it outlives the terminal that started it. Each part leads
a process group, and the kernel kills it when the supervisor dies (PDEATHSIG), so that no part
ever works without one. A crashed part is restarted after a delay that doubles up to a limit and
starts anew once the part has been steady. For the same reason a full disk does not end it: what
it cannot write is left out, and the state file is written again as soon as that is possible.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import anyio
import anyio.abc

from runtime.home import Home
from runtime.supervisor.parts import PARTS, Part
from runtime.supervisor.settings import Settings, read_settings
from runtime.supervisor.state import (
    PartStatus,
    StackState,
    acquire,
    kill_group,
    start_ticks,
    sweep,
    write_state,
)

FIRST_DELAY_SEC = 0.25
LAST_DELAY_SEC = 30.0
STEADY_SEC = 60.0
STOP_GRACE_SEC = 20.0
GATEWAY_HEAD_START_SEC = 30.0
RECORD_AGAIN_SEC = 2.0
LOG_BYTES = 32 << 20

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """Keeps the parts of one home alive until it is told to stop."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._stopping = anyio.Event()
        self._behind = anyio.Event()  # set while the state file says less than we know
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._state = StackState(
            pid=os.getpid(),
            ticks=start_ticks(os.getpid()),
            started_at=time.time(),
            version=program_version(),
            parts={part.name: PartStatus(name=part.name) for part in PARTS},
        )

    async def run(self) -> None:
        """Start everything and keep it up; returns after SIGTERM or SIGINT, all parts stopped.

        Cancelling ends the parts at once.

        Raises:
            OSError: the first state cannot be written, so nothing was started: without it no
                command could find this supervisor.
        """
        write_state(self._home, self._state)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as group:
                group.start_soon(self._start, group)
                group.start_soon(self._catch_up)
                async for _ in signals:
                    break
                self._stopping.set()
                await self._stop()
                group.cancel_scope.cancel()

    async def _start(self, group: anyio.abc.TaskGroup) -> None:
        gateway, *others = PARTS
        group.start_soon(self._keep, gateway)
        await self._await_gateway()
        for part in others:
            group.start_soon(self._keep, part)

    async def _await_gateway(self) -> None:
        """Give the gateway time to migrate; the others retry on their own after that."""
        with anyio.move_on_after(GATEWAY_HEAD_START_SEC):
            while True:
                try:
                    stream = await anyio.connect_unix(self._home.gateway_socket)
                except OSError:
                    await anyio.sleep(0.05)
                else:
                    await stream.aclose()
                    return

    async def _keep(self, part: Part) -> None:
        delay = FIRST_DELAY_SEC
        while not self._stopping.is_set():
            began = time.monotonic()
            await self._run_once(part)
            if self._stopping.is_set():
                return
            if time.monotonic() - began >= STEADY_SEC:
                delay = FIRST_DELAY_SEC
            await anyio.sleep(delay)
            delay = min(delay * 2, LAST_DELAY_SEC)
            restarts = self._state.parts[part.name].restarts + 1
            self._update(part, restarts=restarts)

    async def _run_once(self, part: Part) -> None:
        """One life of a part, from its start to its end; none when it cannot be started."""
        try:
            process = _spawn(part, self._home, self._settings)
        except OSError as error:  # no room for its log, or no more processes
            say(f"{part.name} cannot be started: {error}")
            self._update(part, state="backoff")
            return
        self._processes[part.name] = process
        self._update(
            part,
            pid=process.pid,
            ticks=start_ticks(process.pid),
            state="running",
            started_at=time.time(),
        )
        code = await _ended(process)
        kill_group(process.pid)
        say(f"{part.name} (pid {process.pid}) ended with {code}")
        state = "stopped" if self._stopping.is_set() else "backoff"
        self._update(part, pid=None, ticks=None, state=state, last_exit=code)

    async def _stop(self) -> None:
        """End the parts in reverse order, each within its grace, then by force."""
        for part in reversed(PARTS):
            process = self._processes.get(part.name)
            if process is None or process.returncode is not None:
                continue
            process.terminate()
            with anyio.move_on_after(STOP_GRACE_SEC):
                await _ended(process)
            if process.returncode is None:
                say(f"{part.name} (pid {process.pid}) did not stop in time")
                kill_group(process.pid)
                await _ended(process)
            kill_group(process.pid)

    def _update(self, part: Part, **changes: object) -> None:
        status = self._state.parts[part.name].model_copy(update=changes)
        self._state = self._state.model_copy(
            update={"parts": {**self._state.parts, part.name: status}}
        )
        self._record()

    def _record(self) -> None:
        """Replace the state file; when that fails the old one stays, and it is tried again."""
        try:
            write_state(self._home, self._state)
        except OSError as error:
            if not self._behind.is_set():
                say(f"the state file cannot be written: {error}")
                self._behind.set()
        else:
            if self._behind.is_set():
                say("the state file is written again")
                self._behind = anyio.Event()

    async def _catch_up(self) -> None:
        """Write a state that could not be written: `status` goes by it, also when all is calm."""
        while True:
            await self._behind.wait()
            await anyio.sleep(RECORD_AGAIN_SEC)
            self._record()


def _spawn(part: Part, home: Home, settings: Settings) -> "subprocess.Popen[bytes]":
    """Start a part in its own group, tied to our life; only the main thread may call this."""
    path = part.log(home)
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as log:
        return subprocess.Popen(
            part.command(home, settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.root,
            env=part.environment(os.environ, settings),
            start_new_session=True,
            preexec_fn=_die_with(os.getpid()),
        )


async def _ended(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a process and reap it; cancelling leaves it as it is."""
    if process.returncode is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()


def supervise(home: Home) -> int:
    """Be the supervisor of a home; 0 also when another one already is."""
    home.create()
    lock = acquire(home)
    if lock is None:
        return 0
    with lock:
        settings = read_settings(home, os.environ)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        for name in sweep(home):
            say(f"swept {name}")
        say(f"supervising {home.root} as pid {os.getpid()}")
        anyio.run(Supervisor(home, settings).run)
        sweep(home)
        say("stopped")
    return 0


def program_version() -> str:
    """Version of the installed program; a bare checkout has none."""
    try:
        return version("practicum")
    except PackageNotFoundError:
        return "0+checkout"


def say(text: str) -> None:
    """One dated line to the supervisor's log, which is its stderr; lost where there is no room."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with suppress(OSError):
        sys.stderr.write(f"{stamp} supervisor: {text}\n")
        sys.stderr.flush()


def _die_with(parent: int) -> Callable[[], None]:
    """What a child runs before exec: be killed with its parent, even if it has just died."""

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
