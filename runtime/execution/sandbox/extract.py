"""Write an untrusted tar stream below a directory of the host.

`tarfile`'s own filters resolve paths by name and have been bypassed before. Here every path is
walked from a descriptor of the destination, component by component, without following links:

* only regular files, directories and symlinks are made; the rest is left out and named;
* symlinks come last and only in the form `../…/name`, staying below the destination, so that
  no chain of them can leave it;
* a name with `..`, an absolute name or one that runs through something else is left out.

One bad member costs that member.
"""

import os
import stat
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from runtime.execution.sandbox.sandboxd.transfer import Bounds

type Select = Callable[[str, bool], bool]
"""(relative path, is directory) → whether it is wanted."""

_LATEST = (1 << 32) - 1
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(slots=True)
class Extracted:
    """What a transfer brought."""

    files: int = 0
    bytes: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(name, reason) of members that were not written."""


class _LeftOut(Exception):
    """A member is not written; the message says why."""


def extract(
    stream: BinaryIO, destination: Path, bounds: Bounds, select: Select | None = None
) -> Extracted:
    """Write the members of the tar `stream` that `select` wants below `destination`.

    Raises:
        tarfile.TarError: the stream is not a tar; what came before stays.
    """
    destination.mkdir(parents=True, exist_ok=True)
    result = Extracted()
    links: list[tuple[str, str]] = []
    with ExitStack() as stack:
        root = os.open(destination, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, root)
        archive = stack.enter_context(tarfile.open(fileobj=stream, mode="r|"))
        for count, member in enumerate(archive):
            if count >= bounds.members:
                result.left_out.append((member.name, "too many files"))
                break
            if select is not None and not select(member.name, member.isdir()):
                continue
            try:
                if member.issym():
                    links.append((member.name, member.linkname))
                else:
                    _write(archive, member, root, bounds, result)
            except (_LeftOut, OSError) as error:
                result.left_out.append((member.name, str(error)))
        for name, target in links:
            try:
                _link(name, target, root)
            except (_LeftOut, OSError) as error:
                result.left_out.append((name, str(error)))
    return result


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts:
        raise _LeftOut("the name leaves the directory")
    return parts


def _write(
    archive: tarfile.TarFile, member: tarfile.TarInfo, root: int, bounds: Bounds, result: Extracted
) -> None:
    parts = _parts(member.name)
    if member.isdir():
        os.close(_walk(root, parts))
        return
    if not member.isreg():
        raise _LeftOut("not a regular file")
    if member.size > bounds.file_bytes or result.bytes + member.size > bounds.total_bytes:
        raise _LeftOut("too large")
    content = archive.extractfile(member)
    if content is None:
        raise _LeftOut("no content")
    parent = _walk(root, parts[:-1])
    try:
        _clear(parent, parts[-1])
        mode = 0o755 if member.mode & stat.S_IXUSR else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(parts[-1], flags, mode, dir_fd=parent), "wb") as file:
            while chunk := content.read(1 << 20):
                file.write(chunk)
            file.flush()
            mtime = min(max(0, int(member.mtime)), _LATEST)
            os.utime(file.fileno(), (mtime, mtime))
    finally:
        os.close(parent)
    result.files += 1
    result.bytes += member.size


def _walk(root: int, parts: list[str]) -> int:
    """A descriptor of the directory `parts`, made where missing; links are replaced."""
    current = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, 0o755, dir_fd=current)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(part, dir_fd=current).st_mode):
                    os.unlink(part, dir_fd=current)
                    os.mkdir(part, 0o755, dir_fd=current)
            following = os.open(part, _OPEN_DIRECTORY, dir_fd=current)
        finally:
            os.close(current)
        current = following
    return current


def _clear(parent: int, name: str) -> None:
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            raise _LeftOut("a directory is in its place")
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return


def _link(name: str, target: str, root: int) -> None:
    parts = _parts(name)
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = 0
    while ups < len(steps) and steps[ups] == "..":
        ups += 1
    if target.startswith("/") or ".." in steps[ups:] or ups > len(parts) - 1 or not steps:
        raise _LeftOut(f"a symlink that leaves the directory: {target}")
    parent = _walk(root, parts[:-1])
    try:
        _clear(parent, parts[-1])
        os.symlink("/".join(steps), parts[-1], dir_fd=parent)
    finally:
        os.close(parent)
