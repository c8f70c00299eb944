"""What a trial costs beyond its own work, beside Harbor's own `TrialQueue` in the same run.

The same example task, the same sandbox, the same oracle agent on both sides; then our own
agent, which brings a profile's files, setup and outputs. Rounds are interleaved, so that a busy
machine slows every row alike; compare rows of one run, not runs.

    python -m benchmarks.trials [--rounds 3] [--trials 8] [--concurrency 4] [--json FILE]

`overhead_ms` is a trial's wall time without its agent and verifier phases; `cpu_ms` is what
this process burnt per trial, sandboxes not included.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio

from runtime.execution.board import Board
from runtime.execution.harbor import VERIFIER, Deadlines, run_trial, task_facts
from runtime.execution.workplace import SANDBOX, EnvironmentSpec
from specs.canonical import validate
from specs.ids import Prefix, new_id
from specs.profile import Binding, Profile

TASK = Path(__file__).parents[1] / "examples" / "shell-practice" / "practice-09-copy-file"
ACTOR: dict[str, Any] = {
    "schema": "practicum.profile/v1",
    "name": "benchmarks/copy",
    "agent": {
        "model": "none",
        "engine": {"name": "command", "version": "1"},
        "files": [{"path": "/opt/agent/run.sh", "content": "cp horn.txt cheese.csv"}],
        "args": ["bash", "/opt/agent/run.sh"],
    },
}

type Timed = tuple[float, float | None]
"""Overhead in seconds, and the reward."""


@dataclass
class Row:
    """What was measured of one way to run trials."""

    overheads: list[float] = field(default_factory=list[float])
    rewards: list[float | None] = field(default_factory=list[float | None])
    wall: float = 0.0
    cpu: float = 0.0

    def summary(self) -> dict[str, float]:
        count = len(self.overheads)
        return {
            "trials": count,
            "reward_1": sum(reward == 1 for reward in self.rewards),
            "trials_per_min": round(60 * count / self.wall, 1),
            "overhead_p50_ms": round(statistics.median(self.overheads) * 1e3, 1),
            "overhead_min_ms": round(min(self.overheads) * 1e3, 1),
            "cpu_ms": round(1e3 * self.cpu / count, 1),
        }


@dataclass(frozen=True)
class Place:
    """Folders and environment of the benchmark."""

    root: Path

    @property
    def environment(self) -> EnvironmentSpec:
        return EnvironmentSpec({"state_dir": str(self.root / "state")})

    def fresh(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.root))


async def with_queue(place: Place, count: int, concurrency: int) -> list[Timed]:
    """Harbor's own scheduler, agent, verifier and bookkeeping."""
    from harbor.models.trial.config import (
        AgentConfig,
        EnvironmentConfig,
        TaskConfig,
        TrialConfig,
    )
    from harbor.trial.queue import TrialQueue

    folder, limiter = place.fresh(), anyio.Semaphore(concurrency)
    queue = TrialQueue(n_concurrent=concurrency)
    timed: list[Timed] = []

    async def one() -> None:
        config = TrialConfig(
            task=TaskConfig(path=TASK),
            trials_dir=folder,
            agent=AgentConfig(name="oracle"),
            environment=EnvironmentConfig(
                import_path=SANDBOX, kwargs=dict(place.environment.kwargs)
            ),
        )
        async with limiter:  # so that waiting for the queue is nobody's overhead
            begin = time.perf_counter()
            result = await queue.submit(config)
            total = time.perf_counter() - begin
        work = sum(
            (phase.finished_at - phase.started_at).total_seconds()
            for phase in (result.agent_execution, result.verifier)
            if phase and phase.started_at and phase.finished_at
        )
        rewards = result.verifier_result.rewards if result.verifier_result else None
        timed.append((total - work, (rewards or {}).get("reward")))

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(one)
    return timed


def with_adapter(
    agent: Literal["oracle", "profile"],
) -> Callable[[Place, int, int], Awaitable[list[Timed]]]:
    """Our adapter, with Harbor's oracle or with a profile."""

    async def run(place: Place, count: int, concurrency: int) -> list[Timed]:
        folder, limiter = place.fresh(), anyio.Semaphore(concurrency)
        timed: list[Timed] = []

        async def one() -> None:
            async with limiter:
                begin = time.perf_counter()
                concluded = await run_trial(
                    _board(agent),
                    TASK,
                    folder,
                    place.environment,
                    Deadlines.of(task_facts(TASK)),
                    agent=agent,
                )
                work = sum(concluded.seconds.get(name, 0.0) for name in ("agent", "verifier"))
                timed.append((time.perf_counter() - begin - work, concluded.verdict.reward))

        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(one)
        return timed

    return run


def _board(agent: Literal["oracle", "profile"]) -> Board:
    facts = task_facts(TASK)
    trial = new_id(Prefix.TRIAL)
    if agent == "oracle":
        return Board(trial, facts.agent_sec)
    bindings = dict.fromkeys(Binding, "none") | {Binding.INSTRUCTION: facts.instruction}
    return Board(
        trial,
        facts.agent_sec,
        facts.instruction,
        profile=validate(Profile, ACTOR, what="profile"),
        bindings=bindings,
    )


async def compare(rounds: int, trials: int, concurrency: int) -> dict[str, dict[str, float]]:
    """All rows, interleaved; the first trial of all builds the base and is not counted."""
    ways: dict[str, Callable[[Place, int, int], Awaitable[list[Timed]]]] = {
        "Harbor TrialQueue, oracle": with_queue,
        "adapter, oracle": with_adapter("oracle"),
        "adapter, profile": with_adapter("profile"),
    }
    rows: dict[str, Row] = defaultdict(Row)
    place = Place(Path(tempfile.mkdtemp(prefix="practicum-bench-")))
    try:
        for run in ways.values():
            await run(place, 1, 1)
        for _ in range(rounds):
            for name, run in ways.items():
                begin, cpu = time.perf_counter(), time.process_time()
                timed = await run(place, trials, concurrency)
                rows[name].wall += time.perf_counter() - begin
                rows[name].cpu += time.process_time() - cpu
                rows[name].overheads += [overhead for overhead, _ in timed]
                rows[name].rewards += [reward for _, reward in timed]
    finally:
        shutil.rmtree(place.root)
    return {name: row.summary() for name, row in rows.items()}


def main() -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    arguments = parser.parse_args()
    rows = anyio.run(compare, arguments.rounds, arguments.trials, arguments.concurrency)
    columns = list(next(iter(rows.values())))
    print(f"{'':28}" + "".join(f"{column:>17}" for column in columns))
    for name, row in rows.items():
        print(f"{name:28}" + "".join(f"{row[column]:>17g}" for column in columns))
    print(f"verifier: {VERIFIER}; load {os.getloadavg()[0]:.1f}")
    if arguments.json:
        report = {"concurrency": arguments.concurrency, "load": os.getloadavg()[0], "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
