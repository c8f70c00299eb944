"""The real Claude Code, pinned, on scripted models: in a trial, in a user's folder, in a terminal.

It needs the program in the tool folder (npm installs it once) and the tokenizer of
smollm2-135m-instruct; where either cannot be had, these tests are skipped.
"""

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from runtime.compute import models
from runtime.native import engines
from specs.claude_code import PINNED_VERSION
from tests.e2e import support
from tests.e2e.support import Stack, obtained, own_stack, profile, write_tasks
from tests.e2e.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(600)]

SMALL = ["--tools", "Bash", "--system-prompt", "You work in a shell.", "--strict-mcp-config"]
"""A first prompt of some 2k tokens, for a window of 8k."""


SHORT = ["--bare", "--tools", "", "--system-prompt", "Talk.", "--strict-mcp-config"]
"""A first prompt that a window of 4k bytes holds."""


def bash(command: str) -> str:
    """A reply that calls Bash, in the markup of the scripted model's family."""
    call = {"name": "Bash", "arguments": {"command": command, "description": "work"}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


REPLIES = {
    "session/agent": [bash("echo $GREETING > made.txt"), "Made it."],
    "session/claude": ["Hello from the script."] * 12,  # side calls take some of them
    "e2e/parity-0": [bash("echo 2 > /app/length.txt && echo $CLAUDE_CONFIG_DIR"), "Done."],
}


def native(**changes: object) -> dict[str, object]:
    """A profile that runs Claude Code on the scripted model."""
    return profile(
        **{
            "model": "scripted/claude",
            "engine": {"name": "claude-code", "version": PINNED_VERSION},
            "files": [{"path": "CLAUDE.md", "content": "Work in /app.\n"}],
            "args": SMALL,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A running stack that knows `scripted/claude`, in a model cache of its own."""
    obtained(engines.install)
    cached = obtained(lambda: models.pull(models.SMOLLM2))
    source = models.models_folder() / cached.name
    with own_stack() as made:
        folder = made.root / "models"
        folder.mkdir()
        (folder / cached.name).symlink_to(source)
        write_tasks(made.root / "tasks", 1)
        task = made.root / "tasks" / "task-0" / "task.toml"
        text = task.read_text().replace("memory_mb = 256", "memory_mb = 2048")
        task.write_text(text.replace("[agent]\ntimeout_sec = 60.0", "[agent]\ntimeout_sec = 240.0"))
        scenario = {
            "schema": "practicum.scenario/v1",
            "tokenizer": cached.name,
            "replies": REPLIES,
        }
        up = made.run("up")
        assert up.code == 0, up.err
        file = made.write("scenario.json", scenario)
        made.json("model", "pull", "scripted/claude", "--scenario", file)
        made.json("dataset", "publish", str(made.root / "tasks"), "--as", "e2e/parity@v1")
        yield made


def until_sealed(stack: Stack, session: str) -> dict[str, Any]:
    """The record of a session that has ended, once the proxy has handed over what it said."""
    return anyio.run(support.until_sealed, stack.home, session).model_dump(mode="json")


def kept(stack: Stack, session: str) -> int:
    """Answers of a session that are recorded; who leaves a terminal may leave before the last
    byte of one that it has already shown."""
    states = until_sealed(stack, session)["seal"]["states"]
    assert states["lost"] == 0
    return states["answered"] + states["superseded"]


def test_a_trial_in_the_sandbox_calls_bash_and_its_evidence_verifies(stack: Stack) -> None:
    stack.solved("e2e/parity@v1", native(), minutes=5)


def test_a_profile_runs_in_a_users_own_folder_and_is_captured_as_a_session(stack: Stack) -> None:
    folder = stack.root / "mine"
    folder.mkdir()
    recipe = native(env={"GREETING": "good day"}, outputs=[{"path": "made.txt"}])
    words = ("agent", "run", stack.write("agent.json", recipe), "--workdir", str(folder))
    asked = stack.run(*words, "--instruction", "Greet.", "--unattended", "--json", timeout=300)
    ran = asked.json()
    assert (ran["outcome"], ran["result"]) == ("completed", "Made it."), asked.err
    assert (folder / "made.txt").read_text() == "good day\n"
    assert (folder / "CLAUDE.md").read_text() == "Work in /app.\n"
    session = until_sealed(stack, ran["session"])
    assert session["seal"]["states"]["answered"] == 2
    assert session["purpose"] == "agent"
    (folder / "CLAUDE.md").write_text("my own")
    refused = stack.run(*words, "--instruction", "Greet.", timeout=300)
    assert refused.code == 1
    assert "--replace-files" in refused.err
    assert (folder / "CLAUDE.md").read_text() == "my own"


def test_the_installed_claude_answers_in_a_terminal_and_resumes(stack: Stack) -> None:
    place = Terminal.prepare(stack)
    first = place.start("--model", "scripted/claude", *SMALL)
    first.send("say hello", until="Hello from the script.")
    first.leave()
    assert place.left() == []
    (conversation,) = place.conversations()
    second = place.start("--model", "scripted/claude", "--resume", conversation, *SMALL)
    second.wait_for("Hello from the script.")
    second.send("and again", until="Hello from the script.")
    second.kill()
    assert place.left() == []
    left, *_ = stack.json("session", "list")["items"]
    assert left["ended_at"] is None
    third = place.start("--model", "scripted/claude", "--continue", *SMALL)
    third.wait_for("and again")
    third.send("once more", until="Hello from the script.")
    third.leave()
    assert (first.code, third.code) == (0, 0)
    assert place.left() == []
    assert kept(stack, left["id"]) >= 1


def test_the_test_model_answers_in_a_terminal(stack: Stack) -> None:
    """Its answers are noise, and an answer all the same; its window asks for a short prompt."""
    stack.json("model", "pull", "tiny")
    place = Terminal.prepare(stack, "beginner")
    first = place.start("--model", "tiny", *SHORT)
    first.send("hi", until=lambda: place.answers() == 1)
    first.leave()
    (conversation,) = place.conversations()
    second = place.start("--model", "tiny", "--resume", conversation, *SHORT)
    second.send("again", until=lambda: place.answers() == 2)
    second.leave()
    assert (first.code, second.code) == (0, 0)
    assert place.left() == []
    for session in stack.json("session", "list", "--limit", "2")["items"]:
        assert session["model"] == "tiny"
        assert kept(stack, session["id"]) >= 1
