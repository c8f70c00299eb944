"""The file system that PID 1 of a sandbox sees.

Sources are opened before the root changes and are named by descriptor afterwards, so that

* a symlink in an image can redirect a mount only to another place of the same sandbox;
* `/proc/self/mountinfo` inside shows descriptor numbers, not the host's paths.

Device nodes are made in a tmpfs of their own and bound one by one into a `nodev` /dev: a
command may create any node it likes and open none of them, and chmod reaches no node of the
host.
"""

import os
import stat

from runtime.execution.sandbox.sandboxd.config import Launch, Overlay
from runtime.execution.sandbox.sandboxd.linux import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    detach,
    mount,
    pivot_into,
)

_DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_READ_ONLY_PROC = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_HIDDEN_PROC = (
    *("acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug"),
    *("scsi", "timer_list", "timer_stats"),
)


def build(launch: Launch) -> None:
    """Mount everything and make it the root of this mount namespace."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    if launch.upper_tmpfs is not None:
        _mount_uppers(launch, launch.upper_tmpfs)
    old_root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    devices = _open_host_devices() if launch.rootless else {}
    overlays = [_OpenOverlay(overlay) for overlay in launch.overlays]
    trees = [(tree.target, _open_all(tree.lowers)) for tree in launch.trees]
    overlays[0].mount(launch.merged, launch)
    pivot_into(launch.merged)
    os.umask(0)
    _mount_proc()
    for overlay in overlays[1:]:
        overlay.mount(_directory(overlay.target), launch)
    _mount_dev(launch, devices)
    for target, lowers in trees:
        data = _lower_option(lowers) + (",userxattr" if launch.rootless else "")
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV
        mount("tools", _directory(target), "overlay", flags, data)
        _close_all(lowers)
    _protect_proc()
    if launch.resolv_conf is not None:
        _write_resolv_conf(launch.resolv_conf)
    detach(old_root)
    os.close(old_root)
    os.umask(0o022)


class _OpenOverlay:
    """An overlay whose directories are held open."""

    def __init__(self, overlay: Overlay) -> None:
        self.target = overlay.target
        self.lowers = _open_all(overlay.lowers)
        self.writable = _open_all([overlay.upper, overlay.work])

    def mount(self, target: str, launch: Launch) -> None:
        upper, work = self.writable
        data = f"{_lower_option(self.lowers)},upperdir={_by_fd(upper)},workdir={_by_fd(work)}"
        data += ",userxattr" if launch.rootless else ""
        data += ",volatile" if launch.volatile else ""
        mount("sandbox", target, "overlay", MS_NODEV, data)
        _close_all([*self.lowers, *self.writable])


def _open_all(paths: list[str]) -> list[int]:
    return [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in paths]


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _by_fd(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _lower_option(lowers: list[int]) -> str:
    return "lowerdir=" + ":".join(_by_fd(lower) for lower in lowers)


def _mount_uppers(launch: Launch, directory: str) -> None:
    options = f"mode=0755,size={launch.upper_tmpfs_mb}m"
    mount("uppers", directory, "tmpfs", MS_NOSUID | MS_NODEV, options)
    for overlay in launch.overlays:
        os.makedirs(overlay.upper)
        os.makedirs(overlay.work)


def _directory(path: str) -> str:
    """`path` as a real directory of the sandbox, created if it is missing."""
    if os.path.islink(path):
        os.unlink(path)
    os.makedirs(path, mode=0o755, exist_ok=True)
    return path


def _mount_proc() -> None:
    mount("proc", _directory("/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _open_host_devices() -> dict[str, int]:
    return {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}


def _mount_dev(launch: Launch, devices: dict[str, int]) -> None:
    dev = _directory("/dev")
    if not launch.rootless:
        mount("devices", dev, "tmpfs", MS_NOSUID, "mode=0755,size=64k")
        for name, (major, minor) in _DEVICES.items():
            node = f"{dev}/{name}"
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
            devices[name] = os.open(node, os.O_PATH)
    mount("dev", dev, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for name, descriptor in devices.items():
        with open(f"{dev}/{name}", "wb"):
            pass
        mount(_by_fd(descriptor), f"{dev}/{name}", None, MS_BIND)
        os.close(descriptor)
    os.mkdir(f"{dev}/pts")
    options = "newinstance,ptmxmode=0666,mode=0620"
    mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    os.mkdir(f"{dev}/shm")
    options = f"mode=1777,size={launch.shm_mb}m"
    mount("shm", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.symlink("/proc/self/fd", f"{dev}/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{dev}/{name}")


def _protect_proc() -> None:
    """Hide what /proc tells about the host, and make read-only what uid 0 could change."""
    for name in _READ_ONLY_PROC:
        path = f"/proc/{name}"
        if os.path.exists(path):
            mount(path, path, None, MS_BIND | MS_REC)
            flags = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
            mount(None, path, None, flags)
    for name in _HIDDEN_PROC:
        path = f"/proc/{name}"
        if os.path.isdir(path):
            mount("hidden", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k")
        elif os.path.exists(path):
            mount("/dev/null", path, None, MS_BIND)


def _write_resolv_conf(text: str) -> None:
    path = "/etc/resolv.conf"
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
