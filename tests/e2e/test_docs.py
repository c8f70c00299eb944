"""What the README and the walkthrough tell a newcomer to type works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, block_commands
from tests.e2e.support import Stack, profile
from tests.e2e.test_kill import PLAN

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(900)]


def test_the_walkthrough_leads_from_a_run_to_the_tokens_behind_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stack.root)  # it writes a page where it stands
    actor, plan = stack.write("actor.json", profile()), stack.write("train.json", PLAN)
    words = ["--dataset", "e2e/parity@v1", "--actor", actor, "--plan", plan]
    run = str(stack.json("train", "start", *words)["run"])
    assert stack.run("run", "events", run, "--follow", "--timeout", "5m", timeout=330).code == 0
    checkpoint = stack.json("run", "checkpoints", run)["items"][-1]
    update = stack.json("update", "show", run, checkpoint["update"])
    names = {
        "RUN": run,
        "CHECKPOINT": checkpoint["id"],
        "UPDATE": checkpoint["update"],
        "TRIAL": _first(update, "trl_"),
        "GROUP": _first(stack.json("run", "groups", run), "grp_"),
    }
    shown = [w for w in block_commands(ROOT / "docs/walkthrough.md") if w[0] == "practicum"]
    assert len(shown) > 10
    for command in shown:
        done = stack.run(*(names.get(word, word) for word in command[1:]), timeout=300)
        assert done.code == 0, (command, done.out, done.err)
        assert done.out.strip() or command[2] == "logs", command  # this harness prints nothing


@pytest.mark.model
def test_the_commands_of_the_readme_run_from_a_checkout(tmp_path: Path) -> None:
    """All but `make quickstart`, whose script has tests and results of its own."""
    page = ROOT / "README.md"
    shown = [words for words in block_commands(page) if words[0] == "practicum"]
    assert ["practicum", "up"] in shown
    env = {**os.environ, "PRACTICUM_HOME": str(tmp_path / "home")}
    try:
        for words in shown:
            command = [sys.executable, "-P", "-m", "tools", *words[1:]]
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
    finally:
        subprocess.run([sys.executable, "-P", "-m", "tools", "down"], env=env, check=True)


def _first(value: Any, prefix: str) -> str:
    """The first id of a kind in a document."""
    found = re.search(rf"\b{prefix}[0-9a-f]{{32}}\b", str(value))
    assert found is not None
    return found[0]
