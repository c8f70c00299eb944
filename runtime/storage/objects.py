"""Objects: create-only, named by their SHA-256, verified as they arrive (invariant 11).

An object of an org is `o/<org>/<sha256>`. The bytes go to a temporary file in the same
folder, which is synced and then *linked* to its name: a link cannot overwrite, and a reader
sees the whole object or none. What a crash leaves behind is a temporary file, swept at the
next start. S3 will implement the same protocol with If-None-Match and ChecksumSHA256.
"""

import hashlib
import os
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import anyio
import anyio.to_thread

from specs.errors import ErrorCode, ErrorObject, InvalidInput, NotFound, Unavailable

CHUNK = 1 << 20
_TEMPORARY = ".put-"


class ObjectStore(Protocol):
    """Where the bytes are; who may read them is decided by references in the database."""

    async def put(self, org: str, digest: str, size: int, chunks: AsyncIterable[bytes]) -> bool:
        """Store an object unless it is there; whether it is new. Durable when this returns.

        On cancel, and on any error, nothing is kept.

        Raises:
            InvalidInput: `digest_mismatch`: the bytes have another digest or length.
        """
        ...

    async def size(self, org: str, digest: str) -> int | None:
        """Length of an object; None when there is none."""
        ...

    def read(
        self, org: str, digest: str, start: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """Bytes of an object from `start`, in chunks."""
        ...

    async def delete(self, org: str, digest: str) -> None:
        """Remove an object that nothing refers to any more; harmless when it is gone."""
        ...

    async def sweep(self) -> int:
        """Remove what interrupted writes left behind; how much it was. Only while nothing
        is being written."""
        ...

    async def stored(self, org: str) -> list[str]:
        """Digests of every object of an org."""
        ...


@dataclass(frozen=True, slots=True)
class FileObjectStore:
    """Objects below one folder of the local file system."""

    root: Path

    async def put(self, org: str, digest: str, size: int, chunks: AsyncIterable[bytes]) -> bool:
        target = self._path(org, digest)
        written = 0
        with _storing(digest):
            temporary = await anyio.to_thread.run_sync(_Temporary.beside, target)
            try:
                async for block in _blocks(chunks):
                    written += len(block)
                    if written > size:
                        break
                    await anyio.to_thread.run_sync(temporary.append, block)
                actual = temporary.digest
                if written != size or actual != digest:
                    raise _mismatch(digest, actual, size, written)
                return await anyio.to_thread.run_sync(temporary.publish, target)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(temporary.remove)

    async def size(self, org: str, digest: str) -> int | None:
        path = anyio.Path(self._path(org, digest))
        try:
            return (await path.stat()).st_size
        except FileNotFoundError:
            return None

    async def read(
        self, org: str, digest: str, start: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        try:
            file = await anyio.open_file(self._path(org, digest), "rb")
        except FileNotFoundError:
            raise NotFound(
                f"The object {digest} is not in the store.",
                object=ErrorObject(type="object", id=digest),
                next="Upload it again.",
            ) from None
        async with file:
            await file.seek(start)
            left = length
            while left is None or left > 0:
                chunk = await file.read(CHUNK if left is None else min(CHUNK, left))
                if not chunk:
                    return
                left = None if left is None else left - len(chunk)
                yield chunk

    async def delete(self, org: str, digest: str) -> None:
        await anyio.Path(self._path(org, digest)).unlink(missing_ok=True)

    async def sweep(self) -> int:
        def remove() -> int:
            left = list(self.root.glob(f"o/*/{_TEMPORARY}*"))
            for path in left:
                path.unlink()
            return len(left)

        return await anyio.to_thread.run_sync(remove)

    async def stored(self, org: str) -> list[str]:
        def names() -> list[str]:
            folder = self.root / "o" / org
            if not folder.is_dir():
                return []
            with os.scandir(folder) as entries:
                return [f"sha256:{e.name}" for e in entries if not e.name.startswith(".")]

        return await anyio.to_thread.run_sync(names)

    def _path(self, org: str, digest: str) -> Path:
        return self.root / "o" / org / digest.removeprefix("sha256:")


class _Temporary:
    """A file that becomes an object, or nothing."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self._hasher = hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hasher.hexdigest()}"

    @classmethod
    def beside(cls, target: Path) -> "_Temporary":
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=_TEMPORARY)
        return cls(Path(name), os.fdopen(descriptor, "wb"))

    def append(self, block: bytes) -> None:
        self._hasher.update(block)
        self.file.write(block)

    def publish(self, target: Path) -> bool:
        self.file.flush()
        os.fsync(self.file.fileno())
        try:
            os.link(self.path, target)
        except FileExistsError:
            return False  # equal by its name; whoever made it verified it
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def remove(self) -> None:
        self.file.close()
        self.path.unlink()


async def whole(data: bytes) -> AsyncIterator[bytes]:
    """Bytes in memory as a stream."""
    yield data


async def _blocks(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Small chunks gathered, so that a thread is entered once per block."""
    gathered: list[bytes] = []
    size = 0
    async for chunk in chunks:
        gathered.append(chunk)
        size += len(chunk)
        if size >= CHUNK:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


@contextmanager
def _storing(digest: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"The object {digest} cannot be stored: {error.strerror or error}.",
            code=ErrorCode.STORE_UNAVAILABLE,
            object=ErrorObject(type="object", id=digest),
            next="Check the free space of the home folder, then try again.",
        ) from error


def _mismatch(digest: str, actual: str, size: int, written: int) -> InvalidInput:
    cause = (
        f"{'more than ' if written > size else ''}{min(written, size)} bytes arrived"
        f" where {size} were announced"
        if written != size
        else f"the bytes have digest {actual}"
    )
    return InvalidInput(
        f"The object {digest} was not stored: {cause}.",
        code=ErrorCode.DIGEST_MISMATCH,
        object=ErrorObject(type="object", id=digest),
        next="Send exactly the bytes that the digest names.",
    )
