"""The evidence spool: one append-only segment per (trial, fence), made durable in groups.

One flusher thread writes whatever has been submitted, syncs each touched file once and then
wakes every waiter: N concurrent calls cost about one sync. A write that fails leaves the file
at its last whole record and closes the segment for good, since after a failed sync nobody
knows what the disk holds.

Segments stay until they are published, and together they may fill only so many bytes. While the
object store is away the spool grows; once it is full calls are refused, before anything of them
is kept, rather than lost.
"""

import asyncio
import errno
import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from specs.errors import ErrorCode, ErrorObject, Unavailable

STAGE_BYTES = 8 << 30
"""What may wait for publication, unless the stack says otherwise."""
MAX_SEGMENT_BYTES = 1 << 30
"""No trial may fill the disk: calls beyond are refused."""

_SYNCERS = 4
_NAME = re.compile(r"^((?:trl|ses)_[0-9a-f]{32})\.(\d{1,18})\.(seg|seal\.json)$")


@dataclass(frozen=True, slots=True)
class Key:
    """A trial under one claim."""

    trial: str
    fence: int


@dataclass(slots=True)
class Ticket:
    """A submitted write; `wait` returns when it is durable."""

    loop: asyncio.AbstractEventLoop
    done: anyio.Event
    error: OSError | None = None

    async def wait(self) -> None:
        """Until the bytes are durable. On cancel the write still happens.

        Raises:
            Unavailable: `store_unavailable`; the record is not durable.
        """
        await self.done.wait()
        if self.error is not None:
            raise _broken(self.error)

    def settle(self) -> None:
        """Wake the waiter; called by the flusher. A loop that has ended has no waiters."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.done.set)


class Segment:
    """One open segment file; written by the flusher alone.

    Once it is closed nothing is written to it: the number of its file may be another's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._file).st_size
        self.broken: OSError | None = None
        self.closed = False

    def write(self, data: bytes) -> None:
        """Append all of `data`, or leave the file as it was."""
        if self.closed:
            raise _closed()
        if self.broken is not None:
            raise self.broken
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self.broken = error
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Make what was written durable."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            self.broken = error
            raise

    def truncate(self, size: int) -> None:
        """Cut a torn tail off, durably."""
        os.ftruncate(self._file, size)
        os.fsync(self._file)
        self.size = size

    def read(self) -> bytes:
        """The whole segment."""
        return self.path.read_bytes()

    def close(self) -> None:
        """Take no more."""
        self.closed = True
        os.close(self._file)


@dataclass(slots=True)
class _Write:
    segment: Segment
    data: bytes
    ticket: Ticket


@dataclass(slots=True)
class _Batch:
    """What one round writes to one segment."""

    segment: Segment
    writes: list[_Write] = field(default_factory=list["_Write"])


class Spool:
    """The folder of segments and its flusher thread.

    Args:
        folder: where segments lie.
        limit: bytes that segments may fill before calls are refused. Calls under way still
            write what they have, so a little more than that may lie there.
    """

    def __init__(self, folder: Path, *, limit: int = STAGE_BYTES) -> None:
        self.folder = folder
        self.limit = limit
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for torn in folder.glob("*.tmp"):
            torn.unlink()
        self._sizes = {path: path.stat().st_size for path in folder.glob("*.seg")}
        self.staged = sum(self._sizes.values())
        """Bytes that wait for publication."""
        self._wake = threading.Condition()
        self._writes: list[_Write] = []
        self._due = False
        """Something waits to be durable."""
        self._closed = False
        self._pool = ThreadPoolExecutor(_SYNCERS, thread_name_prefix="spool-sync")
        self._thread = threading.Thread(target=self._run, name="spool-flusher", daemon=True)
        self._thread.start()

    def segment_path(self, key: Key) -> Path:
        return self.folder / f"{key.trial}.{key.fence}.seg"

    def seal_path(self, key: Key) -> Path:
        return self.folder / f"{key.trial}.{key.fence}.seal.json"

    def open(self, key: Key) -> Segment:
        """Open or create a segment; its name is durable on return. Blocks."""
        segment = Segment(self.segment_path(key))
        self.sync_folder()
        return segment

    def keys(self) -> Iterator[tuple[Key, bool]]:
        """Every (trial, fence) with a file here; True for a seal, False for a segment."""
        for path in sorted(self.folder.iterdir()):
            if match := _NAME.match(path.name):
                yield Key(match[1], int(match[2])), match[3] != "seg"

    def submit(self, segment: Segment, data: bytes, *, lazy: bool = False) -> Ticket:
        """Hand bytes to the flusher, in order; call from the event loop.

        What is `lazy` costs no sync of its own: it is written with what comes next.

        Raises:
            Unavailable: `store_unavailable`; the spool or the segment is closed.
        """
        ticket = Ticket(asyncio.get_running_loop(), anyio.Event())
        with self._wake:
            if self._closed:
                raise _broken(OSError("the spool is closed"))
            if segment.closed:
                raise _broken(_closed())
            self._writes.append(_Write(segment, data, ticket))
            self._grow(segment.path, len(data))
            if not lazy:
                self._due = True
                self._wake.notify()
        return ticket

    def check_room(self) -> None:
        """Refuse another call while too much waits for publication.

        Raises:
            Unavailable: `store_unavailable`; nothing is lost, the harness comes again.
        """
        if self.staged >= self.limit:
            raise Unavailable(
                f"{self.staged} bytes of evidence wait for the object store, of"
                f" {self.limit} that may.",
                code=ErrorCode.STORE_UNAVAILABLE,
                object=ErrorObject(type="spool"),
                next="Send the request again; it passes when the store takes evidence again.",
            )

    def remove(self, key: Key) -> None:
        """Remove a segment that is published or that nobody wants. Blocks."""
        path = self.segment_path(key)
        path.unlink(missing_ok=True)
        path.with_suffix(".damaged").unlink(missing_ok=True)
        with self._wake:
            self.staged -= self._sizes.pop(path, 0)

    def _grow(self, path: Path, size: int) -> None:
        self._sizes[path] = self._sizes.get(path, 0) + size
        self.staged += size

    def write_file(self, path: Path, data: bytes) -> None:
        """Create or replace a small file, durably and at once. Blocks."""
        temporary = path.with_name(path.name + ".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self.sync_folder()

    def sync_folder(self) -> None:
        """Make names durable. Blocks."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Write what was submitted and end the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._due and not self._closed:
                    self._wake.wait()
                writes, self._writes = self._writes, []
                self._due = False
            if not writes:
                return
            batches: dict[int, _Batch] = {}
            for write in writes:
                batch = batches.setdefault(id(write.segment), _Batch(write.segment))
                batch.writes.append(write)
            first, *others = batches.values()
            pending = [self._pool.submit(self._flush, batch) for batch in others]
            self._flush(first)
            for future in pending:
                future.result()

    def _flush(self, batch: _Batch) -> None:
        """Write and sync, and tell the waiters."""
        segment, data = batch.segment, b"".join(write.data for write in batch.writes)
        before, error = segment.size, None
        try:
            segment.write(data)
            segment.sync()
        except OSError as failure:
            error = failure
            self._give_back(segment.path, before + len(data) - segment.size)
        for write in batch.writes:
            write.ticket.error = error
            write.ticket.settle()

    def _give_back(self, path: Path, size: int) -> None:
        """No longer count what a file did not take, unless it is gone with all its bytes."""
        with self._wake:
            self._grow(path, -min(size, self._sizes.get(path, 0)))


def _closed() -> OSError:
    return OSError(errno.EBADF, "the segment is closed")


def _broken(error: OSError) -> Unavailable:
    return Unavailable(
        f"The evidence cannot be written: {error}.",
        code=ErrorCode.STORE_UNAVAILABLE,
        object=ErrorObject(type="spool"),
        next="Free space in the home folder; the trial cannot go on.",
    )
