"""Waiting for an event is told while it lasts, and ends with the event."""

import anyio
import pytest

from specs.events import EventPage
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack
from tools import registry, run_records
from tools.context import Context

pytestmark = pytest.mark.anyio


async def test_a_wait_is_told_and_ends_with_the_next_event(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    monkeypatch.setattr(run_records, "TELL_SEC", 0.05)
    run = await stage.start(stack)
    told: list[str] = []
    pages: list[EventPage] = []
    claimed = anyio.Event()

    async def listen(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            claimed.set()

    async def claim() -> None:
        await claimed.wait()
        await Hand.take(stack)

    async def wait(seconds: float) -> EventPage:
        chosen = registry.find("run", "events")
        values = {"run": run, "after": 1, "wait": seconds}
        page = await registry.call(chosen, Context(stack.home, progress=listen), values)
        assert isinstance(page, EventPage)
        return page

    assert (await wait(0.0)).events == [] and not told
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claim)
        pages.append(await wait(60.0))
    assert [event.seq for event in pages[0].events] == [2]
    assert len(told) >= 3
    assert pages[0].next == 2
