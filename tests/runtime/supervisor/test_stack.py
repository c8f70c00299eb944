"""A real stack through the commands of its supervisor: it starts once, survives, heals, ends."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.home import Home
from runtime.supervisor import control
from runtime.supervisor.state import is_locked, lives, read_state
from tests.e2e.support import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE_SEC = 120


@pytest.fixture
def stack(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A stack that does not run yet; whatever a test leaves of it is ended."""
    monkeypatch.setenv("PRACTICUM_MODELS", str(short_dir / "models"))
    made = Stack(short_dir)
    yield made
    made.run("down")
    made.kill()


def up(stack: Stack) -> dict[str, int]:
    """Start the stack; pid of each part, and of the supervisor."""
    report = stack.json("up", timeout=PATIENCE_SEC + 30)
    assert report["healthy"]
    return {part["name"]: part["pid"] for part in report["parts"]} | {"supervisor": report["pid"]}


def eventually(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_it_starts_once_and_ends_without_a_trace(stack: Stack) -> None:
    first = up(stack)
    assert up(stack) == first
    assert stack.json("status")["healthy"]
    assert stack.run("down").code == 0
    assert stack.processes() == []
    home = Home.at(stack.home)
    assert not is_locked(home)
    assert not any(path.exists() for path in (home.gateway_socket, home.proxy_socket))
    assert stack.run("status").code == 1
    assert stack.run("down").code == 0


def test_two_starts_at_once_make_one_stack(stack: Stack) -> None:
    command = [sys.executable, "-P", "-m", "tools", "up", "--json", "--home", str(stack.home)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    reports = [json.loads(process.communicate(timeout=PATIENCE_SEC)[0]) for process in started]
    assert reports[0]["pid"] == reports[1]["pid"]
    assert all(report["healthy"] for report in reports)


def test_it_outlives_the_terminal_that_started_it(stack: Stack) -> None:
    terminal = subprocess.Popen(
        ["/bin/sh", "-c", f"{sys.executable} -P -m tools up --home {stack.home}; sleep 600"],
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    assert terminal.stdout is not None
    try:
        assert select.select([terminal.stdout], [], [], PATIENCE_SEC)[0], "`up` says nothing"
        assert b"home" in terminal.stdout.readline()
        os.killpg(terminal.pid, signal.SIGHUP)
    finally:
        os.killpg(terminal.pid, signal.SIGKILL)  # its group is there until it is waited for
        terminal.stdout.close()
        terminal.wait()
    assert stack.json("status")["healthy"]


def test_a_killed_part_comes_back_and_the_restart_is_recorded(stack: Stack) -> None:
    before = up(stack)
    for name in ("gateway", "compute", "proxy", "worker"):
        os.kill(before[name], signal.SIGKILL)

    def healed() -> Any:
        report = control.status(Home.at(stack.home))
        return report if report.healthy else None

    report = eventually(healed, "the parts did not come back")
    assert report.pid == before["supervisor"]
    for part in report.parts:
        assert part.pid != before[part.name]
        assert part.restarts >= 1
        assert part.last_exit is not None


def test_parts_die_with_a_killed_supervisor_and_the_next_start_works(stack: Stack) -> None:
    """Invariant 12: nothing outlives the next start."""
    before = up(stack)
    state = read_state(Home.at(stack.home))
    assert state is not None
    os.kill(before["supervisor"], signal.SIGKILL)
    eventually(
        lambda: not any(lives(part.pid, part.ticks) for part in state.parts.values()),
        "a part outlived its supervisor",
    )
    after = up(stack)
    assert not set(after.values()) & set(before.values())


def test_nothing_is_left_after_everything_was_killed(stack: Stack) -> None:
    up(stack)
    stack.kill()
    assert Home.at(stack.home).gateway_socket.exists()
    up(stack)
    assert stack.run("down").code == 0
    assert stack.processes() == []


def test_a_part_that_cannot_start_is_shown_with_the_end_of_its_log(stack: Stack) -> None:
    home = Home.at(stack.home)
    home.create()
    home.database.write_bytes(b"this is no database" * 1000)
    done = stack.run("up", "--json", timeout=PATIENCE_SEC + 30)
    assert done.code == 1
    problem = json.loads(done.err.splitlines()[-1])
    assert problem["code"] == "stack_unavailable"
    assert problem["object"] == {"type": "process", "id": "gateway"}
    assert "database" in problem["detail"]
    assert str(home.logs / "gateway.log") in problem["next"]
