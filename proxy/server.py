"""Serving the application on a Unix socket of the proxy's own, mode 0600."""

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO

import uvicorn

from proxy.app import Settings, create_app

LOCK_WAIT_SEC = 10.0
SHUTDOWN_SEC = 5


def server(settings: Settings) -> uvicorn.Server:
    """A server of the proxy; `serve(sockets=[listen(path)])` runs it until a signal."""
    config = uvicorn.Config(
        create_app(settings),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=SHUTDOWN_SEC,
    )
    return uvicorn.Server(config)


def listen(path: Path) -> socket.socket:
    """A Unix socket that this user alone may connect to; a dead one there is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.setblocking(False)
    return listener


def own(spool: Path) -> IO[str] | None:
    """The lock of a spool's only writer, or None if another process keeps it. Blocks."""
    file = (spool / ".lock").open("w")
    deadline = time.monotonic() + LOCK_WAIT_SEC
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                return None
            time.sleep(0.05)
        else:
            return file
