"""Events: no gaps, resumable, and readers are woken rather than polling."""

from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from runtime.gateway import events
from runtime.home import Role
from specs.events import Event, EventType
from specs.records import LogPiece
from specs.worker_api import ComputeWaiting, LogWritten
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio


async def stream(
    stack: Stack, run: str, last: int | None = None
) -> AsyncIterator[tuple[str, Event]]:
    """Server-sent events of a run, with their ids."""
    headers = {
        "authorization": f"Bearer {stack.home.key(Role.OPERATOR)}",
        "accept": "text/event-stream",
        **({} if last is None else {"last-event-id": str(last)}),
    }
    transport = httpx.AsyncHTTPTransport(uds=str(stack.home.gateway_socket))
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://g", timeout=30) as client,
        client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            if line.startswith(":"):
                continue
            if not line and fields:
                yield fields["id"], Event.model_validate_json(fields["data"])
                fields = {}
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value


async def test_a_stream_tells_everything_to_the_end_and_resumes_from_a_cursor(
    stack: Stack,
) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    seen: list[Event] = []

    async def listen() -> None:
        async for identity, event in stream(stack, run):
            assert identity == str(event.seq)
            seen.append(event)

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        hand = await Hand.take(stack)
        await hand.batch()
        await hand.trial(await hand.group())
        await stack.operator.cancel(run)
        hand.last_event += 1
        trials = (await stack.operator.trials(run)).items
        await hand.settle(trials[0].id, None, outcome="cancelled")
        await hand.complete("cancelled")
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].type == EventType.RUN_CANCELLED
    resumed = [event async for _, event in stream(stack, run, last=3)]
    assert resumed == seen[3:]
    assert [event async for _, event in stream(stack, run, last=seen[-1].seq)] == []


async def test_a_long_poll_is_woken_by_the_commit(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    answered = anyio.Event()

    async def wait() -> None:
        page = await stack.operator.events(run, after=1, wait=20)
        assert [event.type for event in page.events] == [EventType.RUN_CLAIMED]
        answered.set()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.sleep(0.2)
        assert not answered.is_set()
        await Hand.take(stack)
        with anyio.fail_after(10):  # far less than the poll would have waited
            await answered.wait()
    page = await stack.operator.events(run, after=2, wait=0.05)
    assert (page.events, page.next, page.terminal) == ([], 2, False)


async def test_the_end_of_the_gateway_ends_streams(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    seen: list[Event] = []
    async with anyio.create_task_group() as group:

        async def listen() -> None:
            async for _, event in stream(stack, run):
                seen.append(event)

        group.start_soon(listen)
        with anyio.fail_after(10):
            while not seen:  # noqa: ASYNC110 - waits for the first event of another task
                await anyio.sleep(0.01)
        stack.gateway.wakeups.stop()
    assert [event.type for event in seen] == [EventType.RUN_ADMITTED]


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(plan=st.lists(st.lists(st.sampled_from(["append", "fail"]), max_size=6), max_size=6))
async def test_sequences_have_no_gaps_whatever_fails(stack: Stack, plan: list[list[str]]) -> None:
    """Writers that run together and partly fail leave 1…n, in the order of their commits."""
    await stage.publish(stack)
    run = await stage.start(stack)
    expected = 1 + sum(step == "append" for writer in plan for step in writer)

    async def writer(steps: list[str]) -> None:
        for step in steps:

            def transaction(connection: Connection, step: str = step) -> None:
                events.append(connection, "org_local", run, [(EventType.BATCH_STARTED, {})])
                if step == "fail":
                    raise ValueError(step)

            if step == "fail":
                with pytest.raises(ValueError, match="fail"):
                    await stack.gateway.database.write(transaction)
            else:
                await stack.gateway.database.write(transaction)

    async with anyio.create_task_group() as group:
        for steps in plan:
            group.start_soon(writer, steps)
    page = await stack.operator.events(run, limit=1000)
    assert [event.seq for event in page.events] == list(range(1, expected + 1))


async def test_logs_are_read_by_source_and_trial_in_bounded_pieces(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    await hand.batch()
    trial = await hand.trial(await hand.group())
    pieces = [
        LogPiece(source="worker", text="claimed"),
        *(LogPiece(source="harness", trial=trial, text="x" * 65536) for _ in range(18)),
    ]
    await hand.write(*(LogWritten(piece=piece) for piece in pieces))
    assert [p.text for p in (await stack.operator.logs(run, source="worker")).items] == ["claimed"]
    texts: list[str] = []
    cursor = None
    while True:
        page = await stack.operator.logs(run, trial=trial, cursor=cursor)
        assert sum(len(piece.text) for piece in page.items) <= 1 << 20
        texts += [piece.text for piece in page.items]
        if (cursor := page.next) is None:
            break
    assert texts == ["x" * 65536] * 18


async def test_what_a_training_service_keeps_waiting_is_an_event(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack)
    hand = await Hand.take(stack)
    waiting = ComputeWaiting(
        operation="forward", trainer="trn_1", state="rate_limited", reason="too many", seconds=7.5
    )
    await hand.write(waiting)
    event = (await stack.operator.events(run, limit=1000)).events[-1]
    assert event.type is EventType.COMPUTE_WAITING
    assert event.data == waiting.model_dump(mode="json", exclude={"type"})
