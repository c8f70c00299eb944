"""What the proxy adds: latency and requests per second with durable capture.

Compute answers at once, so every millisecond is the proxy's own, two syncs of the disk per
call included; beside it, in the same run, the same server and client with an endpoint that
captures nothing, and the raw cost of a sync. `proxy_litellm` compares it with another proxy, end
to end.

    python -m benchmarks.proxy [--calls 200] [--json]
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runtime.exclusive import listen
from tests.proxy.world import Dice, user, world

type Result = dict[str, float]


async def measure(call: Callable[[int], Awaitable[Any]], calls: int, concurrent: int) -> Result:
    """Latency in milliseconds and calls per second of `calls` calls, some at a time."""
    times: list[float] = []
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            begun = time.perf_counter()
            await call(number)
            times.append((time.perf_counter() - begun) * 1000)

    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(concurrent):
            tasks.start_soon(work)
    rate = calls / (time.perf_counter() - begun)
    return {
        "p50_ms": round(statistics.median(times), 2),
        "p95_ms": round(sorted(times)[int(len(times) * 0.95) - 1], 2),
        "per_sec": round(rate, 1),
    }


async def bare(folder: Path, body: dict[str, Any], calls: int, concurrent: int) -> Result:
    """The same server with an endpoint that reads JSON, answers, and captures nothing."""

    async def endpoint(request: Request) -> Response:
        await request.json()
        return JSONResponse({"content": [{"type": "text", "text": "ok"}]})

    app = Starlette(routes=[Route("/v1/messages", endpoint, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    path = folder / "bare.sock"
    with listen(path) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await anyio.sleep(0.005)
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(transport=transport, base_url="http://b") as client:

                async def call(_number: int) -> None:
                    (await client.post("/v1/messages", json=body)).raise_for_status()

                try:
                    return await measure(call, calls, concurrent)
                finally:
                    server.should_exit = True
    raise AssertionError("the server ended before it was measured")


async def durable(text: str, calls: int, concurrent: int, *, stream: bool) -> Result:
    """The proxy; every call is another request of one of `concurrent` trials."""
    compute = Dice(["ok"] * (calls + concurrent))
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        async with world(Path(name), compute=compute) as stack:
            harnesses = [stack.harness() for _ in range(concurrent)]
            for harness in harnesses:
                await harness.say([user("warm")])

            async def call(number: int) -> None:
                harness = harnesses[number % concurrent]
                response = await harness.post([user(f"{number} {text}")], stream=stream)
                response.raise_for_status()

            return await measure(call, calls, concurrent)
    raise AssertionError("the proxy ended before it was measured")


def sync_cost(folder: Path, rounds: int = 50) -> float:
    """Milliseconds of one small append and sync."""
    descriptor = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    times: list[float] = []
    for _ in range(rounds):
        begun = time.perf_counter()
        os.write(descriptor, b"x" * 600)
        os.fdatasync(descriptor)
        times.append((time.perf_counter() - begun) * 1000)
    os.close(descriptor)
    return round(statistics.median(times), 2)


async def run(calls: int) -> dict[str, Any]:
    report: dict[str, Any] = {}
    short, long = "List the files.", "word " * 700
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        folder = Path(name)
        report["sync_ms"] = sync_cost(folder)
        for size, text in (("short", short), ("long", long)):
            body = {"model": "m", "max_tokens": 9, "messages": [user(text)]}
            for concurrent in (1, 16):
                key = f"{size}_{concurrent}"
                report[f"no_capture_{key}"] = await bare(folder, body, calls, concurrent)
                for stream in (False, True):
                    mode = "stream" if stream else "plain"
                    report[f"durable_{mode}_{key}"] = await durable(
                        text, calls, concurrent, stream=stream
                    )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = asyncio.run(run(options.calls))
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name:32} {value}")


if __name__ == "__main__":
    main()
