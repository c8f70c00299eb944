"""Many agents at once while a run trains, and one that follows it through kill -9 of the gateway.

Twenty clients with ten calls under way each, against real processes: no call fails, and the
slowest of the reads keeps within a multiple of the median. The follower goes on from its cursor,
over a new server each time, and sees every event once.
"""

import os
import signal
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import quantiles
from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_server.server import build_server
from runtime.client import OperatorClient
from runtime.home import Home
from tests.e2e.support import Stack, profile, write_tasks

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.timeout(900),
]
CLIENTS, CALLS, ROUNDS = 20, 10, 4
MOST = 10.0
"""p99 of the reads over their p50."""
PLAN: dict[str, Any] = {
    "num_batches": 200,
    "batch": {"tasks": 2, "trials_per_task": 2},
    "lora": {"rank": 2},
    "resources": {"concurrency": 2},
}


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(Path(os.path.realpath(tmp_path_factory.mktemp("s"))))
    write_tasks(made.root / "tasks", 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRACTICUM_MODELS", str(made.root / "models"))
        assert made.run("up", timeout=300).code == 0
        assert made.run("model", "pull", "tiny").code == 0
        yield made
        assert made.run("down", timeout=180).code == 0
        assert made.processes() == []


async def ask(client: Client, tool: str, **values: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, values)
    assert not result.is_error, (tool, result.structured_content)
    return result.structured_content or {}


async def start(home: Home, stack: Stack) -> str:
    """A training run that would go on for long."""
    async with Client(build_server(home)) as client:
        folder = str(stack.root / "tasks")
        await ask(client, "dataset_publish", folder=folder, publish_as="e2e/parity@v1")
        values = {"dataset": "e2e/parity@v1", "actor": profile(), "plan": PLAN}
        return (await ask(client, "train_start", **values))["run"]


def reads(run: str) -> list[tuple[str, dict[str, Any]]]:
    named = {"run": run}
    return [
        ("run_show", named),
        ("run_events", {**named, "limit": 20}),
        ("run_trials", named),
        ("run_updates", named),
        ("run_groups", named),
        ("run_result", named),
        ("run_logs", named),
        ("run_checkpoints", named),
        ("run_list", {}),
        ("dataset_show", {"dataset": "e2e/parity@v1"}),
    ]


async def load(home: Home, run: str) -> list[float]:
    """Seconds of each read, with 200 of them under way at any time."""
    times: list[float] = []

    async def caller(client: Client, place: int) -> None:
        for tool, values in islice(cycle(reads(run)), place, place + ROUNDS):
            begun = time.perf_counter()
            await ask(client, tool, **values)
            times.append(time.perf_counter() - begun)

    async def one_client() -> None:
        async with Client(build_server(home)) as client, anyio.create_task_group() as calls:
            for place in range(CALLS):
                calls.start_soon(caller, client, place)

    async with anyio.create_task_group() as clients:
        for _ in range(CLIENTS):
            clients.start_soon(one_client)
    return times


class Follower:
    """Reads a run's events from a cursor to the end; each page over a server of its own."""

    def __init__(self, home: Home, run: str) -> None:
        self._home, self._run = home, run
        self.seen: list[tuple[int, str]] = []
        self.refused: list[str] = []

    async def follow(self) -> None:
        after, terminal = 0, False
        while not terminal:
            async with Client(build_server(self._home)) as client:
                values = {"run": self._run, "after": after, "limit": 5, "wait": 5}
                result = await client.call_tool("run_events", values)
            page: dict[str, Any] = result.structured_content or {}
            if result.is_error:  # the gateway was away for longer than a call rides out
                self.refused.append(page["code"])
                continue
            self.seen += [(event["seq"], event["type"]) for event in page["events"]]
            after, terminal = page["next"], page["terminal"]

    async def until(self, more: int) -> None:
        """Wait for so many further events."""
        wanted = len(self.seen) + more
        while len(self.seen) < wanted:  # noqa: ASYNC110 - a test's own wait
            await anyio.sleep(0.1)


def gateway_pid(stack: Stack) -> int:
    parts = stack.json("status")["parts"]
    return next(part["pid"] for part in parts if part["name"] == "gateway")


async def test_two_hundred_calls_at_once_and_a_follow_across_a_killed_gateway(stack: Stack) -> None:
    home = Home.at(stack.home)
    run = await start(home, stack)
    follower = Follower(home, run)
    times: list[float] = []
    async with anyio.create_task_group() as group:
        group.start_soon(follower.follow)
        await follower.until(6)
        times += await load(home, run)
        async with Client(build_server(home)) as client:
            assert (await ask(client, "run_show", run=run))["state"] == "running"
        for _ in range(2):
            os.kill(await anyio.to_thread.run_sync(gateway_pid, stack), signal.SIGKILL)
            await follower.until(6)
        async with Client(build_server(home)) as client:
            await ask(client, "run_cancel", run=run)
    async with OperatorClient.at(home) as gateway:
        events = [one async for one in gateway.follow(run)]
    assert follower.seen == [(event.seq, str(event.type)) for event in events]
    assert [seq for seq, _ in follower.seen] == list(range(1, len(events) + 1))
    assert set(follower.refused) <= {"stack_unavailable"}
    assert len(times) == CLIENTS * CALLS * ROUNDS
    cuts = quantiles(times, n=100)
    assert cuts[98] < MOST * cuts[49], f"p50 {cuts[49]:.3f} s, p99 {cuts[98]:.3f} s"
