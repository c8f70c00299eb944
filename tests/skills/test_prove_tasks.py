"""`prove_tasks.py` on a real stack: a sound verifier passes, one that pays for nothing does not."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.support import Stack, own_stack
from tests.skills.pages import ROOT
from tests.tools.test_plugin import write_command

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(600)]

SCRIPT = ROOT / "skills" / "write-tasks" / "scripts" / "prove_tasks.py"
SORT = "practice-03-sort-lines"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with own_stack() as made:
        write_command(made.root / "practicum")
        assert made.run("up", timeout=150).code == 0
        assert made.run("model", "pull", "tiny").code == 0
        yield made


def test_a_verifier_that_pays_for_nothing_is_found_and_a_sound_one_is_not(stack: Stack) -> None:
    folder, wrong = stack.root / "tasks", stack.root / "wrong"
    for name in ("sound", "paying"):
        shutil.copytree(ROOT / "examples" / "shell-practice" / SORT, folder / name)
    toml = folder / "paying" / "task.toml"
    toml.write_text(toml.read_text().replace('name = "', 'name = "paying-', 1))
    (folder / "paying" / "tests" / "test.sh").write_text(
        "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
    )
    for task in ("sound", "paying"):
        (wrong / "deletes").mkdir(parents=True, exist_ok=True)
        (wrong / "deletes" / f"{task}.sh").write_text("rm -rf /app/*\n")
    stack.json("dataset", "publish", str(folder), "--as", "acme/draft@v1")
    found = proof(stack, str(folder), "--dataset", "acme/draft@v1", "--wrong", str(wrong))
    (paying,) = [name for name in found["tasks"] if name.startswith("paying-")]
    (sound,) = set(found["tasks"]) - {paying}
    assert found["tasks"][sound] == {"nothing": [0, 0], "solution": [1, 1], "deletes": [0, 0]}
    assert [text.partition(" earned")[0] for text in found["problems"]] == [
        f"{paying}: nothing",
        f"{paying}: deletes",
    ]


def proof(stack: Stack, *words: str) -> dict[str, dict[str, dict[str, list[float]]]]:
    done = subprocess.run(
        [sys.executable, "-I", str(SCRIPT), *words],
        env={
            **os.environ,
            "PRACTICUM_HOME": str(stack.home),
            "PRACTICUM_COMMAND": str(stack.root / "practicum"),
        },
        cwd=stack.root,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)
