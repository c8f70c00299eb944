"""From one checkpoint id, by `--json` commands alone, the last update is rebuilt from stored
evidence with the same datums and the same loss: the script of docs/lineage.md, as it stands
there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.supervisor.parts import code_folder
from tests.docs.blocks import ROOT
from tests.e2e.support import Stack, profile
from tests.e2e.test_kill import PLAN

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(900)]


def script() -> str:
    found = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/lineage.md").read_text(), re.S | re.M
    )
    (text,) = found
    return text


def rebuild(stack: Stack, checkpoint: str, folder: Path) -> str:
    """Run the script as a reader would."""
    command = folder / "practicum"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tools "$@"\n')
    command.chmod(0o755)
    (folder / "rebuild.py").write_text(script())
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PRACTICUM_HOME": str(stack.home),
        "PYTHONPATH": code_folder(),
    }
    words = [sys.executable, str(folder / "rebuild.py"), checkpoint]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trained(stack: Stack, plan: dict[str, object], *words: str) -> str:
    """The last checkpoint of a run that has ended."""
    actor = stack.write("actor.json", profile())
    submitted = ["--actor", actor, "--plan", stack.write("train.json", plan), *words]
    run = str(stack.json("train", "start", *submitted)["run"])
    assert stack.run("run", "events", run, "--follow", "--timeout", "5m", timeout=330).code == 0
    return str(stack.json("run", "checkpoints", run)["items"][-1]["id"])


def test_the_script_rebuilds_the_last_update_of_a_checkpoint(stack: Stack, tmp_path: Path) -> None:
    reinforced = trained(stack, dict(PLAN), "--dataset", "e2e/parity@v1")
    source = stack.json("checkpoint", "show", reinforced)["run"]
    imitation: dict[str, object] = {
        "source": {"run": source, "select": "reward >= 0"},
        "batch_size": 4,
        "lora": PLAN["lora"],
    }
    for checkpoint in (reinforced, trained(stack, imitation)):
        told = rebuild(stack, checkpoint, tmp_path)
        found = re.match(r"(\d+) datums rebuilt, every digest as recorded", told)
        assert found is not None, told
        lineage = stack.json(
            "checkpoint", "lineage", checkpoint, "--show", "spans", "--limit", "500"
        )
        assert lineage["spans_total"] >= int(found[1]) > 0
    loss = re.search(r"loss (\S+), recorded", told)
    assert loss is not None
    assert float(loss[1]) > 0.1  # of cross-entropy; that of on-policy ratios is about zero
    page = tmp_path / "report.html"
    stack.json("run", "report", source, "--out", str(page))
    assert '"spelled":true' in page.read_text()  # the worker has kept the tokenizer
