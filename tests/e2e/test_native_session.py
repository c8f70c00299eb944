"""A long session of the real Claude Code in a trial, in the tokens and grammar of each family.

A scripted model explores, runs tests, asks a sub-agent with tools of its own, meets an overload
and a dropped connection, fills its window until the harness compacts, edits, and finishes. What
is recorded of it is then derived again, counted and packed. It needs the pinned program in the
tool folder, which npm installs once; where it cannot be had, these tests are skipped.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.learning.packing import pack
from runtime.native import engines
from specs.interaction import Interaction
from tests.e2e.support import Attempt, Stack, obtained, own_stack

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.timeout(900),
]

NATIVE = Path(__file__).resolve().parents[2] / "examples" / "native"
FAMILIES = (
    *("qwen3", "qwen3.5", "qwen3-coder", "deepseek-v3.1", "deepseek-v4"),
    *("kimi-k2", "glm", "gpt-oss"),
)
MAIN, AUDITOR = 10, 3
"""Answers of the main agent, the summary included, and of the sub-agent."""

CHANGED = {"defaulted_arguments", "stripped_folder", "trimmed_lines", "undoubled_escape"}
"""What the program does to calls of this session before it shows them again."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A running stack with the task of the session, and a model cache of its own."""
    obtained(engines.install)
    with own_stack() as made:
        up = made.run("up")
        assert up.code == 0, up.err
        made.json("dataset", "publish", str(NATIVE / "session-tasks"), "--as", "e2e/native@v1")
        yield made


def play(stack: Stack, family: str) -> Attempt:
    """One trial of the session in a family."""
    scenario = json.loads((NATIVE / "scenarios" / "session.json").read_text())
    model = f"scripted/session-{family}"
    file = stack.write("scenario.json", scenario | {"tokenizer": family})
    stack.json("model", "pull", model, "--scenario", file.removeprefix("@"))
    profile = json.loads((NATIVE / "profiles" / "session.json").read_text())
    profile["agent"]["model"] = model
    profile["agent"]["files"][1] = {
        "path": ".claude/agents/auditor.md",
        "content": (NATIVE / "profiles" / "auditor.md").read_text(),
    }
    return stack.solved("e2e/native@v1", profile, minutes=12)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_long_session_is_exact_between_compactions(stack: Stack, family: str) -> None:
    """Invariants 1 to 3, from the binary's own calls."""
    attempt = play(stack, family)
    calls, refused = await attempt.recorded()
    assert attempt.verified["interactions"] == len(calls)
    assert sorted(refused) == ["connection_dropped", "overloaded", "prompt_too_long"]
    assert attempt.verified["spans"] == {"root": 2, "exact": 9, "branched(compacted)": 2}
    assert {note for call in calls for note in call.intent.normalisations} >= CHANGED
    assert len({call.intent.sampler for call in calls}) == 1
    main = [call for call in calls if not call.intent.agent]
    assert (len(main), len(calls) - len(main)) == (MAIN, AUDITOR)
    assert_one_datum_between_compactions(main)


def assert_one_datum_between_compactions(main: list[Interaction]) -> None:
    """The history before the compaction, what asked for the summary, and what followed it."""
    packed = pack(main)
    assert [len(one.interactions) for one in packed] == [5, 1, 4]
    sampled = sum(len(call.output) for call in main)
    assert sum(one.trained_tokens for one in packed) == sampled
