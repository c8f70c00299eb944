"""A run that fails on its way keeps what it saved, and that can be used."""

import json
import time

import pytest

from tests.e2e.support import Stack, profile
from tests.e2e.test_kill import PLAN

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(900)]

EVALUATION = {"trials_per_task": 1}


def _checkpoints(stack: Stack, run: str) -> list[str]:
    return [item["id"] for item in stack.json("run", "checkpoints", run)["items"]]


def test_a_run_that_fails_after_its_second_batch_lists_checkpoints_that_can_be_evaluated(
    stack: Stack,
) -> None:
    """Invariant 14: the run fails because its pinned profile is no longer what it was."""
    actor = stack.write("failing.json", profile(env={"MARK": "as-pinned"}))
    plan = stack.write("long.json", {**PLAN, "num_batches": 40})
    words = ["--dataset", "e2e/parity@v1", "--actor", actor, "--plan", plan]
    run = str(stack.json("train", "start", *words)["run"])
    deadline = time.monotonic() + 600
    while len(_checkpoints(stack, run)) < 2:
        assert time.monotonic() < deadline, stack.json("run", "show", run)
        time.sleep(0.5)
    stack.kill()
    _tamper(stack, b"as-pinned", b"as_pinned")
    assert stack.run("up").code == 0
    ended = stack.run("run", "events", run, "--follow", "--timeout", "4m", timeout=300)
    shown = stack.json("run", "show", run)
    assert (shown["state"], shown["reason"]["code"]) == ("failed", "digest_mismatch"), ended.err

    saved = _checkpoints(stack, run)
    assert 2 <= len(saved) < 40
    trained = stack.write("trained.json", profile(model=saved[1]))
    words = ["--dataset", "e2e/parity@v1", "--actor", trained]
    words += ["--plan", stack.write("eval.json", EVALUATION)]
    evaluation = str(stack.json("run", "start", *words)["run"])
    stack.run("run", "events", evaluation, "--follow", "--timeout", "4m", timeout=300)
    assert stack.json("run", "show", evaluation)["state"] == "completed"
    used = stack.json("checkpoint", "show", saved[1])["sampler"]
    trial = stack.json("run", "trials", evaluation)["items"][0]["id"]
    calls = stack.json("run", "interactions", evaluation, "--trial", trial)
    assert used in json.dumps(calls), calls


def _tamper(stack: Stack, old: bytes, new: bytes) -> None:
    """Change the stored bytes of every profile that holds `old`."""
    for stored in (stack.home / "objects").rglob("*"):
        if stored.is_file() and old in (content := stored.read_bytes()):
            stored.chmod(0o600)
            stored.write_bytes(content.replace(old, new))
