"""Limits of a sandbox's commands: cgroup v1 and v2, whichever the kernel has per controller.

Cgroups are planned first (their paths go into the intent), then made. They live below the
worker's own cgroup where that is possible. With v2 a cgroup that holds processes cannot hand
controllers down, so the nearest ancestor that can is used. What could not be enforced is absent
from `Cgroups.enforced`; nothing fails because of a limit that nobody asked for.
"""

import os
import signal
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from runtime.execution.sandbox.state import Process, boot_id

CONTROLLERS = ("memory", "cpu", "pids")
_PERIOD_US = 100_000
_SWAP = frozenset({"memory.memsw.limit_in_bytes", "memory.swap.max"})
"""Present only where the kernel accounts for swap."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may use; None is no limit."""

    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The cgroups of one sandbox: directories by controller (v2: one for several)."""

    limits: Limits
    directories: dict[str, Path] = field(default_factory=dict[str, Path])
    unified: frozenset[str] = frozenset()

    @property
    def paths(self) -> tuple[str, ...]:
        """Every directory, once."""
        return tuple(sorted({str(path) for path in self.directories.values()}))

    @property
    def enforced(self) -> frozenset[str]:
        """Controllers whose limit holds."""
        return frozenset(self.directories)

    @property
    def procs(self) -> list[str]:
        """Files that a process writes itself into to join."""
        return [f"{path}/cgroup.procs" for path in self.paths]

    def create(self) -> None:
        """Make the directories and write the limits."""
        for path in self.paths:
            Path(path).mkdir()
        for controller, path in self.directories.items():
            for name, value in _settings(controller, self.limits, controller in self.unified):
                if name not in _SWAP or (path / name).exists():
                    (path / name).write_text(value, encoding="ascii")

    def oom_kills(self) -> int:
        """How many processes were killed because the memory limit was reached."""
        path = self.directories.get("memory")
        if path is None:
            return 0
        name = "memory.events" if "memory" in self.unified else "memory.oom_control"
        lines = (path / name).read_text(encoding="ascii").splitlines()
        rows = dict(line.split()[:2] for line in lines if len(line.split()) >= 2)
        return int(rows.get("oom_kill", "0"))


def plan(name: str, limits: Limits) -> Cgroups:
    """The cgroups that a sandbox called `name` will have on this machine."""
    wanted = {
        "memory": limits.memory_mb is not None,
        "cpu": limits.cpus is not None,
        "pids": limits.pids is not None,
    }
    parents = _parents()
    chosen = {
        controller: parents[controller]
        for controller in CONTROLLERS
        if wanted[controller] and controller in parents
    }
    return Cgroups(
        limits=limits,
        directories={c: parent.path / f"{_owner_prefix()}{name}" for c, parent in chosen.items()},
        unified=frozenset(c for c, parent in chosen.items() if parent.unified),
    )


def available() -> frozenset[str]:
    """Controllers whose limits can be enforced here."""
    return frozenset(_parents())


def orphans() -> tuple[str, ...]:
    """Cgroups of sandboxes whose owner is dead, whatever became of its state folder.

    The owner is in the name: pid namespace, pid and start time. Only owners of this pid
    namespace can be judged.
    """
    found: list[str] = []
    for folder in {parent.path for parent in _parents().values()}:
        for path in folder.glob(f"{_namespace_prefix()}*"):
            pid, started, _ = path.name.removeprefix(_namespace_prefix()).split("-", 2)
            if not Process(pid=int(pid), started=int(started), boot=boot_id()).alive:
                found.append(str(path))
    return tuple(sorted(found))


def _namespace_prefix() -> str:
    return f"practicum-{Path('/proc/self/ns/pid').stat().st_ino}-"


def _owner_prefix() -> str:
    me = Process.of(os.getpid())
    return f"{_namespace_prefix()}{me.pid}-{me.started}-"


def kill_and_remove(paths: tuple[str, ...]) -> list[str]:
    """Kill what is left in the cgroups and remove them; returns those that were there."""
    removed: list[str] = []
    for path in map(Path, paths):
        for attempt in range(100):
            try:
                _kill_members(path)
                path.rmdir()
                removed.append(str(path))
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.001 * min(attempt + 1, 20))  # the last process is still leaving
    return removed


def _kill_members(path: Path) -> None:
    for line in (path / "cgroup.procs").read_text(encoding="ascii").split():
        try:
            os.kill(int(line), signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended by itself


def _settings(controller: str, limits: Limits, unified: bool) -> list[tuple[str, str]]:
    match controller:
        case "memory":
            size = str((limits.memory_mb or 0) << 20)
            if unified:
                return [("memory.max", size), ("memory.swap.max", "0")]
            return [("memory.limit_in_bytes", size), ("memory.memsw.limit_in_bytes", size)]
        case "cpu":
            quota = str(max(1000, int((limits.cpus or 0) * _PERIOD_US)))
            if unified:
                return [("cpu.max", f"{quota} {_PERIOD_US}")]
            return [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", quota)]
        case _:
            return [("pids.max", str(limits.pids))]


@dataclass(frozen=True, slots=True)
class _Parent:
    path: Path
    unified: bool


@cache
def _parents() -> dict[str, _Parent]:
    """Per controller, the directory in which this process can make cgroups."""
    found: dict[str, _Parent] = {}
    own = _own_cgroups()
    for mount_point, fstype, options in _cgroup_mounts():
        if fstype == "cgroup":
            for controller in set(CONTROLLERS) & set(options):
                inside = mount_point / own.get(controller, "/").lstrip("/")
                parent = inside if inside.is_dir() else mount_point
                if os.access(parent, os.W_OK):
                    found[controller] = _Parent(parent, unified=False)
        else:
            for controller, parent in _unified_parents(mount_point, own.get("", "/")).items():
                found.setdefault(controller, parent)
    return found


def _unified_parents(mount_point: Path, own: str) -> dict[str, _Parent]:
    """The nearest ancestor of our own cgroup that hands controllers down, tried by doing it."""
    directory = mount_point / own.lstrip("/")
    while directory.is_relative_to(mount_point):
        controllers = _delegate(directory)
        if controllers and _can_join(directory):
            return {c: _Parent(directory, unified=True) for c in controllers}
        directory = directory.parent
    return {}


def _delegate(directory: Path) -> set[str]:
    control = directory / "cgroup.subtree_control"
    try:
        offered = set((directory / "cgroup.controllers").read_text(encoding="ascii").split())
        missing = offered & set(CONTROLLERS) - set(control.read_text(encoding="ascii").split())
        if missing:
            control.write_text(" ".join(f"+{c}" for c in sorted(missing)), encoding="ascii")
    except OSError:
        return set()  # not ours to change, or it holds processes
    return offered & set(CONTROLLERS)


def _can_join(directory: Path) -> bool:
    probe = directory / f"practicum-probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    child = os.fork()
    if child == 0:
        try:
            (probe / "cgroup.procs").write_text("0", encoding="ascii")
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    probe.rmdir()
    return status == 0


def _cgroup_mounts() -> list[tuple[Path, str, list[str]]]:
    mounts: list[tuple[Path, str, list[str]]] = []
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, target, fstype, options, *_ = line.split(" ")
        if fstype in ("cgroup", "cgroup2"):
            mounts.append((Path(target), fstype, options.split(",")))
    return mounts


def _own_cgroups() -> dict[str, str]:
    """Controller (empty for v2) → this process's cgroup."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    return own
