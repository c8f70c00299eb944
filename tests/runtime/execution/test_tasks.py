"""Task packages on disk: verified, whole, unpacked once."""

from pathlib import Path

import anyio
import pytest

from runtime.execution.tasks import TaskCache
from specs import canonical, package
from specs.errors import InvalidInput

pytestmark = pytest.mark.anyio


def packed(folder: Path) -> tuple[str, bytes]:
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "test.sh").write_text("true")
    data = package.pack(folder)
    return canonical.digest_bytes(data), data


async def test_a_package_is_fetched_once_however_many_ask(tmp_path: Path) -> None:
    digest, data = packed(tmp_path / "task")
    asked: list[str] = []

    async def fetch(name: str) -> bytes:
        asked.append(name)
        await anyio.sleep(0.01)
        return data

    cache = TaskCache(tmp_path / "cache", fetch)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(cache.path, digest)
    assert asked == [digest]
    place = await cache.path(digest)
    assert (place / "tests" / "test.sh").read_text() == "true"
    assert await TaskCache(tmp_path / "cache", fetch).path(digest) == place
    assert asked == [digest]


async def test_invariant_11_other_bytes_than_the_digest_names_are_refused(tmp_path: Path) -> None:
    digest, data = packed(tmp_path / "task")

    async def fetch(_: str) -> bytes:
        return data + b"\0" * 512

    with pytest.raises(InvalidInput) as caught:
        await TaskCache(tmp_path / "cache", fetch).path(digest)
    assert caught.value.problem.code == "digest_mismatch"
    assert not list((tmp_path / "cache").glob("*"))


async def test_a_package_that_is_no_package_leaves_nothing(tmp_path: Path) -> None:
    data = b"not a tar" * 100

    async def fetch(_: str) -> bytes:
        return data

    with pytest.raises(InvalidInput):
        await TaskCache(tmp_path / "cache", fetch).path(canonical.digest_bytes(data))
    assert not list((tmp_path / "cache").glob("*"))
