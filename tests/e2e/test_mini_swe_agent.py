"""Another harness than Claude Code, unchanged: mini-swe-agent over Chat Completions, in a trial.

The program lies in a tool folder that every sandbox sees read-only; uv installs it once, for the
Python that sandboxes have. Where it cannot be had, this test is skipped.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.native.engines import tools_folder
from specs.interaction import BranchReason, CallState
from tests.e2e.support import Stack, own_stack, profile, write_tasks

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.timeout(900),
]

VERSION = "2.4.6"
INSIDE = "/opt/mini-swe-agent"
OPTIONS = ["--yolo", "--exit-immediately", "-o", "/tmp/trajectory.json"]


def bash(text: str, *commands: str) -> dict[str, object]:
    """A reply that runs commands at once."""
    calls = [{"name": "bash", "input": {"command": command}} for command in commands]
    return {"text": text, "calls": calls}


REPLIES = [
    bash("I look around.", "pwd", "ls -la"),
    {"error": "overloaded"},
    {"text": "I forgot to call a tool."},
    bash("Now I write it.", "echo 2 > /app/length.txt"),
    bash("Done.", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
]


def installed() -> Path:
    """The folder of the harness and everything that it imports."""
    system = Path("/usr/bin/python3")
    asked = [str(system), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if not found or tuple(map(int, found.split("."))) < (3, 11):
        # The sandbox then brings the worker's own.
        found = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = tools_folder() / f"mini-swe-agent-{VERSION}-py{found}"
    if folder.is_dir():
        return folder
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip(f"{folder} is not there, and neither is uv")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".mini-") as name:
        made = Path(name) / "site"
        command = [uv, "pip", "install", "--quiet", "--target", str(made)]
        command += ["--python-version", found, "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, f"mini-swe-agent=={VERSION}"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"mini-swe-agent cannot be installed: {done.stderr[-500:]}")
        made.rename(folder)
    return folder


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A running stack whose sandboxes see the harness, with a scripted model of Qwen's family."""
    source = installed()
    with own_stack() as made:
        made.home.mkdir(mode=0o700)
        tool = {"source": str(source), "target": INSIDE, "version": VERSION}
        lines = [f"{key} = {json.dumps(value)}" for key, value in tool.items()]
        (made.home / "config.toml").write_text("\n".join(["[[worker.tools]]", *lines, ""]))
        write_tasks(made.root / "tasks", 1)
        task = made.root / "tasks" / "task-0" / "task.toml"
        text = task.read_text().replace("memory_mb = 256", "memory_mb = 2048")
        task.write_text(text.replace("[agent]\ntimeout_sec = 60.0", "[agent]\ntimeout_sec = 600.0"))
        scenario = {
            "schema": "practicum.scenario/v1",
            "tokenizer": "qwen3",
            "replies": {"e2e/parity-0": REPLIES},
        }
        up = made.run("up")
        assert up.code == 0, up.err
        file = made.write("scenario.json", scenario)
        made.json("model", "pull", "scripted/mini", "--scenario", file)
        made.json("dataset", "publish", str(made.root / "tasks"), "--as", "e2e/parity@v1")
        yield made


async def test_mini_swe_agent_works_through_chat_completions(stack: Stack) -> None:
    """Invariants 1 to 3 over the whole run, with another harness's retries and complaints."""
    actor = profile(
        model="scripted/mini",
        files=[],
        args=[
            *("python3", "-P", "-m", "minisweagent.run.mini", "-m", "openai/${model.name}"),
            *(*OPTIONS, "-t", "${instruction}"),
        ],
        env={
            "HOME": "/tmp",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_GLOBAL_CONFIG_DIR": "/tmp/mini",
            "PYTHONPATH": INSIDE,
        },
        instruction={"deliver": "argument"},
    )
    calls, refused = await stack.solved("e2e/parity@v1", actor).recorded()
    assert {call.intent.dialect for call in calls} == {"openai-chat"}
    assert {call.state for call in calls} == {CallState.ANSWERED}
    assert refused == ["overloaded"]
    # It throws an answer without a call away, and complains in its place.
    branches = [call.intent.branch for call in calls]
    assert branches == [BranchReason.ROOT, None, BranchReason.REWOUND, None]
