"""The spool: durable in groups, whole records only, and honest about failure."""

import os
from pathlib import Path

import anyio
import pytest

from proxy.spool import Key, Spool
from specs.errors import Unavailable
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
