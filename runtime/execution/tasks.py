"""Task packages on the worker's disk, unpacked once per digest.

A package is verified against its digest, unpacked beside its place, and put there by one
rename, so a folder that exists is whole. It is shared by all trials of the task and never
written to.
"""

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread

from specs import canonical, package
from specs.errors import ErrorCode, ErrorObject, InvalidInput

type Fetch = Callable[[str], Awaitable[bytes]]


class TaskCache:
    """Folders of unpacked tasks below `folder`, by digest."""

    def __init__(self, folder: Path, fetch: Fetch) -> None:
        self._folder = folder
        self._fetch = fetch
        self._locks: dict[str, anyio.Lock] = {}

    async def path(self, digest: str) -> Path:
        """The folder of a task's package, fetched if it is not there yet.

        On cancel nothing half-made stays under the task's name.

        Raises:
            InvalidInput: `digest_mismatch` or `invalid_package`.
            PracticumError: the package cannot be fetched.
        """
        place = self._folder / digest.removeprefix("sha256:")
        async with self._locks.setdefault(digest, anyio.Lock()):
            if not await anyio.Path(place).is_dir():
                data = await self._fetch(digest)
                await anyio.to_thread.run_sync(_unpack, data, digest, place)
        return place


def _unpack(data: bytes, digest: str, place: Path) -> None:
    actual = canonical.digest_bytes(data)
    if actual != digest:
        raise InvalidInput(
            f"The task package {digest} arrived as {actual}.",
            code=ErrorCode.DIGEST_MISMATCH,
            object=ErrorObject(type="task_package", id=digest),
            next="Publish the dataset again.",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        package.unpack(data, draft)
        draft.chmod(0o755)
        draft.rename(place)
    except OSError:
        if not place.is_dir():  # another worker was faster
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
