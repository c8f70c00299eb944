"""The gateway as a process: killed at any instant, started again, stopped politely."""

import json
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from runtime.client import OperatorClient, WorkerClient
from runtime.home import Home
from specs.errors import Unavailable
from specs.events import EventType
from specs.ids import Prefix, new_id
from specs.operator_api import ModelList
from specs.records import LogPiece
from specs.worker_api import BatchStarted, LogWritten, WriteRequest
from tests.runtime.gateway import stage

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy;"
    " runpy.run_module('runtime.gateway', run_name='__main__')"
)


@asynccontextmanager
async def process(home: Home) -> AsyncGenerator[Process]:
    """A gateway in a process of its own; what is left of it is killed."""
    command = [sys.executable, "-P", "-c", BOOT, str(ROOT), "--home", str(home.root)]
    log = (home.logs / "gateway.log").open("ab")
    async with await anyio.open_process(command, stdout=log, stderr=subprocess.STDOUT) as child:
        try:
            yield child
        finally:
            if child.returncode is None:
                child.kill()
    log.close()


@pytest.mark.timeout(180)
async def test_invariant_17_what_was_acknowledged_survives_kill_9(home: Home) -> None:
    async with (
        OperatorClient.at(home, patience=60) as operator,
        WorkerClient.at(home, patience=0.2) as worker,
    ):
        acknowledged: dict[int, int] = {}
        async with process(home) as child:
            await operator.health()
            assert stat.S_IMODE(home.gateway_socket.stat().st_mode) == 0o600
            await worker.put_models(ModelList(models=[stage.model()]))
            await publish(operator)
            run = (await operator.start(stage.submission())).run
            claim = await worker.claim(new_id(Prefix.WORKER), 600)
            assert claim is not None

            def request(number: int) -> WriteRequest:
                return WriteRequest(
                    claim=claim.id,
                    fence=claim.fence,
                    sequence=number,
                    writes=(
                        BatchStarted(batch=number, sampler=claim.spec.sampler.id, tasks=()),
                        LogWritten(piece=LogPiece(source="worker", text=str(number))),
                    ),
                )

            async def write() -> None:
                number = 0
                while True:
                    number += 1
                    try:
                        reply = await worker.write(run, request(number))
                    except Unavailable:
                        return
                    acknowledged[number] = reply.last_event

            async with anyio.create_task_group() as group:
                group.start_soon(write)
                await anyio.sleep(1.5)
                child.kill()
        last = max(acknowledged)
        async with process(home) as child:
            await operator.health()
            # the request that was in flight is repeated, and applied once
            reply = await worker.write(run, request(last + 1))
            assert reply.last_event == acknowledged[last] + 1
            assert (await worker.write(run, request(last))).last_event == acknowledged[last]
            seen = [event async for event in events(operator, run)]
            assert [seq for seq, _ in seen] == list(range(1, reply.last_event + 1))
            assert sum(kind == EventType.BATCH_STARTED for _, kind in seen) == last + 1
            child.send_signal(signal.SIGTERM)
            with anyio.fail_after(30):
                assert await child.wait() == 0
        assert not home.gateway_socket.exists()


async def publish(operator: OperatorClient) -> None:
    digest = await operator.upload(b"package")
    dataset = {
        "schema": "practicum.dataset/v1",
        "name": "acme/practice",
        "version": "v1",
        "tasks": [{"name": "acme/one", "digest": digest, "size": 7}],
    }
    await operator.publish_dataset(stage.Dataset.model_validate_json(json.dumps(dataset)))


async def events(operator: OperatorClient, run: str) -> AsyncGenerator[tuple[int, EventType]]:
    after = 0
    while True:
        page = await operator.events(run, after=after, limit=1000)
        for event in page.events:
            yield event.seq, event.type
        if not page.events:
            return
        after = page.next


async def test_a_second_gateway_of_a_home_is_refused(home: Home) -> None:
    async with OperatorClient.at(home, patience=60) as operator, process(home):
        await operator.health()
        async with process(home) as second:
            with anyio.fail_after(60):
                assert await second.wait() == 1
        assert "another gateway serves" in (home.logs / "gateway.log").read_text()
        await operator.health()
