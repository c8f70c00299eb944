"""The file of lines: made at once, locked while it grows, mended after a killed writer."""

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from specs.errors import ErrorCode, ErrorObject, InvalidInput, NotFound, Unavailable

LINES: Final = "journal.jsonl"
TORN: Final = "journal.torn"

_BLOCK = 64 << 10


def create(folder: Path, first: bytes) -> bool:
    """Make a journal with its first line, durably; False where there is one already.

    Raises:
        InvalidInput: the folder cannot be made or written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".journal-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(first)
                file.flush()
                os.fsync(file.fileno())
            os.link(name, folder / LINES)
        except FileExistsError:
            return False
        finally:
            Path(name).unlink()
        _sync_folder(folder)
        _sync_folder(folder.parent)
    except OSError as error:
        raise InvalidInput(
            f"No journal can be made in {folder}: {error.strerror or error}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="journal", id=str(folder)),
            next="Name a folder that you may write.",
        ) from None
    return True


def append(path: Path, following: Callable[[int, bytes], bytes]) -> bytes:
    """Add the line that `following` makes of the place and the bytes of the last one; durable
    on return.

    The lock is given back before the disk is waited for: a line that another writer added to it
    meanwhile is synced with it. Blocks; an error of `following` leaves the file as it was.

    Raises:
        Unavailable: `store_unavailable`; the disk refused. The line may be there and may be lost.
    """
    with _locked(path) as descriptor:
        try:
            size = _mend(descriptor, path.with_name(TORN))
        except OSError as error:
            raise _refused(path, error) from None
        line = following(*last_line(descriptor, size))
        try:
            _write(descriptor, line, size)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.fdatasync(descriptor)
        except OSError as error:
            raise _refused(path, error) from None
    return line


def open_to_read(path: Path) -> int:
    """A descriptor of the file.

    Raises:
        NotFound: there is no journal.
    """
    return _open(path, os.O_RDONLY)


def last_line(descriptor: int, size: int) -> tuple[int, bytes]:
    """Place and bytes of the last line of the first `size` bytes, which end with one."""
    start, tail = size, b""
    while start > 0 and tail.count(b"\n") < 2:
        step = min(_BLOCK, start)
        start -= step
        tail = os.pread(descriptor, step, start) + tail
    cut = tail.rfind(b"\n", 0, len(tail) - 1) + 1
    return start + cut, tail[cut:-1]


def end_of_lines(descriptor: int) -> int:
    """Bytes up to the end of the last whole line."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        step = min(_BLOCK, end)
        found = os.pread(descriptor, step, end - step).rfind(b"\n")
        if found >= 0:
            return end - step + found + 1
        end -= step
    return 0


@contextmanager
def folder_lock(folder: Path, *, wait: bool) -> Generator[bool]:
    """Hold the folder's own lock; yields False where it is held and nobody waits for it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Generator[int]:
    """The file, locked; opened again where another took its place while the lock was waited for."""
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _mend(descriptor: int, torn: Path) -> int:
    """Move what stands behind the last whole line aside; returns where the file ends now."""
    size, end = os.fstat(descriptor).st_size, end_of_lines(descriptor)
    if end < size:
        with torn.open("ab") as file:
            file.write(os.pread(descriptor, size - end, end) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.ftruncate(descriptor, end)
    return end


def _write(descriptor: int, line: bytes, size: int) -> None:
    """Append the whole line, or leave the file as it was."""
    view = memoryview(line)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _open(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"There is no journal in {path.parent}.",
            object=ErrorObject(type="journal", id=str(path.parent)),
            next="Make one: practicum journal new NAME",
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"The journal {path} cannot be opened: {error.strerror or error}.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="journal", id=str(path.parent)),
            next="Correct the name, or the file's permissions.",
        ) from None


def _refused(path: Path, error: OSError) -> Unavailable:
    place = f" ({error.filename})" if error.filename else ""
    return Unavailable(
        f"The disk refused an entry of {path}: {error.strerror or error}{place}.",
        code=ErrorCode.STORE_UNAVAILABLE,
        object=ErrorObject(type="journal", id=str(path.parent)),
        next="Make room or mend the disk; see whether the entry is there before you repeat it.",
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
