"""The spool: durable in groups, whole records only, and honest about failure."""

import os
from pathlib import Path

import anyio
import pytest

from proxy.spool import Key, Spool
from specs.errors import ErrorCode, Unavailable
from specs.ids import Prefix, new_id

pytestmark = pytest.mark.anyio


def key() -> Key:
    return Key(new_id(Prefix.TRIAL), 1)


async def test_many_writers_of_many_segments_are_all_kept_in_order(short_dir: Path) -> None:
    spool = Spool(short_dir)
    segments = [spool.open(key()) for _ in range(5)]

    async def write(number: int) -> None:
        for segment in segments:
            await spool.submit(segment, f"{number:03};".encode()).wait()

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(write, number)
    spool.close()
    for segment in segments:
        assert sorted(segment.read().split(b";")[:-1]) == [b"%03d" % one for one in range(50)]


async def test_records_are_written_in_the_order_of_submission(short_dir: Path) -> None:
    spool = Spool(short_dir)
    segment = spool.open(key())
    tickets = [spool.submit(segment, bytes([number])) for number in range(100)]
    await tickets[-1].wait()
    assert segment.read() == bytes(range(100))
    spool.close()


async def test_waiters_share_the_cost_of_a_sync(short_dir: Path) -> None:
    spool = Spool(short_dir)
    segment = spool.open(key())
    syncs = 0
    sync = segment.sync

    def counted() -> None:
        nonlocal syncs
        syncs += 1
        sync()

    segment.sync = counted  # type: ignore[method-assign]
    tickets = [spool.submit(segment, b"x") for _ in range(200)]
    for ticket in tickets:
        await ticket.wait()
    spool.close()
    assert syncs < 20


async def test_a_failed_write_says_so_and_closes_the_segment_alone(short_dir: Path) -> None:
    spool = Spool(short_dir)
    broken, good = spool.open(key()), spool.open(key())
    await spool.submit(broken, b"kept").wait()
    os.close(broken._file)  # pyright: ignore[reportPrivateUsage]
    for _ in range(2):
        with pytest.raises(Unavailable):
            await spool.submit(broken, b"not kept").wait()
    await spool.submit(good, b"kept").wait()
    assert broken.read() == good.read() == b"kept"
    spool.close()


async def test_nothing_is_written_to_a_segment_that_is_closed(short_dir: Path) -> None:
    """Its file's number is another's by now: neither what comes later nor what came too late."""
    spool, one, other = Spool(short_dir), key(), key()
    closed = spool.open(one)
    await spool.submit(closed, b"kept").wait()
    late = spool.submit(closed, b"late", lazy=True)
    closed.close()
    spool.remove(one)
    following = spool.open(other)
    with pytest.raises(Unavailable, match="closed"):
        spool.submit(closed, b"later")
    await spool.submit(following, b"its own").wait()
    with pytest.raises(Unavailable, match="closed"):
        await late.wait()
    assert following.read() == b"its own"
    assert spool.staged == len(b"its own")
    spool.close()


async def test_what_could_not_be_written_takes_no_room(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written and not synced does."""
    spool = Spool(short_dir)
    full, failing = spool.open(key()), spool.open(key())

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    for name, segment in (("write", full), ("fdatasync", failing)):
        await spool.submit(segment, b"kept").wait()
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fails)
            with pytest.raises(Unavailable):
                await spool.submit(segment, b"more").wait()
    assert (full.read(), failing.read()) == (b"kept", b"keptmore")
    assert spool.staged == len(b"kept") + len(b"keptmore")
    spool.close()


async def test_closing_writes_what_was_submitted(short_dir: Path) -> None:
    spool = Spool(short_dir)
    segment = spool.open(key())
    spool.submit(segment, b"late")
    spool.close()
    assert segment.read() == b"late"
    with pytest.raises(Unavailable):
        spool.submit(segment, b"too late")


async def test_only_files_of_the_spool_are_listed(short_dir: Path) -> None:
    spool = Spool(short_dir)
    one = key()
    spool.open(one)
    spool.write_file(spool.seal_path(one), b"{}")
    for name in ("x.seg", "trl_1.1.seg", f"{one.trial}.seg", ".lock", f"{one.trial}.1.damaged"):
        (short_dir / name).touch()
    assert sorted(spool.keys(), key=lambda item: item[1]) == [(one, False), (one, True)]
    spool.close()


async def test_a_full_spool_refuses_calls_until_something_is_published(short_dir: Path) -> None:
    spool, one, other = Spool(short_dir, limit=10), key(), key()
    first, second = spool.open(one), spool.open(other)
    await spool.submit(first, b"x" * 6).wait()
    await spool.submit(second, b"y" * 3).wait()
    spool.check_room()
    await spool.submit(second, b"z").wait()
    with pytest.raises(Unavailable, match=r"10 bytes of evidence wait.* of 10 that may") as refused:
        spool.check_room()
    assert refused.value.problem.code == ErrorCode.STORE_UNAVAILABLE
    await spool.submit(first, b"w").wait()  # a call under way still writes what it has
    assert spool.staged == 11
    spool.remove(one)
    spool.remove(one)  # harmless to repeat
    assert spool.staged == 4
    spool.check_room()
    spool.close()
    again = Spool(short_dir, limit=4)
    assert again.staged == 4
    with pytest.raises(Unavailable):
        again.check_room()
    again.close()


async def test_a_start_sweeps_what_was_half_written_and_a_removal_what_was_damaged(
    short_dir: Path,
) -> None:
    one = key()
    (short_dir / "folder").mkdir()
    (short_dir / "folder" / "half.tmp").touch()
    spool = Spool(short_dir / "folder")
    spool.open(one)
    damaged = spool.segment_path(one).with_suffix(".damaged")
    damaged.touch()
    spool.write_file(spool.seal_path(one), b"first")
    spool.write_file(spool.seal_path(one), b"then")
    assert spool.seal_path(one).read_bytes() == b"then"
    assert spool.seal_path(one).stat().st_mode & 0o777 == 0o600
    assert spool.segment_path(one).stat().st_mode & 0o777 == 0o600
    spool.remove(one)
    assert [path.name for path in spool.folder.iterdir()] == [spool.seal_path(one).name]
    spool.close()
    made = Spool(short_dir / "a" / "b")
    assert made.folder.stat().st_mode & 0o777 == 0o700
    made.close()


async def test_what_is_lazy_is_written_with_what_comes_next(short_dir: Path) -> None:
    spool = Spool(short_dir)
    segment = spool.open(key())
    lazy = spool.submit(segment, b"lazy;", lazy=True)
    with anyio.move_on_after(0.05):
        await lazy.wait()
    assert not lazy.done.is_set()
    assert segment.read() == b""
    await spool.submit(segment, b"due").wait()
    await lazy.wait()
    assert segment.read() == b"lazy;due"
    spool.submit(segment, b";last", lazy=True)
    spool.close()
    assert segment.read() == b"lazy;due;last"


async def test_a_write_that_fails_half_way_leaves_the_file_at_its_last_whole_record(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(short_dir)
    segment = spool.open(key())
    await spool.submit(segment, b"whole").wait()
    write = os.write
    calls = 0

    def two_bytes_then_full(file: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            raise OSError(28, "No space left on device")
        return write(file, data[:2])

    monkeypatch.setattr(os, "write", two_bytes_then_full)
    with pytest.raises(Unavailable, match="No space left"):
        await spool.submit(segment, b"record").wait()
    monkeypatch.undo()
    assert segment.read() == b"whole"
    assert segment.size == 5
    with pytest.raises(Unavailable, match="No space left"):  # closed for good
        await spool.submit(segment, b"more").wait()
    assert segment.read() == b"whole"
    spool.close()


async def test_a_write_that_takes_several_goes_is_whole(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(short_dir)
    segment = spool.open(key())
    write = os.write

    def three_bytes(file: int, data: bytes) -> int:
        return write(file, data[:3])

    monkeypatch.setattr(os, "write", three_bytes)
    await spool.submit(segment, b"0123456789").wait()
    assert (segment.read(), segment.size) == (b"0123456789", 10)
    segment.truncate(4)
    assert (segment.read(), segment.size) == (b"0123", 4)
    spool.close()


async def test_a_failed_sync_closes_the_segment_for_good(short_dir: Path) -> None:
    spool = Spool(short_dir)
    segment = spool.open(key())

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(Unavailable, match="Input/output error"):
            await spool.submit(segment, b"lost").wait()
    with pytest.raises(Unavailable, match="Input/output error"):
        await spool.submit(segment, b"more").wait()
    spool.close()


def test_the_files_of_a_trial_are_named_by_it_and_its_fence(short_dir: Path) -> None:
    spool = Spool(short_dir)
    one = Key(new_id(Prefix.SESSION), 12)
    assert spool.segment_path(one) == short_dir / f"{one.trial}.12.seg"
    assert spool.seal_path(one) == short_dir / f"{one.trial}.12.seal.json"
    spool.segment_path(one).touch()
    assert list(spool.keys()) == [(one, False)]
    spool.close()
