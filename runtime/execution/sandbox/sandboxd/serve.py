"""PID 1: runs the commands of a sandbox and kills what they leave behind when told to.

Each request arrives on the control socket as five descriptors: the command's own connection,
its stdin, stdout and stderr, and a memfd with the request as JSON. The exit status is sent on
the connection; a byte from the worker, or its end, means *kill it*.

Killing covers all descendants, daemons of their own session included: everything that started
after the command did and is not under an older process or another running command. Only
commands join the limited cgroups; PID 1 stays outside, so that neither a full pids limit nor
an out-of-memory kill takes the sandbox down.
"""

import json
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from runtime.execution.sandbox.sandboxd import linux, transfer
from runtime.execution.sandbox.sandboxd.config import Launch

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KILL_SECONDS = 1.0
_KILL_PAUSE = 0.002


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    started: int


@dataclass(frozen=True, slots=True)
class _Job:
    pid: int
    started: int
    connection: socket.socket


class Server:
    """The loop of PID 1; it never returns."""

    def __init__(self, launch: Launch, control: socket.socket, cgroups: list[int]) -> None:
        self._launch = launch
        self._control = control
        self._cgroups = cgroups
        self._jobs: dict[int, _Job] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, None)
        self._wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, wake_up)
        self._selector.register(self._wake, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serve until the worker closes the control socket."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    self._accept()
                elif key.fileobj == self._wake:
                    os.read(self._wake, 4096)
                    self._reap()
                elif key.data in self._jobs:
                    self._cancel(self._jobs[key.data])

    def _accept(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, 1, 5)
        if not data:
            os._exit(0)
        connection = socket.socket(fileno=descriptors[0])
        try:
            pid = os.fork()
        except OSError as error:
            _send(connection, {"error": f"cannot fork: {error}"})
            connection.close()
        else:
            if pid == 0:
                self._become_command(descriptors[1:])
            self._selector.register(connection, selectors.EVENT_READ, pid)
            self._jobs[pid] = _Job(pid, _read_process(pid).started, connection)
        for descriptor in descriptors[1:]:
            os.close(descriptor)

    def _become_command(self, descriptors: list[int]) -> None:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            for cgroup in self._cgroups:
                os.write(cgroup, b"0")
            with os.fdopen(os.dup(descriptors[3]), "rb") as file:
                request: dict[str, Any] = json.loads(file.read())
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
            os.closerange(3, 1 << 16)
            _perform(request, self._launch)
        except BaseException as error:
            os.write(2, f"sandbox: {type(error).__name__}: {error}\n".encode(errors="replace"))
        os._exit(126)

    def _cancel(self, job: _Job) -> None:
        if not job.connection.recv(1):
            self._selector.unregister(job.connection)
        killed: set[int] = set()
        deadline = time.monotonic() + _KILL_SECONDS
        while True:
            processes = _processes()
            victims = {pid for pid in processes if self._belongs(pid, job, processes)}
            late = time.monotonic() > deadline
            if not victims or (late and victims <= killed):
                return  # all gone, or all signalled and slow to leave
            if late or len(victims) == len(processes):
                _kill(-1)  # one signal to all at once: nothing can fork past it
            else:
                for pid in victims - killed:
                    _kill(pid)
            killed |= victims
            self._reap()
            time.sleep(_KILL_PAUSE)

    def _belongs(self, pid: int, job: _Job, processes: dict[int, _Process]) -> bool:
        """Whether `pid` is `job` or descends from it, orphans included."""
        while pid in processes:
            if pid == job.pid:
                return True
            if pid in self._jobs or processes[pid].started < job.started:
                return False
            pid = processes[pid].parent
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            job = self._jobs.pop(pid, None)
            if job is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            _send(job.connection, {"code": code if code >= 0 else 128 - code})
            if job.connection in [key.fileobj for key in self._selector.get_map().values()]:
                self._selector.unregister(job.connection)
            job.connection.close()


def wake_up(number: int, frame: FrameType | None) -> None:
    """The wakeup descriptor is what tells the loop; a handler must exist for it to be written."""


def _send(connection: socket.socket, message: dict[str, object]) -> None:
    try:
        connection.send(json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        os.write(2, b"init: a command ended after its caller stopped waiting\n")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself


def _read_process(pid: int) -> _Process:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return _Process(parent=int(fields[1]), started=int(fields[19]))


def _processes() -> dict[int, _Process]:
    """Every process of the sandbox but PID 1, zombies left out."""
    found: dict[int, _Process] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if fields[0] not in ("Z", "X"):
            found[int(name)] = _Process(parent=int(fields[1]), started=int(fields[19]))
    return found


def _perform(request: dict[str, Any], launch: Launch) -> None:
    """Become what the request asks for; does not return unless it fails."""
    match request["op"]:
        case "exec":
            _execute(request, launch)
        case "put":
            os._exit(transfer.unpack(request["target"]))
        case "get":
            os._exit(transfer.pack(request["source"], transfer.Bounds(**request["bounds"])))
        case "read":
            os._exit(transfer.read(request["source"], transfer.Bounds(**request["bounds"])))
        case other:
            raise ValueError(f"unknown operation {other!r}")


def _execute(request: dict[str, Any], launch: Launch) -> None:
    user = _find_user(str(request.get("user") or "root"))
    environment: dict[str, str] = {
        "PATH": _PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "HOSTNAME": launch.hostname,
        "LANG": "C.UTF-8",
        **(request.get("env") or {}),
    }
    if user.uid != 0:
        if launch.rootless:
            raise PermissionError("a rootless sandbox has one user: root")
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if not launch.rootless:
        os.setgroups(user.groups)
        os.setgid(user.gid)
        os.setuid(user.uid)
    os.umask(0o022)
    os.chdir(request.get("cwd") or "/")
    argv: list[str] = request["argv"]
    os.execvpe(argv[0], argv, environment)


@dataclass(frozen=True, slots=True)
class _User:
    uid: int
    gid: int
    groups: list[int]
    home: str
    name: str


def _find_user(wanted: str) -> _User:
    """A user by name or number, optionally `user:group`, from the sandbox's own files."""
    wanted, _, group = wanted.partition(":")
    row = _find_row("/etc/passwd", wanted, 7)
    if row is not None:
        groups = [int(row[3]), *_memberships(row[0])]
        user = _User(int(row[2]), int(row[3]), groups, row[5] or "/", row[0])
    elif wanted in ("root", "0"):
        user = _User(0, 0, [0], "/root", "root")
    elif wanted.isdigit():
        user = _User(int(wanted), int(wanted), [], "/", wanted)
    else:
        raise LookupError(f"the sandbox has no user {wanted!r}")
    if not group:
        return user
    entry = _find_row("/etc/group", group, 4)
    gid = int(entry[2]) if entry else int(group)
    return _User(user.uid, gid, [gid], user.home, user.name)


def _find_row(path: str, wanted: str, width: int) -> list[str] | None:
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            row = line.rstrip("\n").split(":")
            if len(row) >= width and wanted in (row[0], row[2]):
                return row
    return None


def _memberships(name: str) -> list[int]:
    with open("/etc/group", encoding="utf-8", errors="replace") as file:
        rows = [line.rstrip("\n").split(":") for line in file]
    return [int(row[2]) for row in rows if len(row) >= 4 and name in row[3].split(",")]
