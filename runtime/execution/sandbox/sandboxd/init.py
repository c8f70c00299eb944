"""From a fork of the fork server to PID 1 of a sandbox.

The fork unshares its namespaces and forks once more; that child is PID 1. The first fork stays
outside as its *keeper*: it ends when PID 1 has ended, and killing it kills PID 1. PID 1 also
ends when the worker's end of the control socket closes. When PID 1 ends, the kernel kills
every process of the sandbox, and with the last of them the mounts are gone.
"""

import json
import os
import resource
import signal
import socket

from runtime.execution.sandbox.sandboxd import linux, root, seccomp, serve
from runtime.execution.sandbox.sandboxd.config import Launch


def keep(launch: Launch, control: socket.socket) -> None:
    """Become the keeper of a new sandbox; returns only in case of an error before PID 1 is up."""
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    cgroups = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in launch.cgroup_procs]
    if launch.rootless:
        _enter_user_namespace()
    flags = os.CLONE_NEWNS | os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWPID
    os.unshare(flags if launch.host_network else flags | os.CLONE_NEWNET)
    child = os.fork()
    if child == 0:
        _become_init(launch, control, cgroups)
        os._exit(1)
    control.close()
    # Before this line SIGTERM kills the keeper itself, and with it PID 1: no gap either way.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os.kill(child, signal.SIGKILL))
    os.waitpid(child, 0)
    os._exit(0)


def _enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _become_init(launch: Launch, control: socket.socket, cgroups: list[int]) -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # PID 1 ignores what it has no handler for
    try:
        socket.sethostname(launch.hostname)
        forwards = _listen(launch)
        root.build(launch)
        _confine(launch)
    except OSError as error:
        control.send(json.dumps({"error": f"{error.strerror}: {error}"}).encode())
        return
    descriptors = [listener.fileno() for listener in forwards]
    socket.send_fds(control, [json.dumps({"ok": True}).encode()], descriptors)
    for listener in forwards:
        listener.close()
    serve.Server(launch, control, cgroups).run()


def _listen(launch: Launch) -> list[socket.socket]:
    """Sockets that belong to the sandbox's network namespace; the worker accepts on them."""
    if not launch.host_network:
        linux.loopback_up()
    listeners: list[socket.socket] = []
    for port in launch.forward_ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        listeners.append(listener)
    return listeners


def _confine(launch: Launch) -> None:
    """What PID 1 gives up, its commands never have.

    It is not dumpable: without CAP_SYS_PTRACE no command can read its memory or descriptors,
    though both run as root.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # 1: not even to a core-dump program
    for name, value in launch.rlimits.items():
        number: int = getattr(resource, name)
        resource.setrlimit(number, (value, value))
    seccomp.install()
    kept = linux.KEPT_CAPABILITIES
    linux.keep_capabilities(kept - {linux.CAP_NET_RAW} if launch.host_network else kept)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
