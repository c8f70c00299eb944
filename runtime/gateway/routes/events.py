"""Events: pages, long poll, and a stream that resumes from `Last-Event-ID`.

A reader registers for a wake-up before it looks, so that no event can slip between; nothing
polls the database.
"""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from runtime.gateway import events, lookup
from runtime.gateway.auth import AnyRole, GatewayDep
from runtime.gateway.context import Gateway
from runtime.gateway.routes.parameters import LIMIT, Limit
from runtime.gateway.wire import answer
from runtime.storage.tables import runs
from specs.events import EventPage
from specs.ids import Prefix

router = APIRouter()

LONGEST_WAIT = 30.0
PING_SEC = 15
SEND_TIMEOUT_SEC = 10

Sequence = Annotated[int, Query(ge=0, le=2**53)]
Wait = Annotated[float, Query(ge=0, le=3600)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,15}$")]


@router.get("/v1/runs/{run}/events")
async def read(
    request: Request,
    gateway: GatewayDep,
    caller: AnyRole,
    run: str,
    after: Sequence = 0,
    limit: Limit = LIMIT,
    wait: Wait = 0.0,
    last_event_id: LastEventId = None,
) -> Response:
    """A page of events after a cursor, or a stream of them."""
    row = await gateway.database.read(
        lambda c: lookup.by_short_id(c, runs, caller.org, run, Prefix.RUN)
    )
    if "text/event-stream" in request.headers.get("accept", ""):
        cursor = after if last_event_id is None else int(last_event_id)
        return EventSourceResponse(
            _stream(gateway, row.id, cursor),
            ping=PING_SEC,
            send_timeout=SEND_TIMEOUT_SEC,
        )
    page = await _page(gateway, row.id, after, limit, min(wait, LONGEST_WAIT))
    return answer(page)


async def _page(gateway: Gateway, run: str, after: int, limit: int, wait: float) -> EventPage:
    """A page; an empty one only when nothing happened for `wait` seconds."""
    with anyio.move_on_after(wait):
        while True:
            with gateway.wakeups.watch(run) as woken:
                page = await gateway.database.read(lambda c: events.after(c, run, after, limit))
                if page.events or page.terminal or not wait or gateway.wakeups.stopped:
                    return page
                await woken.wait()
    return await gateway.database.read(lambda c: events.after(c, run, after, limit))


async def _stream(gateway: Gateway, run: str, after: int) -> AsyncIterator[ServerSentEvent]:
    """Every event from the cursor on, until the run's last one or the end of the gateway."""
    while not gateway.wakeups.stopped:
        page = await _page(gateway, run, after, events.MAX_PAGE, LONGEST_WAIT)
        for event in page.events:
            yield ServerSentEvent(
                data=event.model_dump_json(), id=str(event.seq), event=event.type.value
            )
        if page.terminal:
            return
        after = page.next
