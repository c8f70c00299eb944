"""A command that is told to end cleans up first, and then ends by what told it."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import pytest

from tests.runtime.execution.bench import processes_with
from tools.ending import attended

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.tools.harnessed"]
TERM, HUP = signal.SIGTERM, signal.SIGHUP


def _hear() -> None:
    """The tests themselves may run under `nohup`."""
    signal.signal(HUP, signal.SIG_DFL)


@contextmanager
def running(*words: str | Path) -> "Generator[subprocess.Popen[bytes]]":
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=_hear,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@pytest.fixture
def told(tmp_path: Path) -> Generator[Path]:
    """What the harness waits for before it ends; one that is left then is ended."""
    fifo = tmp_path / "told"
    os.mkfifo(fifo)
    yield fifo
    for pid in processes_with(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def tell(fifo: Path) -> int:
    """Let the harness end; the descriptor is to be open until it has."""
    descriptor = os.open(fifo, os.O_RDWR)
    os.write(descriptor, b"\n")
    return descriptor


@pytest.mark.parametrize(
    "signals",
    [(TERM,), (HUP,), (TERM, TERM), (HUP, TERM)],
    ids=lambda signals: "-".join(one.name for one in signals),
)
def test_a_command_that_is_told_to_end_leaves_no_harness(
    told: Path, signals: tuple[signal.Signals, ...]
) -> None:
    """Invariant 12: also when it is told again while it cleans up."""
    first, *others = signals
    with running(*COMMAND, told.parent) as process:
        assert said(process) == "harness"
        process.send_signal(first)
        assert said(process) == "ending"
        for again in others:
            process.send_signal(again)
        descriptor = tell(told)
        assert said(process) == "cleaned up"
        assert process.wait() == -first
        os.close(descriptor)
    assert processes_with(str(told.parent)) == []


def test_a_hangup_that_is_ignored_ends_nothing(told: Path) -> None:
    with running("sh", "-c", 'trap "" HUP; exec "$@"', "sh", *COMMAND, told.parent) as process:
        assert said(process) == "harness"
        process.send_signal(HUP)
        descriptor = tell(told)
        assert said(process) == "cleaned up"
        assert process.wait() == 0
        os.close(descriptor)


def test_what_a_thread_holds_up_is_not_waited_for_without_end() -> None:
    with running(*COMMAND) as process:
        assert said(process) == "held up"
        process.send_signal(TERM)
        assert process.wait() == -TERM


@pytest.mark.anyio
async def test_a_command_in_another_thread_is_done_without_signals() -> None:
    async def work() -> int:
        return 3

    assert await anyio.to_thread.run_sync(lambda: anyio.run(attended, work)) == 3
