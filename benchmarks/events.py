"""Durable event append against raw sqlite3 with one FULL commit per append, in the same run.

    python -m benchmarks.events [--seconds 2] [--rounds 3] [--json FILE]

Both sides allocate a per-run sequence, encode and stamp 1 KB of data per event, and insert it
under WAL and synchronous FULL.
The baseline is the cheapest code that keeps the same promise: one thread, prepared
statements, one commit per append (or per batch). Rounds alternate between the sides; each
number is the median of its rounds. Aims (design §8): ≥ 0.6× at 1 waiter, ≥ 1× at 32, ≥ 0.7×
in batches of 100.
"""

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

import anyio
import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import events
from runtime.storage import schema
from runtime.storage.clock import timestamp
from runtime.storage.database import SqliteDatabase
from runtime.storage.tables import LOCAL_ORG, runs
from specs.events import EventType
from specs.ids import Prefix, new_id

RUNS = 32
DRAFT: events.Draft = (EventType.TRIAL_SETTLED, {"text": "x" * 960})
AIMS = {"1 waiter": 0.6, "32 waiters": 1.0, "batches of 100": 0.7}


def add_runs(connection: Connection) -> list[str]:
    """Rows that events can belong to."""
    ids = [new_id(Prefix.RUN) for _ in range(RUNS)]
    row = {
        "org_id": LOCAL_ORG,
        "kind": "evaluation",
        "state": "queued",
        "created_at": "",
        "actor_name": "",
        "model": "",
        "spec": b"",
        "admission": "",
        "planned_slots": 0,
        "last_event": 0,
        "last_log": 0,
        "fence": 0,
    }
    connection.execute(sa.insert(runs), [{**row, "id": run} for run in ids])
    return ids


async def ours(
    database: SqliteDatabase, ids: list[str], waiters: int, batch: int, sec: float
) -> float:
    """Rows per second through the group-commit writer."""
    deadline = time.perf_counter() + sec
    done = 0

    async def waiter(number: int) -> None:
        nonlocal done
        run = ids[number % RUNS]
        drafts = [DRAFT] * batch
        while time.perf_counter() < deadline:
            await database.write(lambda c: events.append(c, LOCAL_ORG, run, drafts))
            done += batch

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        for number in range(waiters):
            group.start_soon(waiter, number)
    return done / (time.perf_counter() - started)


def raw(path: Path, ids: list[str], batch: int, sec: float) -> float:
    """Rows per second of sqlite3, one commit per append."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    done, started = 0, time.perf_counter()
    while time.perf_counter() < started + sec:
        run = ids[done % RUNS]
        drafts = [DRAFT] * batch
        connection.execute("begin immediate")
        (last,) = connection.execute(
            "update runs set last_event = last_event + ? where id = ? returning last_event",
            (batch, run),
        ).fetchone()
        at = timestamp()
        connection.executemany(
            "insert into events (org_id, run_id, seq, at, type, data) values (?, ?, ?, ?, ?, ?)",
            [
                (LOCAL_ORG, run, last - batch + 1 + offset, at, kind.value, json.dumps(data))
                for offset, (kind, data) in enumerate(drafts)
            ],
        )
        connection.execute("commit")
        done += batch
    rate = done / (time.perf_counter() - started)
    connection.close()
    return rate


async def measure(folder: Path, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of alternating rounds."""
    paths = {side: folder / f"{side}.db" for side in ("ours", "raw")}
    for path in paths.values():
        schema.upgrade(path)
    database, other = SqliteDatabase(paths["ours"]), SqliteDatabase(paths["raw"])
    ids, other_ids = await database.write(add_runs), await other.write(add_runs)
    await other.close()
    cases: dict[str, tuple[int, int]] = {
        "1 waiter": (1, 1),
        "32 waiters": (32, 1),
        "batches of 100": (1, 100),
    }
    results: dict[str, dict[str, float]] = {}
    for name, (waiters, batch) in cases.items():

        async def theirs(batch: int = batch) -> float:
            return await anyio.to_thread.run_sync(raw, paths["raw"], other_ids, batch, seconds)

        sides: dict[str, Callable[[], Awaitable[float]]] = {
            "ours": partial(ours, database, ids, waiters, batch, seconds),
            "raw": theirs,
        }
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, run in sides.items():
                rates[side].append(await run())
        found = {side: median(values) for side, values in rates.items()}
        ratio = found["ours"] / found["raw"]
        results[name] = {**found, "ratio": ratio, "aim": AIMS[name]}
    await database.close()
    return results


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None, help="also write the numbers there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="events-") as folder:
        results = anyio.run(measure, Path(folder), options.seconds, options.rounds)
    print(f"{'append (rows/s)':18}{'ours':>10}{'sqlite3':>10}{'ratio':>8}{'aim':>6}")
    for name, row in results.items():
        print(
            f"{name:18}{row['ours']:10.0f}{row['raw']:10.0f}{row['ratio']:7.2f}×{row['aim']:5.1f}×"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
