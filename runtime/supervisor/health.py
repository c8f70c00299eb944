"""Whether a part answers: `GET /healthz` over its Unix socket, with the standard library alone.

The worker listens nowhere; it is healthy when its process has lived for a second.
"""

import http.client
import socket
import time
from pathlib import Path
from typing import override

from runtime.home import Home
from runtime.supervisor.parts import Part
from runtime.supervisor.state import PartStatus, lives

STEADY_SEC = 1.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def healthy(part: Part, home: Home, status: PartStatus) -> bool:
    """Whether the part's process lives and does its work."""
    if not lives(status.pid, status.ticks):
        return False
    path = part.socket(home)
    if path is None:
        return status.started_at is not None and time.time() - status.started_at >= STEADY_SEC
    return answers(path, home.key(part.key) if part.key else None)


def answers(path: Path, key: str | None = None, timeout: float = 5.0) -> bool:
    """Whether the server at a socket answers its health route with 200."""
    connection = _UnixConnection(path, timeout)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        connection.request("GET", "/healthz", headers=headers)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
