"""System calls that the standard library lacks, through ctypes."""

import ctypes
import fcntl
import os
import socket
import struct

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1

KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
"""Docker's default set: chown dac_override fowner fsetid kill setgid setuid setpcap
net_bind_service net_raw sys_chroot mknod audit_write setfcap."""
CAP_NET_RAW = 13

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
MACHINE = os.uname().machine
SUPPORTED = MACHINE in _PIVOT_ROOT


def check(result: int, what: str) -> None:
    """Raise the `OSError` of the last call unless it returned 0."""
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def mount(
    source: str | None,
    target: str,
    fstype: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    """mount(2)."""
    arguments = [None if a is None else os.fsencode(a) for a in (source, target, fstype)]
    options = None if data is None else os.fsencode(data)
    result = _libc.mount(*arguments, ctypes.c_ulong(flags), options)
    check(result, f"mount {fstype or 'bind'} on {target}")


def pivot_into(directory: str) -> None:
    """Make `directory` the root, with the old root stacked below, reachable by no path."""
    os.chdir(directory)
    check(_libc.syscall(_PIVOT_ROOT[MACHINE], b".", b"."), "pivot_root")


def detach(directory_fd: int) -> None:
    """Unmount, lazily, what the descriptor points to, and go to the root."""
    os.fchdir(directory_fd)
    check(_libc.umount2(b".", MNT_DETACH), "umount the old root")
    os.chdir("/")


def prctl(option: int, value: int | ctypes.c_void_p, third: object = 0) -> None:
    """prctl(2) with up to two arguments."""
    check(_libc.prctl(option, value, third, 0, 0), f"prctl {option}")


def keep_capabilities(kept: frozenset[int]) -> None:
    """Give up every capability that is not in `kept`, for this process and all its children."""
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        last = int(file.read())
    for capability in range(last + 1):
        if capability not in kept:
            prctl(PR_CAPBSET_DROP, capability)
    low = sum(1 << c for c in kept if c < 32)
    high = sum(1 << (c - 32) for c in kept if 32 <= c <= last)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = struct.pack("=6I", low, low, 0, high, high, 0)
    check(_libc.capset(header, data), "capset")


def loopback_up() -> None:
    """Bring up `lo` of the current network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16xh14x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def hide_arguments(title: bytes) -> None:
    """Overwrite this process's argument vector: its paths are the host's business."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, title[: end - start - 1], min(len(title), end - start - 1))
