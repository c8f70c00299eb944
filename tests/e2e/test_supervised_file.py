"""A file of conversations becomes a checkpoint, and that is resumed, by commands alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import Stack, profile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def rows(*texts: str) -> str:
    def line(text: str) -> str:
        turns = [{"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}]
        return json.dumps({"messages": turns}) + "\n"

    return "".join(map(line, texts))


def trained(stack: Stack, name: str, plan: dict[str, Any], **agent: str) -> tuple[str, str]:
    """A run of the plan, found sound, and its last checkpoint."""
    actor, path = stack.write(f"{name}-actor.json", profile(**agent)), stack.write(name, plan)
    run = str(stack.json("train", "start", "--actor", actor, "--plan", path)["run"])
    waited = stack.run("run", "wait", run, "--timeout", "5m", timeout=330)
    assert waited.code == 0, (waited.out, waited.err)
    assert stack.json("run", "show", run)["state"] == "completed"
    verified = stack.run("run", "verify", run, timeout=300)
    assert verified.code == 0, verified.out
    return run, str(stack.json("run", "checkpoints", run)["items"][-1]["id"])


def test_rows_are_shown_learned_resumed_and_exported(stack: Stack, tmp_path: Path) -> None:
    (stack.root / "rows.jsonl").write_text(rows("one", "two", "three"))
    (stack.root / "check.jsonl").write_text(rows("four"))
    source = str(stack.root / "rows.jsonl")
    shown = stack.run("train", "preview", source, "--model", "tiny")
    assert "⟦eno<|im_end|>⟧" in shown.out, shown.err
    plan: dict[str, Any] = {
        "source": {"file": "rows.jsonl"},
        "validation": {"file": "check.jsonl", "every_examples": 3},
        "batch_size": 2,
        "learning_rate": 0.01,
    }
    run, first = trained(stack, "plan.json", plan)
    updates = stack.json("run", "updates", run)["items"]
    assert updates[-1]["metrics"]["validation_loss"] > 0
    resume = {**plan, "optimizer_initialization": "resume"}
    again, second = trained(stack, "resume.json", resume, model=first)
    record = stack.json("checkpoint", "show", second)
    assert (record["parent"], record["context"]["steps"], record["run"]) == (first, 4, again)
    assert stack.json("run", "updates", again)["items"][0]["metrics"]["resume_steps"] == 2
    refused = stack.run("checkpoint", "delete", first, "--json")
    assert refused.code == 1
    assert json.loads(refused.err.splitlines()[-1])["code"] == "checkpoint_in_use"
    folder = str(tmp_path / "out")
    exported = stack.json("checkpoint", "export", second, folder, "--base", "--state")
    assert "base/model.safetensors" in exported["files"]
