"""The fork server: one warm interpreter from which every sandbox of a worker is forked.

It speaks over a SEQPACKET socket with the worker. One message starts a sandbox and carries four
descriptors: the launch (a memfd), the sandbox's end of the control socket, an end of a *life*
socket, and a file for error text. When the worker closes its end of the life socket, the
sandbox is killed; when the sandbox is gone, the life socket closes. When the worker itself
ends, everything does.
"""

import os
import selectors
import signal
import socket

from runtime.execution.sandbox.sandboxd import init, linux, serve, transfer
from runtime.execution.sandbox.sandboxd.config import Launch

_KEEPER_FD = 3


def main(worker_fd: int) -> None:
    """Serve the worker at the other end of `worker_fd` until it closes it."""
    os.umask(0o022)
    linux.hide_arguments(b"practicum-sandboxd")
    transfer.warm_up()
    Zygote(socket.socket(fileno=worker_fd)).run()


class Zygote:
    """Forks keepers, reaps them, kills them when their life socket closes."""

    def __init__(self, worker: socket.socket) -> None:
        self._worker = worker
        self._lives: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(worker, selectors.EVENT_READ, None)
        self._wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, serve.wake_up)
        self._selector.register(self._wake, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serve until the worker is gone."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._worker:
                    self._start()
                elif key.fileobj == self._wake:
                    self._reap()
                elif key.data in self._lives:
                    self._kill(key.data)

    def _start(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._worker, 1, 4)
        if not data:
            os._exit(0)  # keepers die with their parent, and sandboxes with their keeper
        launch, control, life, errors = descriptors
        try:
            child = os.fork()
        except OSError as error:
            os.write(errors, f"zygote: cannot fork: {error}\n".encode())
            for descriptor in descriptors:
                os.close(descriptor)
            return
        if child == 0:
            self._become_keeper(launch, control, errors)
        for descriptor in (launch, control, errors):
            os.close(descriptor)
        life_socket = socket.socket(fileno=life)
        self._lives[child] = life_socket
        self._selector.register(life_socket, selectors.EVENT_READ, child)

    def _become_keeper(self, launch_fd: int, control_fd: int, errors_fd: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with os.fdopen(os.dup(launch_fd), "rb") as file:
                launch = Launch.loads(file.read())
            os.dup2(errors_fd, 2)
            control = os.dup(control_fd)
            os.dup2(control, _KEEPER_FD, inheritable=False)
            os.closerange(_KEEPER_FD + 1, 1 << 16)
            init.keep(launch, socket.socket(fileno=_KEEPER_FD))
        except BaseException as error:
            os.write(2, f"keeper: {type(error).__name__}: {error}\n".encode())
        os._exit(1)

    def _kill(self, child: int) -> None:
        life = self._lives[child]
        self._selector.unregister(life)
        os.kill(child, signal.SIGTERM)

    def _reap(self) -> None:
        os.read(self._wake, 4096)
        while self._lives:
            child, _ = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            life = self._lives.pop(child)
            if life in [key.fileobj for key in self._selector.get_map().values()]:
                self._selector.unregister(life)
            life.close()
