"""What one process of a home has to itself: a lock file, and a socket that its user alone opens."""

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO

_PAUSE_SEC = 0.02
_BACKLOG = 512


def acquire(path: Path, patience: float) -> IO[str] | None:
    """The lock on `path`, held until the returned file is closed or its process ends.

    Blocks for at most `patience` seconds; None when another process keeps the lock.
    """
    file = path.open("a")
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                return None
            time.sleep(_PAUSE_SEC)
        else:
            return file


def listen(path: Path) -> socket.socket:
    """A listening Unix socket that this user alone may open; one left by a dead process is
    replaced, so call it under the lock of the socket's owner."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
