"""A port inside a sandbox → a socket of the host.

The listening socket belongs to the sandbox's network namespace, where the sandbox's own
127.0.0.1 is the only network; it is accepted on here. Each connection is copied both ways and
closed half by half, as the two ends close it.
"""

import asyncio
import errno
import socket
from pathlib import Path

import anyio
import anyio.abc
from anyio.abc import SocketStream

from runtime.execution.sandbox.options import Forward

_CONNECTIONS = 128
"""Open connections per forwarded port; further ones wait in the backlog."""
_BUSY_SECONDS = 0.05


class Forwarder:
    """Serves one listening socket until it is closed."""

    def __init__(self, listener: socket.socket, forward: Forward) -> None:
        self._listener = listener
        self._target = forward.target
        self._connections: set[socket.socket] = set()
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def close(self) -> None:
        """Stop listening and cut every connection. Cancelling waits for that too."""
        self._task.cancel()
        await asyncio.wait([self._task])
        for connection in self._connections:
            connection.close()  # accepted, but its task never started
        self._listener.close()

    async def _serve(self) -> None:
        self._listener.setblocking(False)
        limiter = anyio.Semaphore(_CONNECTIONS)
        async with anyio.create_task_group() as group:
            while True:
                await limiter.acquire()
                group.start_soon(self._handle, await self._accept(), limiter)

    async def _accept(self) -> socket.socket:
        while True:
            await anyio.wait_readable(self._listener)
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue  # the peer gave up before we came
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                await anyio.sleep(_BUSY_SECONDS)  # this process is short of descriptors
                continue
            self._connections.add(connection)
            return connection

    async def _handle(self, connection: socket.socket, limiter: anyio.Semaphore) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with await SocketStream.from_socket(connection) as inside:
                try:
                    outside = await self._connect()
                except OSError:
                    return  # nobody listens there: the caller sees its connection close
                async with outside, anyio.create_task_group() as group:
                    group.start_soon(_copy, inside, outside)
                    group.start_soon(_copy, outside, inside)
        finally:
            self._connections.discard(connection)
            limiter.release()

    async def _connect(self) -> anyio.abc.SocketStream:
        if self._target.startswith("unix:"):
            return await anyio.connect_unix(Path(self._target.removeprefix("unix:")))
        host, _, port = self._target.rpartition(":")
        return await anyio.connect_tcp(host, int(port))


async def _copy(source: anyio.abc.SocketStream, sink: anyio.abc.SocketStream) -> None:
    """Copy until the source's end, then end the sink's input; a broken side ends both."""
    try:
        async for data in source:
            await sink.send(data)
        await sink.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await anyio.aclose_forcefully(source)
        await anyio.aclose_forcefully(sink)
