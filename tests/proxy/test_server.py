"""A proxy whose parts have failed ends, so that it is started again."""

import signal
import sys
from pathlib import Path

import anyio
import httpx
import pytest

from proxy import __main__ as program
from proxy.leases import Leases
from specs import evidence
from tests.proxy.world import WORKER_KEY, user, world

pytestmark = pytest.mark.anyio

_KEY = {"authorization": f"Bearer {WORKER_KEY}"}


async def test_a_server_whose_parts_fail_answers_nobody_any_more(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls under way are told, and are lost on the record (invariant 2)."""
    fail = anyio.Event()

    async def run(_: Leases) -> None:
        await fail.wait()
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(Leases, "run", run)
    async with world(short_dir) as stack:
        claims, reached = stack.gateway.claims(), anyio.Event()
        statuses: list[int] = []

        async def before(_: int) -> None:
            reached.set()
            await anyio.sleep_forever()

        async def ask() -> None:
            statuses.append((await stack.harness(**claims).post([user("u")])).status_code)

        stack.compute.before = before
        assert (await stack.client.get("/healthz", headers=_KEY)).status_code == 200
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await reached.wait()
            fail.set()
        with anyio.fail_after(30), pytest.raises(httpx.TransportError):
            while True:
                await stack.client.get("/healthz", headers=_KEY)
        records = [frame.record for frame, _ in evidence.frames(stack.segment(claims["trial"]))]
    assert statuses == [529]
    assert [record.kind for record in records] == ["intent", "failure"]


def test_a_process_whose_parts_fail_says_so_by_its_exit_code(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_: Leases) -> None:
        raise RuntimeError("nobody thought of this")

    def configure() -> None:
        """The log stays that of the tests."""

    monkeypatch.setattr(Leases, "run", run)
    monkeypatch.setattr(program, "configure", configure)
    monkeypatch.setattr(sys, "argv", ["proxy", "--home", str(short_dir)])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert program.main() == 1
    finally:
        signal.signal(signal.SIGTERM, handler)
