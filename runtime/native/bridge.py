"""The proxy on a loopback port, for as long as one harness needs it.

The proxy of a local stack listens on a Unix socket that its user alone may open, and a harness
speaks to an HTTP address. Whoever else reaches the port has no credential for it.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.abc

_CHUNK = 1 << 16


@asynccontextmanager
async def bridge(socket: Path) -> AsyncGenerator[str]:
    """The address that leads to `socket`. On exit or cancel every connection is closed."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    failure: Exception | None = None
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, partial(_carry, socket))
        try:
            yield f"http://127.0.0.1:{port}"
        except Exception as error:  # noqa: BLE001 - raised below, not as a group of one
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _carry(socket: Path, client: anyio.abc.SocketStream) -> None:
    """Pipe one connection both ways; a proxy that is away looks like a closed connection."""
    async with client:
        try:
            server = await anyio.connect_unix(socket)
        except OSError:
            return  # the harness sees its connection close, and tries again
        async with server, anyio.create_task_group() as tasks:
            tasks.start_soon(_pump, client, server)
            await _pump(server, client)
            tasks.cancel_scope.cancel()


async def _pump(source: anyio.abc.SocketStream, target: anyio.abc.SocketStream) -> None:
    try:
        async for data in source:
            await target.send(data)
        await target.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        return  # one side went away; the other is closed by the caller
