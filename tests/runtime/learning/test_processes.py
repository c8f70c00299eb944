"""Training through the real processes: sandboxes, proxy, gateway, compute and worker, two of
which are killed on the way; `verify` finds the run sound (invariants 8, 16, 17)."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from runtime.compute.client import HttpCompute
from runtime.home import Home
from runtime.learning.verify import verify_run
from specs.events import EventType
from specs.run import RunState
from tests.runtime.execution.bench import Bench
from tests.runtime.worker.stack import Operator, Stack, calling_profile, operator

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.sandbox,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
REWARD = "echo $(( $(cksum < /app/report.md | cut -d' ' -f1) % 10 )) > /logs/verifier/reward.txt"


@pytest.fixture
def stack() -> Iterator[Stack]:
    root = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    home = Home.at(root / "h")
    home.create()
    stack = Stack(home)
    try:
        stack.start("gateway", "compute", "proxy", "worker")
        stack.ready("gateway", "proxy")
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(root)


async def until(op: Operator, run: str, kind: EventType) -> None:
    """Wait for an event."""
    with anyio.fail_after(90):
        while not any(event.type == kind for event in await op.events(run)):  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def test_a_training_run_survives_kills_of_compute_and_worker_and_verifies(
    stack: Stack, tmp_path: Path
) -> None:
    tasks = Bench(tmp_path, tmp_path / "unused")
    actor = calling_profile()
    actor["agent"]["args"] = ["bash", "-c", "python3 /opt/agent.py | tail -c +200 | tee report.md"]
    async with operator(stack) as op:
        dataset = await op.publish(tasks.task("one", REWARD), tasks.task("two", REWARD))
        run = await op.start(
            dataset,
            actor,
            num_batches=3,
            batch={"tasks": 1, "trials_per_task": 3},
            learning_rate=0.001,
            lora={"rank": 2, "alpha": 8.0, "seed": 0},
        )
        await until(op, run, EventType.UPDATE_PREPARED)
        stack.end("compute")
        stack.start("compute")
        await until(op, run, EventType.UPDATE_ACKNOWLEDGED)
        stack.end("worker")
        stack.start("worker")
        ended = await op.end(run, seconds=200)
        assert ended.state is RunState.COMPLETED, ended.reason
        result = await op.client.result(run)
        assert result.trials_settled == result.planned_slots == 9
        assert result.updates["acknowledged"] + result.updates["skipped"] == 3
        assert result.updates["acknowledged"] == len(result.checkpoints) >= 1
        async with HttpCompute(stack.home.compute_socket) as compute:
            report = await verify_run(op.client, compute, run, samples=None)
            assert {c.id: c.violations for c in report.checks if c.violated} == {}
            assert report.logprobs_recomputed == report.interactions == 9
            assert (await compute.health()).trainers == ()
    assert stack.left() == []
