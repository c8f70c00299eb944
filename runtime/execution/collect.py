"""Files that a trial left in its folder on the host: read bounded, links never followed.

What lies there was written from inside a sandbox, so a name may be a link, a pipe or a
device. Every file is opened relative to its already opened folder with `O_NOFOLLOW`, and only
regular files are read.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.execution.blots import Blots, blotted_text
from runtime.execution.context import clean_text

MAX_ARTIFACT_BYTES = 8 << 20
"""Of one artifact; a longer one is cut and marked as truncated."""
MAX_ARTIFACTS_BYTES = 32 << 20
"""Of all artifacts of a trial."""
MAX_ARTIFACTS = 256
MAX_DEPTH = 16
LOG_HEAD = 16_000
LOG_TAIL = 48_000
_NONE: Blots = {}
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Collected:
    """A file's bytes under its path in the trial."""

    path: str
    data: bytes
    truncated: bool


def collect_tree(folder: Path, *, skip: frozenset[str] = frozenset()) -> list[Collected]:
    """Every regular file below `folder`, by relative path, within the bounds above."""
    found: list[Collected] = []
    left = MAX_ARTIFACTS_BYTES
    try:
        root = os.open(folder, _FOLDER_FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        for path, descriptor in _walk(root, "", 0):
            try:
                if path in skip:
                    continue
                if len(found) == MAX_ARTIFACTS or left <= 0:
                    return found
                data, truncated = _read(descriptor, min(MAX_ARTIFACT_BYTES, left))
            finally:
                os.close(descriptor)
            left -= len(data)
            found.append(Collected(path, data, truncated))
    finally:
        os.close(root)
    return found


def collect_file(path: Path, limit: int = MAX_ARTIFACT_BYTES) -> Collected | None:
    """One regular file, or None where there is none or it is something else."""
    try:
        descriptor = os.open(path, _FILE_FLAGS)
    except OSError:
        return None  # missing, or a link: neither is a file that the trial left
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data, truncated = _read(descriptor, limit)
    finally:
        os.close(descriptor)
    return Collected(path.name, data, truncated)


def read_log(path: Path, blots: Blots = _NONE) -> str:
    """Beginning and end of a log as clean text without credentials; empty if there is none."""
    try:
        descriptor = os.open(path, _FILE_FLAGS)
    except OSError:
        return ""  # no log, or not a file
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ""
        size = status.st_size
        if size <= LOG_HEAD + LOG_TAIL:
            data = os.pread(descriptor, LOG_HEAD + LOG_TAIL, 0)
        else:
            data = (
                os.pread(descriptor, LOG_HEAD, 0)
                + f"\n[... {size - LOG_HEAD - LOG_TAIL} bytes left out ...]\n".encode()
                + os.pread(descriptor, LOG_TAIL, size - LOG_TAIL)
            )
    finally:
        os.close(descriptor)
    text = data.decode("utf-8", "replace")
    return clean_text(blotted_text(text, blots))


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    """(relative path, open descriptor) of each regular file; the caller closes it."""
    for name in sorted(os.listdir(folder)):
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
            elif stat.S_ISDIR(mode) and depth < MAX_DEPTH:
                descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            else:
                continue
        except OSError:
            continue  # it went away, or turned into a link in between
        path = f"{prefix}{clean_text(name)}"
        if stat.S_ISREG(mode):
            yield path, descriptor
            continue
        try:
            yield from _walk(descriptor, f"{path}/", depth + 1)
        finally:
            os.close(descriptor)


def _read(descriptor: int, limit: int) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    left = limit
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts), left == 0 and bool(os.read(descriptor, 1))
