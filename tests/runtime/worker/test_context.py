"""Fenced writes against a real gateway: once each, in order, and none after the claim is lost."""

from collections.abc import AsyncGenerator

import anyio
import pytest

from runtime.client import WorkerClient
from runtime.compute.client import HttpCompute
from runtime.execution.context import ClaimLost, RunCancelled, RunContext, clean_text
from runtime.execution.proxy_control import ProxyControl
from specs import canonical
from specs.ids import Prefix, new_id
from specs.profile import Profile
from specs.run import RunState
from specs.worker_api import BatchStarted, Claim
from tests.runtime.execution.bench import Bench
from tests.runtime.worker.stack import Operator, profile

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.fixture
async def client(op: Operator) -> AsyncGenerator[WorkerClient]:
    """A worker's client while the stack's own worker, which tells of the models, is away."""
    await op.known()
    op.stack.end("worker")
    async with WorkerClient.at(op.stack.home) as client:
        yield client
    op.stack.start("worker")


async def admitted(op: Operator, tasks: Bench) -> str:
    dataset = await op.publish(tasks.task("some"))
    return await op.start(dataset, profile("true"), trials_per_task=1)


async def claimed(client: WorkerClient, run: str, lease: float = 60) -> Claim:
    while True:
        claim = await client.claim(new_id(Prefix.WORKER), lease)
        if claim is not None:
            assert claim.run == run
            return claim
        await anyio.sleep(0.1)


async def context_of(op: Operator, client: WorkerClient, claim: Claim) -> RunContext:
    actor = await client.object(claim.spec.actor)
    return RunContext(
        home=op.stack.home,
        claim=claim,
        records=await client.records(claim.run),
        profile=canonical.read(Profile, actor, what="profile"),
        client=client,
        compute=HttpCompute(op.stack.home.compute_socket),
        proxy=ProxyControl(op.stack.home),
    )


def batch(context: RunContext, number: int) -> BatchStarted:
    return BatchStarted(batch=number, sampler=context.spec.sampler.id, tasks=("tests/some",))


async def test_writes_of_many_tasks_are_numbered_and_each_applied_once(
    op: Operator, tasks: Bench, client: WorkerClient
) -> None:
    run = await admitted(op, tasks)
    context = await context_of(op, client, await claimed(client, run))
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(context.write, batch(context, number))
    started = [e.data["batch"] for e in await op.events(run) if e.type == "batch.started"]
    assert sorted(str(number) for number in started) == sorted(map(str, range(10)))
    assert context.last_event == (await op.client.run(run)).last_event
    await context.complete("released")
    await op.client.cancel(run)


async def test_invariant_10_a_write_survives_a_gateway_that_dies_and_is_applied_once(
    op: Operator, tasks: Bench, client: WorkerClient
) -> None:
    run = await admitted(op, tasks)
    context = await context_of(op, client, await claimed(client, run))
    await context.write(batch(context, 0))
    op.stack.end("gateway")
    async with anyio.create_task_group() as group:
        group.start_soon(context.write, batch(context, 1))
        await anyio.sleep(0.3)
        op.stack.start("gateway")
    started = [e for e in await op.events(run) if e.type == "batch.started"]
    assert len(started) == 2
    await context.complete("released")
    await op.client.cancel(run)


async def test_invariant_10_nothing_is_written_after_the_claim_is_lost(
    op: Operator, tasks: Bench, client: WorkerClient
) -> None:
    run = await admitted(op, tasks)
    stale = await context_of(op, client, await claimed(client, run, lease=0.5))
    await anyio.sleep(0.6)
    current = await context_of(op, client, await claimed(client, run))
    before = (await op.client.run(run)).last_event
    for attempt in (stale.beat, lambda: stale.write(batch(stale, 0))):
        with pytest.raises(ClaimLost):
            await attempt()
    with pytest.raises(ClaimLost):
        await stale.complete("completed")
    with pytest.raises(ClaimLost):
        stale.check()
    assert (await op.client.run(run)).last_event == before
    await current.complete("released")
    await op.client.cancel(run)


async def test_cancelling_a_task_does_not_tear_its_write(
    op: Operator, tasks: Bench, client: WorkerClient
) -> None:
    run = await admitted(op, tasks)
    context = await context_of(op, client, await claimed(client, run))
    for number in range(5):
        with anyio.move_on_after(0):
            await context.write(batch(context, number))
    await context.write(batch(context, 5))
    started = [e for e in await op.events(run) if e.type == "batch.started"]
    assert len(started) == 6
    await context.complete("released")
    await op.client.cancel(run)


async def test_a_completion_catches_up_with_events_of_others(
    op: Operator, tasks: Bench, client: WorkerClient
) -> None:
    run = await admitted(op, tasks)
    context = await context_of(op, client, await claimed(client, run))
    context.log("begun\n")
    await context.flush()
    await op.client.cancel(run)  # an event that the worker has not seen
    await context.beat()
    with pytest.raises(RunCancelled):
        context.check()
    await context.complete("cancelled")
    assert (await op.client.run(run)).state == RunState.CANCELLED


async def test_logs_of_any_content_are_kept(
    op: Operator, tasks: Bench, client: WorkerClient
) -> None:
    run = await admitted(op, tasks)
    context = await context_of(op, client, await claimed(client, run))
    context.log("nul \x00 and surrogate \ud800 and " + "x" * 100_000)
    await context.flush()
    text = "".join(item.text for item in (await op.client.logs(run)).items)
    assert text.startswith("nul \ufffd and surrogate ?")
    assert len(text) > 100_000
    await context.complete("released")
    await op.client.cancel(run)


def test_clean_text_is_text_that_every_reader_takes() -> None:
    assert clean_text("a\x00\ud800b") == "a\ufffd?b"
