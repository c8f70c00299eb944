"""`make native-loop` on next to no work: every stage runs on the real Claude Code, and verifies."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runtime.compute import models
from runtime.native import engines
from tests.e2e.support import Stack, obtained

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]


def test_every_stage_of_the_loop_runs_and_verifies(monkeypatch: pytest.MonkeyPatch) -> None:
    obtained(engines.install)
    cached = obtained(lambda: models.pull(models.SMOLLM2))
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        stack = Stack(Path(name))
        folder = stack.root / "models"
        folder.mkdir()
        (folder / cached.name).symlink_to(models.models_folder() / cached.name)
        monkeypatch.setenv("PRACTICUM_MODELS", str(folder))
        done = subprocess.run(
            [sys.executable, "-m", "scripts.native_loop", "--home", str(stack.home), "--smoke"],
            cwd=ROOT,
            env={**os.environ, "HARBOR_TELEMETRY": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads((stack.home / "native-loop.json").read_text())
        assert report["attempts"] == 3 and sum(report["spans"].values()) >= 3
        assert set(report["runs"]) == {"demonstrations", "supervised", "training", "evaluation"}
        assert not stack.processes()
