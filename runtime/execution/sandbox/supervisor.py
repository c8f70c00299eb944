"""The warm fork server of this process: started on first use, restarted when it has died."""

import atexit
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import runtime
from runtime.execution.sandbox.errors import SandboxFailed
from runtime.execution.sandbox.sandboxd.config import Launch
from runtime.execution.sandbox.state import Process

_CODE = (
    "import sys; sys.path.append({library!r});"
    "from runtime.execution.sandbox.sandboxd.zygote import main; main({descriptor})"
)


class Supervisor:
    """Owns the fork server; threads of one process may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def process(self) -> Process:
        """The fork server's identity, starting it if need be. Blocks for tens of milliseconds."""
        with self._lock:
            return Process.of(self._running().pid)

    def launch(self, launch: Launch, control: socket.socket, errors: int) -> socket.socket:
        """Fork a sandbox; returns its life socket (see `zygote`)."""
        mine, theirs = socket.socketpair()
        config = os.memfd_create("launch")
        try:
            os.write(config, launch.dumps())
            os.lseek(config, 0, os.SEEK_SET)
            descriptors = [config, control.fileno(), theirs.fileno(), errors]
            with self._lock:
                self._running()
                assert self._socket is not None
                socket.send_fds(self._socket, [b"s"], descriptors)
        except OSError as error:
            mine.close()
            raise SandboxFailed(
                f"The sandbox's fork server does not answer: {error}", next="Try again."
            ) from error
        finally:
            os.close(config)
            theirs.close()
        return mine

    def close(self) -> None:
        """End the fork server and with it every sandbox of this process."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            if self._child is not None:
                self._child.wait()
                self._child = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        if self._socket is not None:
            self._socket.close()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        library = str(Path(runtime.__file__).parent.parent)
        code = _CODE.format(library=library, descriptor=theirs.fileno())
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        self._socket = mine
        return self._child


def _environment() -> dict[str, str]:
    """Only what the interpreter itself may need to start; commands never see it."""
    name = "LD_LIBRARY_PATH"
    return {name: os.environ[name]} if name in os.environ else {}


supervisor = Supervisor()
atexit.register(supervisor.close)
