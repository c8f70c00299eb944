"""A workbench for real Harbor trials in real sandboxes: write a task, run a profile on it."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from runtime.execution.board import Board
from runtime.execution.harbor import Concluded, Deadlines, run_trial, task_facts
from runtime.execution.workplace import EnvironmentSpec
from specs.canonical import validate
from specs.ids import Prefix, new_id
from specs.profile import Binding, Profile

TASK = """\
schema_version = "1.4"
[task]
name = "tests/{name}"
[agent]
timeout_sec = {agent}
[verifier]
timeout_sec = {verifier}
[environment]
network_mode = "no-network"
workdir = "/app"
cpus = 1
memory_mb = 256
{more}
"""
TOKEN = "eyJ-token-of-a-trial"
REWARD_ONE = "echo 1 > /logs/verifier/reward.txt"


@dataclass(frozen=True)
class Ran:
    """A trial that ended, with its board."""

    board: Board
    concluded: Concluded

    @property
    def verdict(self) -> tuple[float | None, str | None]:
        verdict = self.concluded.verdict
        return verdict.reward, verdict.reason and str(verdict.reason)

    def log(self, name: str) -> str:
        return (self.concluded.folder / name).read_text()


@dataclass(frozen=True)
class Bench:
    """Tasks and trials below one folder; sandboxes share one state folder."""

    root: Path
    state: Path

    def task(
        self,
        name: str,
        test: str = REWARD_ONE,
        *,
        agent: float = 30,
        verifier: float = 30,
        more: str = "",
        before: str = "",
        files: Mapping[str, str] | None = None,
    ) -> Path:
        """A task whose verifier is a bash script; `before` goes ahead of `[task]`."""
        folder = self.root / "tasks" / name
        for part in ("environment", "tests", "solution"):
            (folder / part).mkdir(parents=True)
        text = TASK.format(name=name, agent=agent, verifier=verifier, more=more)
        (folder / "task.toml").write_text(before + text)
        (folder / "instruction.md").write_text("Do the task.\n")
        (folder / "environment" / "Dockerfile").write_text("FROM debian:bookworm\nWORKDIR /app\n")
        (folder / "tests" / "test.sh").write_text(f"#!/bin/bash\n{test}\n")
        (folder / "solution" / "solve.sh").write_text("#!/bin/bash\ntrue\n")
        for path, content in (files or {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        return folder

    async def run(
        self,
        task: Path,
        script: str = "true",
        *,
        scored: bool = True,
        agent: Literal["profile", "oracle", "nop"] = "profile",
        trial_sec: float | None = None,
        seal: Callable[[Board], Awaitable[object]] | None = None,
        **recipe: Any,
    ) -> Ran:
        """Run `script` as the harness (engine `command`) on a task."""
        facts = task_facts(task)
        board = self.board(script, facts.instruction, **recipe)
        deadlines = Deadlines.of(facts, trial=trial_sec)
        board.agent_sec = deadlines.agent
        board.seal = partial(seal, board) if seal else None
        concluded = await run_trial(
            board,
            task,
            self.root / "trials",
            self.environment(board),
            deadlines,
            scored=scored,
            agent=agent,
        )
        return Ran(board, concluded)

    def board(self, script: str, task_instruction: str, **recipe: Any) -> Board:
        agent: dict[str, Any] = {
            "model": "tiny",
            "engine": {"name": "command", "version": "1"},
            "args": ["bash", "-c", script],
            **recipe,
        }
        document: dict[str, JsonValue] = {
            "schema": "practicum.profile/v1",
            "name": "tests/p",
            "agent": agent,
        }
        trial = new_id(Prefix.TRIAL)
        bindings = {
            Binding.RUN_ID: "run_1",
            Binding.TRIAL_ID: trial,
            Binding.TASK_NAME: "tests/task",
            Binding.MODEL_NAME: "tiny",
            Binding.MODEL_BASE_URL: "http://127.0.0.1:8484",
            Binding.MODEL_TOKEN: TOKEN,
            Binding.INSTRUCTION: task_instruction,
        }
        profile = validate(Profile, document, what="profile")
        return Board(trial, 30.0, task_instruction, profile=profile, bindings=bindings)

    def environment(self, board: Board) -> EnvironmentSpec:
        return EnvironmentSpec({"state_dir": str(self.state), "trial_id": board.trial})

    def left(self) -> list[str]:
        """What sandboxes left in the state folder, and processes that still name it."""
        run = self.state / "run"
        folders = [path.name for path in run.iterdir()] if run.exists() else []
        return folders


def processes_with(word: str) -> list[int]:
    """Live processes whose command line has `word`."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in line:
            found.append(int(entry.name))
    return found
