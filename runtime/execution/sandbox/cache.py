"""Cached folders of a state: bases and image layers, kept while they are used, and bounded.

An entry appears by rename, whole. Whoever uses it holds a shared lock on the folder itself, and so
does every sandbox on top of it for as long as it runs; locks end with their process. Taking one
sets the folder's time, so the entries that nobody has used for longest go first.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from runtime.execution.sandbox.state import remove_tree

MOST_BYTES = 20 << 30
"""What layers and bases may take together, unless an option says otherwise."""
CACHES = ("layers", "base")
"""Folders of a state that hold such entries."""
SIZE = "size.json"
"""Beside the contents of an entry: how many bytes they take."""
_GONE = ".gone-"


class Holds:
    """Entries that stay until `release`."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def take(self, place: Path) -> bool:
        """Hold an entry from now on; False if it is not there, or is just being removed."""
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(descriptor), place.stat()):
                return False
        except (BlockingIOError, FileNotFoundError):
            return False
        os.utime(descriptor)
        return True

    def release(self) -> None:
        """Hold nothing any more."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def prune(folders: Iterable[Path], most: int = MOST_BYTES) -> list[Path]:
    """Remove entries, least recently used first, until the rest take at most `most` bytes.

    What is in use stays, and so may exceed the bound. Blocks; returns what was removed.
    """
    entries: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            continue
        for path in folder.iterdir():
            if path.name.startswith(_GONE):
                remove_tree(path)  # a process died over it
            elif path.is_dir() and not path.name.startswith("."):
                entries.append(path)
    entries.sort(key=lambda path: path.stat().st_mtime_ns)
    sizes = {path: _size(path) for path in entries}
    total = sum(sizes.values())
    removed: list[Path] = []
    for path in entries:
        if total <= most:
            break
        if _remove(path):
            total -= sizes[path]
            removed.append(path)
    return removed


def tree_bytes(folders: Sequence[Path]) -> int:
    """The disk space of trees, in bytes; nothing that is linked to counts."""
    total = 0
    for folder in folders:
        for root, names, files in folder.walk():
            total += sum((root / name).lstat().st_blocks * 512 for name in (*names, *files))
    return total


def _size(place: Path) -> int:
    try:
        return int(json.loads((place / SIZE).read_bytes())["bytes"])
    except FileNotFoundError:
        return tree_bytes([place])


def _remove(place: Path) -> bool:
    """Remove an entry unless it is in use."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = place.with_name(f"{_GONE}{place.name}")
        place.rename(gone)
        remove_tree(gone)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    _remove_lock(place.with_suffix(".lock"))
    return True


def _remove_lock(path: Path) -> None:
    """Remove the lock of an entry's builders, unless one builds it again."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except (FileNotFoundError, BlockingIOError):
        return
