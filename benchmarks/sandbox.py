"""Sandbox start, exec, transfer and stop, beside a bare subprocess and bubblewrap in the same run.

    python -m benchmarks.sandbox [--rounds N] [--json FILE]

The rounds of all rows are interleaved, so that a busy machine slows every row alike; compare
rows of one run, not runs.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable
from pathlib import Path

import anyio

from runtime.execution.sandbox.base import derive
from runtime.execution.sandbox.cgroups import Limits
from runtime.execution.sandbox.sandbox import Sandbox, Settings

LIMITS = Limits(memory_mb=1024, cpus=2, pids=512)
EXECS = 5


class Times:
    """Wall times by row."""

    def __init__(self) -> None:
        self.rows: dict[str, list[float]] = defaultdict(list)

    async def measure[T](self, row: str, work: Awaitable[T]) -> T:
        """Await `work` and record how long it took."""
        begin = time.perf_counter()
        result = await work
        self.rows[row].append(time.perf_counter() - begin)
        return result

    def summary(self) -> dict[str, dict[str, float]]:
        """Milliseconds: least, median, 90th percentile."""
        return {
            row: {
                "n": len(times),
                "min_ms": round(min(times) * 1e3, 2),
                "p50_ms": round(statistics.median(times) * 1e3, 2),
                "p90_ms": round(sorted(times)[int(len(times) * 0.9) - 1] * 1e3, 2),
            }
            for row, times in self.rows.items()
        }


async def one_round(times: Times, settings: Settings, files: Path) -> None:
    """Every row once (`exec` a few times)."""
    sandbox = await times.measure("sandbox: start", Sandbox.start(settings))
    try:
        for _ in range(EXECS):
            done = await times.measure("sandbox: exec true", sandbox.exec(["bash", "-c", "true"]))
            assert done.code == 0
        await times.measure("sandbox: upload 10 files", sandbox.put_tree(files, "/in"))
        with tempfile.TemporaryDirectory() as out:
            got = sandbox.get_tree("/in", Path(out))
            await times.measure("sandbox: download 10 files", got)
    finally:
        await times.measure("sandbox: stop and remove", sandbox.stop())
    for _ in range(EXECS):
        await times.measure(
            "bare subprocess: bash -c true", anyio.run_process(["bash", "-c", "true"])
        )
    if shutil.which("bwrap"):
        argv = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
        await times.measure(
            "bubblewrap: one command", anyio.run_process([*argv, "bash", "-c", "true"])
        )


async def main(rounds: int, target: Path | None) -> None:
    """Run the benchmark, print its table, write its JSON."""
    times = Times()
    with tempfile.TemporaryDirectory(prefix="practicum-bench-") as name:
        state = Path(name)
        files = state / "files"
        files.mkdir()
        for number in range(10):
            (files / f"{number}.txt").write_bytes(os.urandom(2000))
        begin = time.perf_counter()
        base = derive(state)
        first = time.perf_counter() - begin
        settings = Settings(state, base, limits=LIMITS)
        for number in range(rounds + 1):
            await one_round(times if number else Times(), settings, files)  # the first warms up
    report = {
        "rows": times.summary(),
        "base_derived_once_ms": round(first * 1e3, 1),
        "load": os.getloadavg(),
        "cpus": os.cpu_count(),
    }
    print(f"{'':34}{'n':>5}{'min ms':>10}{'p50 ms':>10}{'p90 ms':>10}")
    for row, value in times.summary().items():
        cells = f"{value['min_ms']:>10}{value['p50_ms']:>10}{value['p90_ms']:>10}"
        print(f"{row:34}{value['n']:>5.0f}{cells}")
    print(json.dumps(report))
    if target is not None:
        await anyio.Path(target).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    anyio.run(main, options.rounds, options.json)
