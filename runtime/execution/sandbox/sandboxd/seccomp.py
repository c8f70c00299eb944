"""A seccomp filter: the system calls that no command of a sandbox may make.

It refuses what docker's default profile refuses and what could widen the sandbox: mounting,
new namespaces (also through `clone`), kernel modules, bpf, keyrings, io_uring, handles.
`clone3` answers ENOSYS, so that libraries fall back to `clone`, whose flags can be read.
"""

import ctypes
import errno
import struct

from runtime.execution.sandbox.sandboxd import linux

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_RET_ALLOW, _RET_ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_OFFSET_NR, _OFFSET_ARCH, _OFFSET_ARG0 = 0, 4, 16
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000 | 0x80
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, and NEWTIME."""
_CLONE_NAMESPACE_FLAGS = 0x7E020000
"""Without NEWTIME, whose bit is part of the exit signal in `clone`."""

_COMMON = (*range(425, 428), *range(428, 434), 442, 443)
"""io_uring_*, open_tree move_mount fsopen fsconfig fsmount fspick, mount_setattr, quotactl_fd."""
_MACHINES: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    # audit architecture, clone, unshare, refused:
    # mount umount2 pivot_root swapon swapoff reboot modules quotactl acct settimeofday syslog
    # kexec keys perf_event_open open_by_handle_at setns bpf userfaultfd iopl ioperm ...
    "x86_64": (
        0xC000003E,
        56,
        272,
        (
            *(165, 166, 155, 167, 168, 169, 174, 175, 176, 313, 179, 163, 164, 103),
            *(246, 320, 248, 249, 250, 298, 304, 308, 321, 323, 172, 173, 134, 153, 180, 212),
        ),
    ),
    "aarch64": (
        0xC00000B7,
        220,
        97,
        (
            *(40, 39, 41, 224, 225, 142, 105, 106, 273, 60, 89, 170, 116),
            *(104, 294, 217, 218, 219, 241, 265, 268, 280, 282, 58, 18, 42),
        ),
    ),
}
_CLONE3 = 435


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _program() -> bytes:
    architecture, clone, unshare, refused = _MACHINES[linux.MACHINE]
    no_such_call = _instruction(_RET, _RET_ERRNO | errno.ENOSYS)
    not_permitted = _instruction(_RET, _RET_ERRNO | errno.EPERM)
    code = [
        _instruction(_LOAD, _OFFSET_ARCH),
        _instruction(_JEQ, architecture, 1, 0),
        no_such_call,
        _instruction(_LOAD, _OFFSET_NR),
        _instruction(_JGE, _X32_BIT, 0, 1),
        no_such_call,
        _instruction(_JEQ, _CLONE3, 0, 1),
        no_such_call,
    ]
    for number in (*refused, *_COMMON):
        code += [_instruction(_JEQ, number, 0, 1), not_permitted]
    for number, flags in ((clone, _CLONE_NAMESPACE_FLAGS), (unshare, _NAMESPACE_FLAGS)):
        code += [
            _instruction(_JEQ, number, 0, 4),
            _instruction(_LOAD, _OFFSET_ARG0),
            _instruction(_JSET, flags, 0, 1),
            not_permitted,
            _instruction(_LOAD, _OFFSET_NR),
        ]
    code.append(_instruction(_RET, _RET_ALLOW))
    return b"".join(code)


def install() -> None:
    """Filter this process and all its children. Needs CAP_SYS_ADMIN in its user namespace."""
    program = ctypes.create_string_buffer(_program())
    length = (len(program) - 1) // 8
    header = ctypes.create_string_buffer(
        struct.pack("@HxxxxxxP", length, ctypes.addressof(program))
    )
    linux.prctl(_PR_SET_SECCOMP, ctypes.c_void_p(_SECCOMP_MODE_FILTER), header)
