"""`python -P -m runtime.worker --home DIR`: one worker of a local stack."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from runtime.execution.workplace import Tool
from runtime.home import Home
from runtime.worker.leftovers import Busy, alone, sweep_leftovers
from runtime.worker.service import DEFAULT_LEASE_SEC, DEFAULT_RUNS, Worker

KEPT = frozenset(
    {
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LOGNAME",
        "OMP_NUM_THREADS",
        "PATH",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
    }
)


def forget_environment() -> None:
    """Drop every variable but the harmless ones.

    Harbor resolves `${NAME}` in a task's own files from this process's environment, so a key
    in it would be one task file away from a sandbox (invariant 13).
    """
    for name in list(os.environ):
        known = name.startswith(("PYTHON", "PRACTICUM_")) and name != "PRACTICUM_TOKEN"
        if name not in KEPT and not known:
            del os.environ[name]


async def serve(home: Home, lease_sec: float, runs: int, tools: Sequence[Tool]) -> None:
    """Work until SIGTERM or SIGINT; claimed runs are then released for another worker."""
    async with (
        Worker.at(home, lease_sec=lease_sec, runs=runs, tools=tools) as worker,
        anyio.create_task_group() as group,
    ):
        group.start_soon(worker.run)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                worker.stop()
                break


def main() -> int:
    """Run one worker; 1 when another one already serves this home."""
    parser = argparse.ArgumentParser(prog="runtime.worker", description=__doc__)
    parser.add_argument("--home", type=Path, default=None)
    parser.add_argument("--lease", type=float, default=DEFAULT_LEASE_SEC, metavar="SECONDS")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, metavar="NUMBER")
    parser.add_argument(
        "--tool",
        nargs=3,
        action="append",
        default=[],
        metavar=("SOURCE", "TARGET", "VERSION"),
        help="a folder that every sandbox sees, read-only",
    )
    arguments = parser.parse_args()
    forget_environment()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for noisy in ("harbor", "httpx", "LiteLLM"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    home = Home.at(arguments.home)
    home.create()
    try:
        with alone(home):
            sweep_leftovers(home)
            tools = [Tool(*words) for words in arguments.tool]
            anyio.run(serve, home, arguments.lease, arguments.runs, tools)
    except Busy as error:
        logging.getLogger("runtime.worker").error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
