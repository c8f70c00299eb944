"""One running sandbox: start it, run commands, move files, stop it.

A sandbox ends with its worker: PID 1 watches the control socket, the fork server watches the
worker. What remains on disk has its intent in the run directory, for `sweep`.
"""

import json
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio import to_thread

from runtime.execution.sandbox import cgroups, files
from runtime.execution.sandbox.cache import Holds
from runtime.execution.sandbox.cgroups import Cgroups, Limits
from runtime.execution.sandbox.channel import (
    BoundedOutput,
    Sink,
    Streams,
    drain_to,
    feed_from,
    perform,
)
from runtime.execution.sandbox.errors import CommandTimedOut, SandboxFailed
from runtime.execution.sandbox.extract import Extracted, Select
from runtime.execution.sandbox.forward import Forwarder
from runtime.execution.sandbox.layout import Base, Layer
from runtime.execution.sandbox.options import Forward
from runtime.execution.sandbox.sandboxd.config import Launch, Overlay
from runtime.execution.sandbox.sandboxd.transfer import Bounds
from runtime.execution.sandbox.state import Intent, Process, RunDirectory, new_name
from runtime.execution.sandbox.supervisor import supervisor

type OnOutput = Callable[[bytes, str], Awaitable[None]]
"""Receives each piece of output with the name of its stream."""

_ERROR_LOG = "sandboxd.log"
_STOP_SECONDS = 10.0
_MIB = 1 << 20
_BOUNDS = Bounds(1024 * _MIB, 1024 * _MIB, 100_000)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a sandbox is made of."""

    state: Path
    base: Base
    layers: Sequence[Layer] = ()
    """Image layers, topmost first."""
    limits: Limits = field(default_factory=Limits)
    forwards: Sequence[Forward] = ()
    host_network: bool = False
    trial: str | None = None
    storage_mb: int | None = None
    shm_mb: int = 64
    max_file_bytes: int = 4096 * _MIB
    output_bytes: int = 4 * _MIB
    bounds: Bounds = _BOUNDS
    volatile: bool = True


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended by itself."""

    code: int
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Whether output was left out of the middle."""


@dataclass(slots=True)
class Sandbox:
    """A running sandbox. Make one with `start`; always `stop` it."""

    settings: Settings
    directory: RunDirectory
    cgroups: Cgroups
    _control: socket.socket
    _life: socket.socket
    _holds: Holds
    _forwarders: list[Forwarder] = field(default_factory=list[Forwarder])

    @classmethod
    async def start(cls, settings: Settings) -> "Sandbox":
        """Start a sandbox; nothing is left behind when this fails or is cancelled."""
        holds = _hold(settings)
        try:
            directory, groups = await _shielded(lambda: _prepare(settings))
        except BaseException:
            holds.release()
            raise
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        try:
            with theirs:
                log = os.open(directory.path / _ERROR_LOG, os.O_WRONLY | os.O_CREAT, 0o600)
                try:
                    launch = _launch(settings, directory.path, groups)
                    life = supervisor.launch(launch, theirs, log)
                finally:
                    os.close(log)
        except BaseException:
            mine.close()
            await _discard(directory, groups)
            holds.release()
            raise
        life.setblocking(False)
        sandbox = cls(settings, directory, groups, mine, life, holds)
        try:
            await sandbox._await_ready()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await sandbox.stop()
            raise
        return sandbox

    async def _await_ready(self) -> None:
        await anyio.wait_readable(self._control)
        data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 64)
        for descriptor, forward in zip(descriptors, self.settings.forwards, strict=False):
            self._forwarders.append(Forwarder(socket.socket(fileno=descriptor), forward))
        message = json.loads(data) if data else {"error": "its init ended"}
        if "error" in message:
            log = (self.directory.path / _ERROR_LOG).read_text(encoding="utf-8", errors="replace")
            raise SandboxFailed(
                f"The sandbox did not start: {message['error']} {log.strip()}".rstrip(),
                next="Namespaces and overlayfs are needed; see the sandbox page of the docs.",
            )

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> Completed:
        """Run a command and wait for its end; output beyond `output_bytes` is left out.

        At `timeout`, and when cancelled, the command and everything that it started is killed
        before this raises.

        Raises:
            CommandTimedOut: it was killed at its deadline.
            SandboxFailed: the sandbox is gone.
        """
        out = BoundedOutput(self.settings.output_bytes)
        err = BoundedOutput(self.settings.output_bytes)
        streams = Streams(
            stdin=None if stdin is None else feed_from(stdin),
            stdout=drain_to(_tee(out, on_output, "stdout")),
            stderr=drain_to(_tee(err, on_output, "stderr")),
        )
        request = {"op": "exec", "argv": list(argv), "cwd": cwd, "env": env, "user": user}
        outcome = await perform(self._control, request, streams, timeout=timeout)
        if outcome.timed_out:
            raise CommandTimedOut(
                f"Command timed out after {timeout:g} seconds",
                next="Give the task more time, or make its work shorter.",
            )
        truncated = out.truncated or err.truncated
        return Completed(outcome.code, out.value(), err.value(), truncated)

    async def put_tree(self, source: Path, target: str) -> None:
        """Copy the contents of a host directory into `target`."""
        await self._transfer(files.put_tree(source, target))

    async def put_file(self, source: Path, target: str, mode: int | None = None) -> None:
        """Copy a host file to the path `target`; its parents are made."""
        await self._transfer(files.put_file(source, target, mode))

    async def put_bytes(self, data: bytes, target: str, mode: int = 0o644) -> None:
        """Write `data` to the path `target`; its parents are made."""
        await self._transfer(files.put_bytes(data, target, mode))

    async def get_tree(
        self, source: str, destination: Path, select: Select | None = None
    ) -> Extracted:
        """Copy a directory out; what is unsafe or too large is left out and listed.

        Raises:
            NotFound: there is no such directory.
        """
        result = Extracted()
        bounds = self.settings.bounds
        transfer = files.get_tree(source, destination, bounds, select, result)
        result.left_out += await self._transfer(transfer)
        return result

    async def get_file(self, source: str, destination: Path) -> None:
        """Copy one regular file out.

        Raises:
            NotFound: there is no such file.
        """
        await self._transfer(files.get_file(source, destination, self.settings.bounds))

    async def _transfer(self, transfer: files.Transfer) -> list[tuple[str, str]]:
        try:
            outcome = await perform(self._control, transfer.request, transfer.streams)
            return transfer.finish(outcome)
        finally:
            transfer.discard()

    def writable_layer(self) -> Layer:
        """Where this sandbox's changes are: directory by target."""
        return Layer({o.target: o.upper for o in _overlays(self.settings, self.directory.path)})

    async def stop(self, *, keep: bool = False) -> None:
        """Kill everything in the sandbox and, unless `keep`, remove its directory.

        Cancellation waits for it.
        """
        with anyio.CancelScope(shield=True):
            for forwarder in self._forwarders:
                await forwarder.close()
            self._forwarders.clear()
            self._control.close()
            if self._life.fileno() >= 0:
                self._life.shutdown(socket.SHUT_WR)
                with anyio.move_on_after(_STOP_SECONDS):
                    await anyio.wait_readable(self._life)  # closed when everything is gone
                self._life.close()
            await _discard(self.directory, self.cgroups, keep=keep)
            self._holds.release()


async def _shielded[T](work: Callable[[], T]) -> T:
    """Run `work` in a thread to its end: its result must not be lost to a cancellation."""
    result: list[T] = []
    with anyio.CancelScope(shield=True):
        result.append(await to_thread.run_sync(work))
    return result[0]


def _tee(buffer: BoundedOutput, on_output: OnOutput | None, name: str) -> Sink:
    if on_output is None:
        return buffer.write
    callback = on_output

    async def both(data: bytes) -> None:
        await buffer.write(data)
        await callback(data, name)

    return both


def _hold(settings: Settings) -> Holds:
    """Keep what a sandbox stands on from being pruned.

    Raises:
        SandboxFailed: it has been pruned already.
    """
    holds = Holds()
    folders = {Path(path).parent for layer in settings.layers for path in layer.paths.values()}
    for place in (settings.base.directory, *sorted(folders)):
        if not holds.take(place):
            holds.release()
            raise SandboxFailed(f"{place} was removed from the cache.", next="Try again.")
    return holds


def _prepare(settings: Settings) -> tuple[RunDirectory, Cgroups]:
    """Write the intent, then make the directories and cgroups that it names."""
    name = new_name()
    groups = cgroups.plan(name, settings.limits)
    intent = Intent(
        owner=Process.of(os.getpid()),
        trial=settings.trial,
        cgroups=groups.paths,
        zygote=supervisor.process(),
    )
    directory = RunDirectory.create(settings.state, intent, name)
    try:
        (directory.path / "merged").mkdir()
        (directory.path / "fs").mkdir()
        if settings.storage_mb is None:
            for overlay in _overlays(settings, directory.path):
                Path(overlay.upper).mkdir(parents=True)
                Path(overlay.upper).chmod(0o755)  # the mode of the tree that it is on top of
                Path(overlay.work).mkdir()
        groups.create()
    except BaseException:
        cgroups.kill_and_remove(groups.paths)
        directory.remove()
        raise
    return directory, groups


async def _discard(directory: RunDirectory, groups: Cgroups, *, keep: bool = False) -> None:
    def work() -> None:
        cgroups.kill_and_remove(groups.paths)
        if keep:
            directory.keep()
        else:
            directory.remove()

    with anyio.CancelScope(shield=True):
        await to_thread.run_sync(work)


def _overlays(settings: Settings, directory: Path) -> list[Overlay]:
    overlays: list[Overlay] = []
    for root in settings.base.roots:
        images = [
            layer.paths[root.target] for layer in settings.layers if root.target in layer.paths
        ]
        upper = directory / "fs" / root.slug
        overlays.append(
            Overlay(root.target, [*images, *root.lowers], f"{upper}/upper", f"{upper}/work")
        )
    return overlays


def _launch(settings: Settings, directory: Path, groups: Cgroups) -> Launch:
    rootless = os.geteuid() != 0
    rlimits = {"RLIMIT_FSIZE": settings.max_file_bytes}
    if rootless and settings.limits.pids is not None:
        rlimits["RLIMIT_NPROC"] = settings.limits.pids
    launch = Launch(
        merged=str(directory / "merged"),
        overlays=_overlays(settings, directory),
        trees=list(settings.base.trees),
        rootless=rootless,
        host_network=settings.host_network,
        forward_ports=[forward.port for forward in settings.forwards],
        shm_mb=settings.shm_mb,
        volatile=settings.volatile,
        cgroup_procs=groups.procs,
        rlimits=rlimits,
    )
    if settings.storage_mb is not None:
        tmpfs = str(directory / "fs")
        launch = replace(launch, upper_tmpfs=tmpfs, upper_tmpfs_mb=settings.storage_mb)
    if settings.host_network:
        text = Path("/etc/resolv.conf").read_text(encoding="utf-8")
        launch = replace(launch, resolv_conf=text)
    return launch
