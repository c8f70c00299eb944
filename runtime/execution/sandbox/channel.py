"""One request to PID 1: descriptors over, bytes through, exit status back, bounded and killable."""

import json
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import anyio

from runtime.execution.sandbox.errors import SandboxFailed

type Sink = Callable[[bytes], Awaitable[None]]
type Pump = Callable[[int], Coroutine[Any, Any, None]]
"""Moves bytes between a pipe's end, which it owns, and something of ours."""

_CHUNK = 1 << 16
_DRAIN_SECONDS = 0.25
_KILL_SECONDS = 10.0


class BoundedOutput:
    """Keeps the first and the last part of a stream; what lies between is counted."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    async def write(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess

    @property
    def truncated(self) -> bool:
        """Whether bytes were left out."""
        self._trim()
        return self._dropped > 0

    def value(self) -> bytes:
        """What was kept, with a marker where bytes were left out."""
        self._trim()
        marker = f"\n[... {self._dropped} bytes of output left out ...]\n".encode()
        return bytes(self._head) + (marker if self._dropped else b"") + bytes(self._tail)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended."""

    code: int
    timed_out: bool


@dataclass(slots=True)
class Streams:
    """The near ends of a request's stdin, stdout and stderr."""

    stdin: Pump | None = None
    """Feeds the write end; None: no input."""
    stdout: Pump | None = None
    """Reads the read end until its end."""
    stderr: Pump | None = None


def drain_to(sink: Sink) -> Pump:
    """A reader that passes a pipe's bytes to `sink` until the pipe ends."""

    async def drain(descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        try:
            while True:
                try:
                    data = os.read(descriptor, _CHUNK)
                except BlockingIOError:
                    await anyio.wait_readable(descriptor)
                    continue
                if not data:
                    return
                await sink(data)
        finally:
            os.close(descriptor)

    return drain


def feed_from(data: bytes) -> Pump:
    """A writer that feeds `data` to a pipe; it stops when nobody reads any more."""

    async def feed(descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        left = memoryview(data)
        try:
            while left:
                try:
                    left = left[os.write(descriptor, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(descriptor)
                except BrokenPipeError:
                    return
        finally:
            os.close(descriptor)

    return feed


async def perform(
    control: socket.socket,
    request: dict[str, Any],
    streams: Streams,
    *,
    timeout: float | None = None,
) -> Outcome:
    """Have PID 1 perform `request` and wait for its end.

    At the deadline, and when cancelled, the command and all its descendants are killed before
    this returns or raises.
    """
    with ExitStack() as near, ExitStack() as far:
        connection, theirs = socket.socketpair()
        near.callback(connection.close)
        far.callback(theirs.close)
        connection.setblocking(False)
        ends = _Ends(near, far)
        tasks = [
            (streams.stdin, *ends.pipe(readable_inside=True, wanted=streams.stdin is not None)),
            (streams.stdout, *ends.pipe(readable_inside=False, wanted=True)),
            (streams.stderr, *ends.pipe(readable_inside=False, wanted=True)),
        ]
        body = ends.memory(json.dumps(request).encode())
        await _send(control, [theirs.fileno(), *(inside for _, _, inside in tasks), body])
        far.close()
        outcome: Outcome | None = None
        try:
            async with anyio.create_task_group() as group:
                for stream, outside, _ in tasks:
                    if stream is not None and outside is not None:
                        ends.release(outside)
                        group.start_soon(stream, outside)
                outcome = await _outcome(connection, timeout)
                # A daemon may hold the pipes: wait for what is under way, not for their end.
                group.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS
        except BaseExceptionGroup as errors:
            if len(errors.exceptions) == 1:
                raise errors.exceptions[0] from None
            raise
        if outcome is None:
            raise _died()
        return outcome


class _Ends:
    """Both ends of the pipes of one request; whatever was not handed over gets closed."""

    def __init__(self, near: ExitStack, far: ExitStack) -> None:
        self._near = near
        self._far = far
        self._open: set[int] = set()
        near.callback(self._close_open)

    def pipe(self, *, readable_inside: bool, wanted: bool) -> tuple[int | None, int]:
        """(our end, the sandbox's end); without a pipe the sandbox gets /dev/null."""
        if not wanted:
            inside = os.open(os.devnull, os.O_RDWR)
            self._far.callback(os.close, inside)
            return None, inside
        read_end, write_end = os.pipe()
        inside, outside = (read_end, write_end) if readable_inside else (write_end, read_end)
        self._far.callback(os.close, inside)
        self._open.add(outside)
        return outside, inside

    def memory(self, data: bytes) -> int:
        """A memfd with `data`, closed with the far ends."""
        descriptor = os.memfd_create("request")
        self._far.callback(os.close, descriptor)
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def release(self, descriptor: int) -> None:
        """The descriptor now belongs to its stream."""
        self._open.discard(descriptor)

    def _close_open(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)


async def _send(control: socket.socket, descriptors: list[int]) -> None:
    while True:
        try:
            socket.send_fds(control, [b"x"], descriptors)
            return
        except BlockingIOError:
            await anyio.wait_writable(control)
        except OSError as error:
            raise _died() from error


async def _outcome(connection: socket.socket, timeout: float | None) -> Outcome:
    try:
        with anyio.move_on_after(timeout):
            return Outcome(await _reply(connection), timed_out=False)
        return Outcome(await _kill(connection), timed_out=True)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _kill(connection)
        raise


async def _kill(connection: socket.socket) -> int:
    try:
        connection.send(b"k")
    except OSError as error:
        raise _died() from error
    with anyio.move_on_after(_KILL_SECONDS):
        return await _reply(connection)
    raise SandboxFailed(
        f"A command did not end within {_KILL_SECONDS:.0f} s of being killed.",
        next="The trial's sandbox is stopped; look for a hung disk on the host.",
    )


async def _reply(connection: socket.socket) -> int:
    data = b""
    while not data.endswith(b"\n"):
        await anyio.wait_readable(connection)
        part = connection.recv(4096)
        if not part:
            raise _died()
        data += part
    reply = json.loads(data)
    if "error" in reply:
        raise SandboxFailed(f"The sandbox could not run a command: {reply['error']}")
    return int(reply["code"])


def _died() -> SandboxFailed:
    return SandboxFailed(
        "The sandbox ended while a command ran in it.",
        next="The trial is lost; the next one starts in a fresh sandbox.",
    )
