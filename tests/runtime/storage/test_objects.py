"""Objects on files: create-only, verified, whole or absent (invariant 11)."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.storage import objects
from runtime.storage.objects import FileObjectStore, whole
from specs import canonical
from specs.errors import ErrorCode, InvalidInput, NotFound, Unavailable

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


@pytest.mark.parametrize(
    ("size", "data", "says"),
    [
        (3, b"four", "more than 3 bytes arrived where 3 were announced"),
        (5, b"four", "stored: 4 bytes arrived where 5 were announced"),
        (4, b"FOUR", f"the bytes have digest {canonical.digest_bytes(b'FOUR')}"),
    ],
)
async def test_a_refusal_says_what_arrived(
    tmp_path: Path, size: int, data: bytes, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        await FileObjectStore(tmp_path).put(ORG, canonical.digest_bytes(b"four"), size, whole(data))


async def test_what_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    given: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(9):
            given.append(number)
            yield b"x" * objects.CHUNK

    with pytest.raises(InvalidInput, match="more than 5 bytes"):
        await FileObjectStore(tmp_path).put(ORG, canonical.digest_bytes(b""), 5, chunks())
    assert given == [0]


async def test_a_new_object_is_told_from_one_that_was_there(tmp_path: Path) -> None:
    store, digest = FileObjectStore(tmp_path), canonical.digest_bytes(b"kept")
    assert await store.put(ORG, digest, 4, whole(b"kept")) is True
    assert await store.put(ORG, digest, 4, whole(b"kept")) is False
    assert await store.put("org_other", digest, 4, whole(b"kept")) is True
    assert (tmp_path / "o" / ORG).stat().st_mode & 0o777 == 0o700
    assert [path.name for path in files(tmp_path)] == [digest[7:]] * 2


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, None, [b"0123", b"4567", b"89"]),
        (1, 6, [b"1234", b"56"]),
        (0, 8, [b"0123", b"4567"]),
        (0, 0, []),
        (10, None, []),
        (8, 100, [b"89"]),
    ],
)
async def test_a_range_is_read_in_chunks(
    tmp_path: Path,
    start: int,
    length: int | None,
    expected: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "CHUNK", 4)
    store, data = FileObjectStore(tmp_path), b"0123456789"
    digest = canonical.digest_bytes(data)
    await store.put(ORG, digest, len(data), whole(data))
    assert [chunk async for chunk in store.read(ORG, digest, start, length)] == expected


async def test_small_chunks_are_gathered_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "CHUNK", 4)
    written: list[bytes] = []
    append = objects._Temporary.append  # pyright: ignore[reportPrivateUsage]

    def noted(self: Any, block: bytes) -> None:
        written.append(block)
        append(self, block)

    monkeypatch.setattr(objects._Temporary, "append", noted)  # pyright: ignore[reportPrivateUsage]

    async def chunks() -> AsyncIterator[bytes]:
        for piece in (b"ab", b"cd", b"e", b"fghijk", b"l"):
            yield piece

    with tempfile.TemporaryDirectory() as folder:
        data = b"abcdefghijkl"
        await FileObjectStore(Path(folder)).put(
            ORG, canonical.digest_bytes(data), len(data), chunks()
        )
    assert written == [b"abcd", b"efghijk", b"l"]


async def test_a_store_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "o").write_bytes(b"no folder")
    digest = canonical.digest_bytes(b"four")
    with pytest.raises(Unavailable, match="cannot be stored: Not a directory") as refused:
        await FileObjectStore(tmp_path).put(ORG, digest, 4, whole(b"four"))
    assert refused.value.problem.code == ErrorCode.STORE_UNAVAILABLE
    assert refused.value.problem.object is not None
    assert refused.value.problem.object.id == digest


async def test_what_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    digest = canonical.digest_bytes(b"gone")
    with pytest.raises(NotFound, match="is not in the store") as missing:
        await read(FileObjectStore(tmp_path), digest)
    assert missing.value.problem.next == "Upload it again."
