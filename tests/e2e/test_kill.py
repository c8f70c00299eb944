"""kill -9 of the whole stack at random moments of a training run costs time and nothing else.

Invariants 8, 12, 16, 17. Each round starts a fresh run, kills everything at a random moment,
starts the stack again and waits for the end; a run that blocks on an unresolved update is
continued by the command that its state names.
"""

import os
import random
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from runtime.supervisor.state import lives
from tests.e2e.support import Stack, profile

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(2400)]

ROUNDS = int(os.environ.get("PRACTICUM_KILL_ROUNDS", "20"))
PLAN = {
    "num_batches": 2,
    "batch": {"tasks": 2, "trials_per_task": 3},
    "learning_rate": 0.001,
    "resources": {"concurrency": 4},
    "lora": {"rank": 2},
}


def _start(stack: Stack) -> str:
    actor, plan = stack.write("actor.json", profile()), stack.write("train.json", PLAN)
    started = stack.json(
        "train", "start", "--dataset", "e2e/parity@v1", "--actor", actor, "--plan", plan
    )
    return str(started["run"])


def _wait(stack: Stack, run: str) -> dict[str, Any]:
    """The run at its end, unblocked by the named command where it asks for one."""
    while True:
        stack.run("run", "events", run, "--follow", "--timeout", "4m", timeout=300)
        shown = stack.json("run", "show", run)
        if shown["state"] == "blocked":
            command = next(
                part for part in shown["reason"]["next"].split("`") if part.startswith("practicum")
            )
            words = shlex.split(command.replace("applied|not-applied|abandon", "not-applied"))
            assert stack.run(*words[1:]).code == 0
            continue
        return shown


def _counts(stack: Stack, run: str) -> dict[str, Any]:
    result = stack.json("run", "result", run)
    return {
        "settled": result["trials_settled"],
        "scored": result["trials_scored"],
        "updates": result["updates"].get("acknowledged", 0) + result["updates"].get("skipped", 0),
        "unresolved": result["updates"].get("unresolved", 0),
    }


def _orphaned_cgroups() -> set[str]:
    """Cgroups of sandboxes on this machine whose worker, named by pid and start, is dead."""
    found: set[str] = set()
    for path in Path("/sys/fs/cgroup").glob("*/practicum-*"):
        owner = re.fullmatch(r"practicum-\d+-(\d+)-(\d+)-\w+", path.name)
        if owner is None or not lives(int(owner[1]), int(owner[2])):
            found.add(str(path))
    return found


def _leftovers(stack: Stack) -> list[str]:
    """Sandboxes, trial folders and mounts of this home."""
    mounts = [
        line for line in Path("/proc/mounts").read_text().splitlines() if str(stack.home) in line
    ]
    work = stack.home / "work"
    runs = [str(path) for place in ("sandboxes/run", "trials") for path in (work / place).glob("*")]
    return mounts + runs


def test_a_killed_training_run_completes_with_the_counts_of_an_uninterrupted_one(
    stack: Stack,
) -> None:
    others = _orphaned_cgroups()
    began = time.monotonic()
    reference = _start(stack)
    assert _wait(stack, reference)["state"] == "completed"
    length = time.monotonic() - began
    expected = _counts(stack, reference)
    assert expected["settled"] == 12
    assert expected["updates"] == 2
    chance = random.Random(7)
    ends: list[str] = []
    for _ in range(ROUNDS):
        run = _start(stack)
        time.sleep(chance.uniform(0.0, length))
        stack.kill()
        assert stack.run("up").code == 0
        ends.append(str(_wait(stack, run)["state"]))
        assert _counts(stack, run) == expected, run
        verified = stack.run("run", "verify", run, timeout=300)
        assert verified.code == 0, verified.out
    assert ends == ["completed"] * ROUNDS
    assert stack.run("down").code == 0
    assert not stack.processes()
    assert not _leftovers(stack)
    assert not _orphaned_cgroups() - others
    assert stack.run("up").code == 0
