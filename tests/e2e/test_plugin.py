"""The real Claude Code with the plugin, on a scripted model: skill, tool, guard, and what it costs.

It needs the pinned program in the tool folder, which npm installs once; where it cannot be had,
these tests are skipped.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from mcp_server.server import INSTRUCTIONS
from runtime.client import OperatorClient
from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.home import Home
from runtime.native import engines
from specs import evidence
from specs.claude_code import PINNED_VERSION
from specs.interaction import Interaction
from tests.e2e.support import Stack, obtained, own_stack, profile, until_sealed, write_tasks
from tests.skills.pages import PLUGIN
from tests.tools.test_plugin import LONGEST_START, write_command
from tools.hooks import SERVERS

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

SERVER = SERVERS[0]
PLUGIN_ON = ("--plugin-dir", str(PLUGIN))
ALWAYS_ON = 1_500
"""Qwen tokens that the plugin may add to every conversation, its tools' schemas apart."""
TOOLS = ["--tools", "Bash,Skill,Agent", "--system-prompt", "You work in a shell."]


def call(name: str, **given: object) -> dict[str, Any]:
    return {"calls": [{"name": name, "input": given}]}


REPLIES = [
    call("Skill", skill="practicum:read-an-update", args="run_1"),
    call(f"{SERVER}model_list"),
    call(f"{SERVER}run_cancel", run="run_none"),
    "Done.",
]
PUBLISHED = "e2e/plugin@v1"


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A running stack, in which `practicum` is a command, with a scripted model."""
    obtained(engines.install)
    with own_stack() as made:
        write_command(made.root / "practicum")
        up = made.run("up")
        assert up.code == 0, up.err
        write_tasks(made.root / "tasks", 1)
        made.json("dataset", "publish", str(made.root / "tasks"), "--as", "e2e/parity@v1")
        publish = call(
            f"{SERVER}dataset_select", dataset="e2e/parity@v1", publish_as=PUBLISHED, limit=1
        )
        scripts = {
            "scripted/works": REPLIES,
            "scripted/changes": [REPLIES[2], publish, "Done.", "It is in the journal."],
            "scripted/talks": ["Hello."],
        }
        for model, replies in scripts.items():
            scenario = {
                "schema": "practicum.scenario/v1",
                "tokenizer": "qwen3",
                "replies": {"session/agent": replies},
            }
            file = made.write("scenario.json", scenario).removeprefix("@")
            made.json("model", "pull", model, "--scenario", file)
        yield made


async def played(
    stack: Stack, model: str, *words: str, args: tuple[str, ...] = ()
) -> list[Interaction]:
    """The calls of one session of Claude Code in a folder of its own."""
    folder = Path(tempfile.mkdtemp(dir=stack.root))
    recipe = profile(
        model=model,
        engine={"name": "claude-code", "version": PINNED_VERSION},
        files=[],
        args=[*TOOLS, *args],
        env={
            "PRACTICUM_COMMAND": str(stack.root / "practicum"),
            "PRACTICUM_HOME": str(stack.home),
            "MCP_CONNECT_TIMEOUT_MS": "120000",
            "MCP_TIMEOUT": "120000",
        },
        instruction={"deliver": "argument"},
    )
    given = (stack.write("agent.json", recipe), "--workdir", str(folder), "--instruction", "Go.")
    asked = stack.run("agent", "run", *given, *words, "--json", timeout=600)
    ran = json.loads(asked.out)
    assert ran["outcome"] == "completed", (ran, asked.err)
    session = await until_sealed(stack.home, ran["session"])
    assert session.seal is not None and session.seal.object is not None
    async with OperatorClient.at(Home.at(stack.home)) as gateway:
        return evidence.interactions(await gateway.object(session.seal.object))


def results(calls: list[Interaction]) -> dict[str, str]:
    """What the model was told of each of its tool calls, and what came with it, by tool."""
    names: dict[str, str] = {}
    told: dict[str, str] = {}
    for message in json.loads(calls[-1].request)["messages"]:
        content: object = message["content"]
        blocks = cast(list[dict[str, Any]], content if isinstance(content, list) else [])
        names |= {b["id"]: b["name"] for b in blocks if b["type"] == "tool_use"}
        answered = [b for b in blocks if b["type"] == "tool_result"]
        for block in answered:
            told[names[block["tool_use_id"]]] = json.dumps(blocks)
    return told


async def test_a_skill_is_loaded_a_tool_answers_and_the_guard_asks(stack: Stack) -> None:
    """Nobody can be asked in a headless session: the call is refused with the guard's words."""
    allowed = ("--allowedTools", f"{SERVER[:-2]},Skill")
    told = results(await played(stack, "scripted/works", args=(*PLUGIN_ON, *allowed)))
    assert "Launching skill" in told["Skill"] and "Run: run_1" in told["Skill"]
    assert "scripted/works" in told[f"{SERVER}model_list"]
    assert "may end or discard" in told[f"{SERVER}run_cancel"]


async def test_where_nothing_is_asked_calls_go_through_and_the_journal_is_asked_for(
    stack: Stack,
) -> None:
    """Stopping is held up once, for what was done and not for what failed."""
    calls = await played(stack, "scripted/changes", "--unattended", args=PLUGIN_ON)
    told = results(calls)
    assert "not_found" in told[f"{SERVER}run_cancel"]
    assert PUBLISHED in told[f"{SERVER}dataset_select"]
    assert len(calls) == 4
    assert "Not in the journal yet: dataset_select." in calls[3].request.decode()


async def test_what_the_plugin_adds_to_every_conversation_is_small(stack: Stack) -> None:
    """Skills, agents and the text of the session's start; tools have a budget of their own."""
    alone = ("--strict-mcp-config",)
    without, *_ = await played(stack, "scripted/talks", args=alone)
    withal, *_ = await played(stack, "scripted/talks", args=(*PLUGIN_ON, *alone))
    assert "practicum:quality-reviewer" in withal.request.decode()
    assert "no open runs" in withal.request.decode()
    codec = load_codec(carried_tokenizer("Qwen3Tokenizer"))
    added = withal.intent.prompt_tokens - without.intent.prompt_tokens
    server = len(codec.encode_text(INSTRUCTIONS))
    assert added > 300
    assert added + server + LONGEST_START <= ALWAYS_ON, (added, server, LONGEST_START)
