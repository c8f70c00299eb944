"""Files in and out of a sandbox, by a fork of PID 1 that runs no program of the sandbox.

So a replaced `tar` or `cat` changes nothing, and whatever symlink is met is resolved within the
sandbox. Streams: a tar on stdin for `unpack`, a tar on stdout for `pack`, bytes for `read`.
What does not fit in the bounds is left out and named on stderr, one JSON line each.
"""

import io
import json
import os
import stat
import sys
import tarfile
import warnings
from dataclasses import dataclass
from typing import BinaryIO

OK, FAILED, MISSING, NOT_A_FILE, TOO_LARGE = 0, 1, 44, 45, 46


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one transfer may carry at most."""

    file_bytes: int
    total_bytes: int
    members: int


def warm_up() -> None:
    """Load what would be imported lazily, while there still is a library to import from."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as archive:
        for name in ("plain", "naïve", "\udcff", "x" * 300):
            archive.addfile(tarfile.TarInfo(name))
    buffer.seek(0)
    with tarfile.open(fileobj=buffer, mode="r|") as archive:
        for member in archive:
            member.isfile()
    warnings.filterwarnings("ignore")
    json.loads(json.dumps({"a": 1.5}))


def unpack(target: str) -> int:
    """Extract the tar on stdin into the directory `target`, as root."""
    os.umask(0o022)
    os.makedirs(target, exist_ok=True)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        archive.extractall(target, filter=_replace)
    return OK


def _replace(member: tarfile.TarInfo, target: str) -> tarfile.TarInfo:
    """Remove what is in the way: a FIFO would block, a symlink would redirect the file."""
    path = os.path.join(target, member.name)
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
        os.unlink(path)
    return member


def read(source: str, bounds: Bounds) -> int:
    """Write the bytes of one regular file to stdout."""
    try:
        status = os.stat(source)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    if not stat.S_ISREG(status.st_mode):
        return NOT_A_FILE
    with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if status.st_size > bounds.file_bytes:
            return TOO_LARGE
        while chunk := file.read(1 << 16):
            sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return OK


def pack(source: str, bounds: Bounds) -> int:
    """Write a tar of the directory `source` to stdout: directories, files, symlinks."""
    if not os.path.isdir(source):
        return NOT_A_FILE if os.path.lexists(source) else MISSING
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        _Packer(archive, bounds).add_tree(source)
    sys.stdout.buffer.flush()
    return OK


class _Packer:
    def __init__(self, archive: tarfile.TarFile, bounds: Bounds) -> None:
        self._archive = archive
        self._bounds = bounds
        self._bytes = 0
        self._members = 0

    def add_tree(self, source: str) -> None:
        """Add everything below `source`, without following any symlink."""
        for directory, names, files in os.walk(source):
            names.sort()
            for name in (*names, *sorted(files)):
                path = os.path.join(directory, name)
                relative = os.path.relpath(path, source)
                if self._members >= self._bounds.members:
                    _leave_out(relative, "too many files")
                    return
                self._members += 1
                try:
                    self._add(path, relative)
                except OSError as error:
                    _leave_out(relative, error.strerror or "unreadable")

    def _add(self, path: str, relative: str) -> None:
        status = os.lstat(path)
        member = tarfile.TarInfo(relative)
        member.mode = stat.S_IMODE(status.st_mode)
        member.mtime = int(status.st_mtime)
        if stat.S_ISDIR(status.st_mode):
            member.type = tarfile.DIRTYPE
            self._archive.addfile(member)
        elif stat.S_ISLNK(status.st_mode):
            member.type = tarfile.SYMTYPE
            member.linkname = os.readlink(path)
            self._archive.addfile(member)
        elif stat.S_ISREG(status.st_mode):
            self._add_file(path, member)
        else:
            _leave_out(relative, "not a regular file")

    def _add_file(self, path: str, member: tarfile.TarInfo) -> None:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            member.size = os.fstat(file.fileno()).st_size
            if member.size > self._bounds.file_bytes:
                _leave_out(member.name, f"{member.size} bytes is too large")
            elif self._bytes + member.size > self._bounds.total_bytes:
                _leave_out(member.name, "the directory is too large")
            else:
                self._bytes += member.size
                self._archive.addfile(member, _Exactly(file, member.size))


class _Exactly(io.RawIOBase):
    """A file that may change while it is read, as exactly `size` bytes."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        """The next bytes, zeros where the file has become shorter."""
        size = self._left if size < 0 else min(size, self._left)
        data = self._file.read(size)
        self._left -= size
        return data + bytes(size - len(data))


def _leave_out(name: str, reason: str) -> None:
    line = json.dumps({"name": name, "reason": reason}) + "\n"
    os.write(2, line.encode())
