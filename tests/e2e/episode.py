"""The shell-specialist episode on a stack: its scenario, its launch, and its verdict."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT
from tests.e2e.support import Stack
from tests.tools.test_plugin import write_command

EPISODE = ROOT / "examples" / "episodes" / "shell-specialist"
FOLDER = EPISODE / "tasks" / "shell-specialist"
TASK = "practicum-examples/shell-specialist"
ASSIGNMENT = f"@{FOLDER / 'instruction.md'}"
HELD_OUT = ("held-out-01-copy-file", "held-out-05-count-lines")


def scenario() -> dict[str, Any]:
    """The scenario that ships: it keeps the whole workflow."""
    return json.loads((EPISODE / "scenario.json").read_text())


def verdict(stack: Stack, folder: Path, *work: str) -> dict[str, Any]:
    """What `episode verify` says of the files that were left in a folder."""
    done = stack.run(
        *("episode", "verify", str(FOLDER / "tests" / "episode.json")),
        *(word for name in work for word in ("--work", name)),
        *("--outcome", str(folder / "outcome.json"), "--json"),
        timeout=600,
    )
    assert done.out, done.err
    return json.loads(done.out)


@dataclass(frozen=True)
class Worked:
    """One local launch of the training agent, at its end."""

    folder: Path
    outcome: str
    session: str
    said: str


def prepare(stack: Stack) -> None:
    """What an operator does before episodes: the held-out dataset, and a command `practicum`."""
    tasks = stack.root / "held-out"
    for name in HELD_OUT:
        shutil.copytree(ROOT / "examples" / "shell-held-out" / name, tasks / name)
    stack.json("dataset", "publish", str(tasks), "--as", "practicum-examples/episode-held-out@v1")
    write_command(stack.root / "practicum")


def recipe(stack: Stack, model: str) -> str:
    """The shipped profile for a folder of one's own: the plugin from the local marketplace, and
    the stack's own gateway."""
    document = json.loads((EPISODE / "profile.json").read_text())
    agent = document["agent"]
    market = stack.json("plugin", "path")["marketplace"]
    agent["model"] = model
    del agent["plugins"]
    del agent["env"]["PRACTICUM_GATEWAY"], agent["env"]["PRACTICUM_TOKEN"]
    agent["env"] |= {
        "CLAUDE": "${engine.program}",
        "PRACTICUM_COMMAND": str(stack.root / "practicum"),
        "PRACTICUM_HOME": str(stack.home),
    }
    agent["setup"] = [
        f'"$CLAUDE" plugin marketplace add "{market}"',
        '"$CLAUDE" plugin install practicum@practicum',
    ]
    return stack.write("training-agent.json", document)


def launch(
    stack: Stack, name: str, played: dict[str, Any], folder: Path, instruction: str = ASSIGNMENT
) -> list[str]:
    """Register a scenario for a local launch; the words of `practicum` that launch it."""
    parts = {part: {"session/agent": played[part][TASK]} for part in ("replies", "agents")}
    local = {**played, **parts}
    file = stack.write(f"{name}-scenario.json", local).removeprefix("@")
    stack.json("model", "pull", f"scripted/{name}", "--scenario", file)
    if not folder.exists():
        shutil.copytree(FOLDER / "environment" / "files", folder)
    return [
        *("agent", "run", recipe(stack, f"scripted/{name}"), "--workdir", str(folder)),
        *("--instruction", instruction, "--unattended", "--json"),
    ]


def worked(stack: Stack, name: str, played: dict[str, Any]) -> Worked:
    """One launch of the agent, waited for."""
    folder = stack.root / name
    return ended(stack, launch(stack, name, played, folder), folder)


def ended(stack: Stack, words: list[str], folder: Path) -> Worked:
    """A launch, waited for."""
    done = stack.run(*words, timeout=1500)
    assert done.out, done.err
    ran = json.loads(done.out)
    return Worked(folder, ran["outcome"], ran["session"], ran["result"])
