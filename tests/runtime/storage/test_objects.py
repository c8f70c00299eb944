"""Objects on files: create-only, verified, whole or absent (invariant 11)."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.storage.objects import FileObjectStore, whole
from specs import canonical
from specs.errors import ErrorCode, InvalidInput, NotFound

pytestmark = pytest.mark.anyio

ORG = "org_local"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def read(
    store: FileObjectStore, digest: str, start: int = 0, length: int | None = None
) -> bytes:
    return b"".join([chunk async for chunk in store.read(ORG, digest, start, length)])


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pieces=st.lists(st.binary(max_size=3000), max_size=6), start=st.integers(0, 4000))
async def test_what_was_put_is_what_is_read(
    tmp_path: Path, pieces: list[bytes], start: int
) -> None:
    store, data = FileObjectStore(tmp_path), b"".join(pieces)
    digest = canonical.digest_bytes(data)

    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    await store.put(ORG, digest, len(data), chunks())
    assert not await store.put(ORG, digest, len(data), whole(data))
    assert await read(store, digest) == data
    assert await read(store, digest, start, 10) == data[start : start + 10]
    assert await store.size(ORG, digest) == len(data)


@pytest.mark.parametrize(
    ("size", "data"), [(3, b"four"), (5, b"four"), (4, b"FOUR")], ids=["longer", "shorter", "other"]
)
async def test_wrong_bytes_leave_nothing(tmp_path: Path, size: int, data: bytes) -> None:
    store = FileObjectStore(tmp_path)
    digest = canonical.digest_bytes(b"four")
    with pytest.raises(InvalidInput) as refused:
        await store.put(ORG, digest, size, whole(data))
    assert refused.value.problem.code == ErrorCode.DIGEST_MISMATCH
    assert files(tmp_path) == []
    with pytest.raises(NotFound):
        await read(store, digest)


async def test_of_racing_creations_one_wins_and_the_object_is_whole(tmp_path: Path) -> None:
    store, data = FileObjectStore(tmp_path), b"x" * 100_000
    digest = canonical.digest_bytes(data)
    for round in range(20):
        org = f"org_{round}"
        won: list[bool] = []

        def create(org: str = org, won: list[bool] = won) -> None:
            won.append(anyio.run(store.put, org, digest, len(data), whole(data)))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(anyio.to_thread.run_sync, create)
        assert sorted(won) == [False, False, False, True]
        assert [p.name for p in (tmp_path / "o" / org).iterdir()] == [digest[7:]]


async def test_a_cancelled_upload_leaves_nothing(tmp_path: Path) -> None:
    store = FileObjectStore(tmp_path)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * (1 << 20)
            await anyio.sleep(0.01)

    with anyio.move_on_after(0.1) as scope:
        await store.put(ORG, canonical.digest_bytes(b"x"), 1 << 40, endless())
    assert scope.cancelled_caught
    assert files(tmp_path) == []


async def test_leftovers_of_a_crash_are_swept_and_objects_kept(tmp_path: Path) -> None:
    store = FileObjectStore(tmp_path)
    digest = canonical.digest_bytes(b"kept")
    await store.put(ORG, digest, 4, whole(b"kept"))
    (tmp_path / "o" / ORG / ".put-abc").write_bytes(b"half an obj")
    assert await store.sweep() == 1
    assert await store.stored(ORG) == [digest]
    assert await store.stored("org_other") == []
    await store.delete(ORG, digest)
    await store.delete(ORG, digest)
    assert await store.size(ORG, digest) is None
