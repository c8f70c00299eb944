"""Reads of twenty MCP clients with ten calls under way each, while a run trains.

    python -m benchmarks.mcp_load [--rounds 3] [--clients 20] [--calls 10] [--json FILE]

A whole stack trains `tiny` on rows; the reads ask for that run and for a dataset. Three ways to
read take turns: tools while the run trains, the gateway's own answers while it trains (one
connection for each MCP client, as many calls at once), and the same tools when that run has been
cancelled. So the first beside the second is what the protocol costs, and beside the third what
training costs. Any error ends the measurement. Aim: p99 of the tools is below ten times their p50.
"""

import argparse
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from benchmarks._load import Times
from benchmarks._stack import ROOT
from mcp_server.server import build_server
from runtime.client import OperatorClient
from runtime.home import Home
from specs.events import EventType
from specs.run import RunState
from tests.e2e.support import own_stack, profile, write_tasks

AIM = 10.0
REFERENCE = "bench/tasks@v1"
TASKS = 20
READS = 4
"""Of each call that is under way, in a round."""
PLAN = {
    "source": {"file": str(ROOT / "examples" / "rows" / "commands.jsonl")},
    "epochs": 1000,
    "batch_size": 3,
    "lora": {"rank": 2},
}
"""More steps than there is time for."""
WAYS = ("tools, training", "gateway, training", "tools, idle")


async def ask(client: Client, tool: str, **values: Any) -> dict[str, Any]:
    """What a tool answers.

    Raises:
        RuntimeError: it is an error.
    """
    result = await client.call_tool(tool, values)
    if result.is_error:
        raise RuntimeError(f"{tool}: {result.structured_content}")
    return result.structured_content or {}


@asynccontextmanager
async def training(home: Home) -> AsyncGenerator[str]:
    """A run that trains, from its first update on; it must not end by itself."""
    async with Client(build_server(home)) as client:
        run = str((await ask(client, "train_start", actor=profile(), plan=PLAN))["run"])
        seen: dict[str, Any] = {"next": 0, "events": []}
        while not any(event["type"] == EventType.UPDATE_ACKNOWLEDGED for event in seen["events"]):
            seen = await ask(client, "run_events", run=run, after=seen["next"], wait=20)
            if seen["terminal"]:
                raise RuntimeError(f"the run has ended before an update: {seen['events']}")
        yield run
        if (state := (await ask(client, "run_show", run=run))["state"]) != RunState.RUNNING:
            raise RuntimeError(f"the run is {state}")
        await ask(client, "run_cancel", run=run)
        await ask(client, "run_wait", run=run, timeout="2m")


async def over_mcp(home: Home, run: str, calls: int, to: Times) -> None:
    """One client's reads, as tools."""
    async with Client(build_server(home)) as client:
        await to.measure(
            READS * calls,
            calls,
            in_turn(
                [
                    lambda: ask(client, "run_show", run=run),
                    lambda: ask(client, "run_events", run=run, limit=20),
                    lambda: ask(client, "run_updates", run=run, limit=20),
                    lambda: ask(client, "run_result", run=run),
                    lambda: ask(client, "dataset_show", dataset=REFERENCE),
                ]
            ),
        )


async def directly(home: Home, run: str, calls: int, to: Times) -> None:
    """The same reads of the gateway."""
    async with OperatorClient.at(home) as gateway:
        await to.measure(
            READS * calls,
            calls,
            in_turn(
                [
                    lambda: gateway.run(run),
                    lambda: gateway.events(run, limit=20),
                    lambda: gateway.updates(run, limit=20),
                    lambda: gateway.result(run),
                    lambda: gateway.dataset(REFERENCE),
                ]
            ),
        )


def in_turn(reads: list[Callable[[], Awaitable[object]]]) -> Callable[[int], Awaitable[None]]:
    """One read after the other of the list, whichever caller asks."""
    places = iter(range(1 << 30))

    async def call(_: int) -> None:
        await reads[next(places) % len(reads)]()

    return call


async def together(
    many: int, reader: Callable[[Home, str, int, Times], Coroutine[Any, Any, None]], *words: Any
) -> None:
    """So many readers at once."""
    async with anyio.create_task_group() as tasks:
        for _ in range(many):
            tasks.start_soon(reader, *words)


async def measure(home: Home, clients: int, calls: int, rounds: int) -> dict[str, Times]:
    """Times of each way, in rounds of all three; one caller of each first, which warms up."""
    found = {way: Times() for way in WAYS}
    for _ in range(rounds):
        async with training(home) as run:
            for reader in (over_mcp, directly):
                await reader(home, run, 1, Times())
            await together(clients, over_mcp, home, run, calls, found[WAYS[0]])
            await together(clients, directly, home, run, calls, found[WAYS[1]])
        await together(clients, over_mcp, home, run, calls, found[WAYS[2]])
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--calls", type=int, default=10, help="under way at once, of each client")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    options = parser.parse_args()
    with own_stack() as stack:
        stack.run("up", timeout=300)
        stack.json("model", "pull", "tiny")
        write_tasks(stack.root / "tasks", TASKS)
        stack.json("dataset", "publish", str(stack.root / "tasks"), "--as", REFERENCE)
        sizes = (options.clients, options.calls, options.rounds)
        found = anyio.run(measure, Home.at(stack.home), *sizes)
    rows = {
        way: {"calls": len(times.latencies), "p50_ms": times.at(0.5), "p99_ms": times.at(0.99)}
        for way, times in found.items()
    }
    print(f"{'reads':20}{'calls':>8}{'p50 ms':>10}{'p99 ms':>10}{'p99/p50':>9}")
    for way, row in rows.items():
        print(
            f"{way:20}{row['calls']:8d}{row['p50_ms']:10.1f}{row['p99_ms']:10.1f}"
            f"{row['p99_ms'] / row['p50_ms']:8.1f}×"
        )
    ours, gateway, idle = (rows[way]["p50_ms"] for way in WAYS)
    print(f"p50: {ours / gateway:.1f}× the gateway's own, {ours / idle:.1f}× that without training")
    print(f"aim: p99 below {AIM:g}× p50; load {os.getloadavg()[0]:.1f}")
    if options.json is not None:
        report = {"clients": options.clients, "calls": options.calls, "rows": rows}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
