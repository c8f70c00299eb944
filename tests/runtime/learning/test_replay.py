"""A run that is replayed from recorded interactions, and killed at twenty random points, ends
with the weights of the uninterrupted replay, bit for bit; where nobody can ask compute, it stops
exactly if a step was enqueued and is not acknowledged (invariants 7, 8, 17)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from runtime.compute.client import HttpCompute
from runtime.learning.verify import verify_run
from specs.errors import Unavailable
from specs.operator_api import ModelList
from specs.records import Update, UpdateState
from specs.run import RunState
from tests.runtime.gateway import stage
from tests.runtime.learning.live import PLAN, Live
from tests.runtime.learning.replay import Death, Order, choose
from tests.runtime.worker.stack import REPOSITORY, Stack

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(1800)]

PROMPT = [5 + place % 200 for place in range(300)]
"""Long enough for a forward pass to be hit while it runs."""
PATIENCE = 300.0
SEED = 8


@dataclass
class Theatre:
    """A gateway in this process, compute and the worker in processes of their own."""

    gateway: stage.Stack
    processes: Stack
    compute: HttpCompute

    @property
    def running(self) -> bool:
        """Whether there is a compute process."""
        process = self.processes.processes.get("compute")
        return process is not None and process.poll() is None

    async def raise_compute(self) -> None:
        """Start compute if it does not run, and wait until it answers."""
        with anyio.fail_after(300):
            while True:
                if not self.running:  # one that was killed may take a while to be gone
                    self.processes.processes.pop("compute", None)
                    self.processes.start("compute")
                try:
                    await self.compute.health()
                except Unavailable:
                    await anyio.sleep(0.1)
                else:
                    return

    async def claim(
        self, run: str, recording: str, *, death: Death | None = None, patience: float = PATIENCE
    ) -> dict[str, Any] | None:
        """One claim of the run by a worker process; None if it was killed."""
        order = Order(
            home=self.gateway.home.root,
            run=run,
            recording=recording,
            compute_pid=self.processes.processes["compute"].pid if self.running else 0,
            patience=patience,
            death=death,
        )
        command = [sys.executable, "-m", "tests.runtime.learning.replay", order.model_dump_json()]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        ended = await anyio.run_process(
            command, check=False, stderr=subprocess.PIPE, env=environment, cwd=str(REPOSITORY)
        )
        if ended.returncode == -signal.SIGKILL:
            await stage.expire(self.gateway, run)
            return None
        assert ended.returncode == 0, ended.stderr.decode()[-4000:]
        return json.loads(ended.stdout.splitlines()[-1])

    async def revive_if_dead(self) -> None:
        """Let a compute that a worker killed be started again, as the supervisor does."""
        while self.running:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        await self.raise_compute()

    async def adapters(self, run: str) -> list[str]:
        """Digests of the weights of its checkpoints."""
        return [item.adapter for item in (await self.gateway.operator.checkpoints(run)).items]

    async def standing(self, run: str) -> Update | None:
        """The update that is not over, if there is one."""
        undecided = (UpdateState.PREPARED, UpdateState.UNRESOLVED)
        updates = (await self.gateway.operator.updates(run)).items
        return next((update for update in updates if update.state in undecided), None)


@pytest.fixture
async def theatre(short_dir: Path, template: Path) -> AsyncIterator[Theatre]:
    home = stage.prepared_home(short_dir, template)
    processes = Stack(home)
    async with stage.running(home) as gateway, HttpCompute(home.compute_socket) as compute:
        made = Theatre(gateway, processes, compute)
        try:
            await made.raise_compute()
            await stage.publish(gateway)
            models = ModelList(models=[await compute.model("tiny")])
            await gateway.worker.put_models(models)
            yield made
        finally:
            processes.stop()


async def test_a_replay_killed_anywhere_ends_with_the_same_weights_invariant_8(
    theatre: Theatre,
) -> None:
    live = Live(theatre.gateway, theatre.compute, prompt=PROMPT)
    recording = await live.start(PLAN)
    await live.work(recording)
    whole = await live.start(PLAN)
    told = await theatre.claim(whole, recording)
    assert told is not None
    assert told["outcome"] == "completed"
    weights = await theatre.adapters(whole)
    assert len(weights) == 2
    assert weights == await theatre.adapters(recording)
    stopped = 0
    for number, death in enumerate(choose(told["calls"], SEED)):
        where = f"{number}: {death.who} died {death.when} {death.call} #{death.nth}"
        run = await live.start(PLAN)
        stopped += await _die_and_go_on(theatre, run, recording, death, dark=number % 2 == 1)
        assert await theatre.adapters(run) == weights, where
        assert (await theatre.gateway.operator.run(run)).state is RunState.COMPLETED, where
    assert stopped, "no death left a step that nobody could tell of; choose another seed"
    report = await verify_run(theatre.gateway.operator, theatre.compute, whole)
    assert {c.id: c.violations for c in report.checks if c.violated} == {}


async def _die_and_go_on(
    theatre: Theatre, run: str, recording: str, death: Death, *, dark: bool
) -> bool:
    """Let a claim die there and others finish the run; whether it stopped for an operator.

    `dark` gives the run to the next worker while compute is away.
    """
    ended: dict[str, Any] | None = None
    async with anyio.create_task_group() as tasks:
        if death.who == "compute":
            tasks.start_soon(theatre.revive_if_dead)
        ended = await theatre.claim(run, recording, death=death)
        assert (ended is None) == (death.who != "compute"), "nobody died where it was planned"
        tasks.cancel_scope.cancel()
    stopped = False
    if ended is None and dark:
        stopped = await _continue_in_the_dark(theatre, run, recording)
    await theatre.raise_compute()
    if (await theatre.gateway.operator.run(run)).state is not RunState.COMPLETED:
        told = await theatre.claim(run, recording)
        assert told is not None
        assert told["outcome"] == "completed"
    return stopped


async def _continue_in_the_dark(theatre: Theatre, run: str, recording: str) -> bool:
    """A claim without compute stops `unresolved` exactly where a step was enqueued and is not
    acknowledged; then an operator who can see the saved states decides."""
    if theatre.running:
        theatre.processes.end("compute")
    before = await theatre.standing(run)
    told = await theatre.claim(run, recording, patience=0.5)
    assert told is not None
    stopped = before is not None and before.state is UpdateState.UNRESOLVED
    assert (told["outcome"] == "blocked") == stopped, (told["outcome"], before)
    if stopped:
        assert before is not None
        blocked = await theatre.gateway.operator.run(run)
        assert blocked.state is RunState.BLOCKED
        assert blocked.reason is not None
        assert blocked.reason.next is not None
        assert f"update resolve {run} {before.id}" in blocked.reason.next
        await theatre.raise_compute()
        saved = await theatre.compute.find_state(before.id)
        word = "not-applied" if saved is None else "applied"
        await theatre.gateway.operator.resolve(run, before.id, word)
    return stopped
