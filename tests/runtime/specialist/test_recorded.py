"""What a check takes from a recorded request is what the proxy rendered from it."""

import json
from array import array
from typing import Any

import pytest

from proxy.dialects.anthropic import AnthropicMessages
from proxy.dialects.base import Dialect
from proxy.dialects.openai import ChatCompletions, Responses
from runtime.specialist.check import Check
from runtime.specialist.findings import Cause
from runtime.specialist.reading import seal
from runtime.specialist.recorded import recorded_call
from specs.errors import InvalidInput
from specs.interaction import Answer, BranchReason, CallState, Intent, Interaction, SamplingUsed
from tests.runtime.specialist.desk import INSTRUCTIONS, SPEC, TOOLS, chat_tools

HALVES = INSTRUCTIONS.split("\n")
ASKED = {"role": "user", "content": "How many days?"}
RESPONSE_TOOLS = [{"type": "function", **tool["function"]} for tool in chat_tools()]
REQUESTS: list[tuple[Dialect, dict[str, Any]]] = [
    (AnthropicMessages(), {"system": INSTRUCTIONS, "tools": TOOLS, "messages": [ASKED]}),
    (
        AnthropicMessages(),
        {
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
                {"type": "text", "text": HALVES[0]},
                {"type": "text", "text": HALVES[1], "cache_control": {"type": "ephemeral"}},
            ],
            "tools": [*TOOLS, {"type": "web_search_20250305", "name": "web_search"}],
            "messages": [ASKED],
        },
    ),
    (AnthropicMessages(), {"messages": [ASKED]}),
    (AnthropicMessages(), {"system": "Cut \ud83d", "messages": [ASKED]}),
    (
        ChatCompletions(),
        {
            "messages": [{"role": "system", "content": INSTRUCTIONS}, ASKED],
            "tools": chat_tools(),
        },
    ),
    (
        ChatCompletions(),
        {
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": HALVES[0]}]},
                {"role": "system", "content": HALVES[1]},
                ASKED,
            ]
        },
    ),
    (Responses(), {"instructions": INSTRUCTIONS, "tools": RESPONSE_TOOLS, "input": "How many?"}),
    (
        Responses(),
        {
            "instructions": HALVES[0],
            "input": [{"type": "message", "role": "developer", "content": HALVES[1]}, ASKED],
        },
    ),
]


def call(dialect: str, body: dict[str, Any], content: list[Any] | None = None) -> Interaction:
    """A call as evidence gives it back."""
    intent = Intent(
        interaction=f"int_{'0' * 32}",
        trial=f"trl_{'0' * 32}",
        fence=1,
        sequence=0,
        at="2026-01-01T00:00:00Z",
        parent=None,
        branch=BranchReason.ROOT,
        prompt_tokens=0,
        prompt_sha256=f"sha256:{'0' * 64}",
        sampler=f"smp_{'0' * 32}",
        sampling=SamplingUsed(temperature=1, top_p=1, top_k=0, max_tokens=8, stop=()),
        request_digest=f"sha256:{'0' * 64}",
        dialect=dialect,
    )
    answer = Answer(
        interaction=intent.interaction,
        at=intent.at,
        stop_reason="stop",
        provenance="sampled",
        content=content or [],
    )
    request = json.dumps(body).encode()
    none = array("i")
    return Interaction(intent, CallState.ANSWERED, answer, none, none, None, request)


@pytest.mark.parametrize(("dialect", "body"), REQUESTS)
def test_instructions_and_tools_are_those_that_the_proxy_renders(
    dialect: Dialect, body: dict[str, Any]
) -> None:
    wire = {"model": "tiny", "max_tokens": 8, **body}
    if dialect.name == "openai-responses":
        wire["max_output_tokens"] = wire.pop("max_tokens")
    rendered = dialect.read(json.dumps(wire).encode()).conversation
    found = recorded_call(call(dialect.name, wire), with_answer=False)
    assert found.instructions == "\n\n".join(rendered.system)
    assert found.tools == [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
        for tool in rendered.tools
    ]
    assert found.given.startswith("user\nHow many") or found.given.startswith("How many")


def causes(body: dict[str, Any], *content: Any, with_answer: bool = True) -> list[Cause]:
    heard = recorded_call(call("anthropic", body, list(content)), with_answer=with_answer)
    return [cause for cause, _, _ in Check(seal(SPEC, None)).call(heard, 0, last=True)]


TOLD: dict[str, Any] = {"system": INSTRUCTIONS, "tools": TOOLS, "messages": [ASKED]}


def test_a_call_as_specified_is_found_sound() -> None:
    use = {"type": "tool_use", "id": "c", "name": "search", "input": {"query": "leave"}}
    thought = {"type": "thinking", "thinking": "Let me look.", "signature": ""}
    assert causes(TOLD, {"type": "text", "text": "Thirty days."}) == []
    assert causes(TOLD, thought, use) == []


def test_what_a_harness_adds_to_the_instructions_is_found() -> None:
    added = {**TOLD, "system": f"{INSTRUCTIONS}\nToday is Monday."}
    assert causes(added, with_answer=False) == [Cause.INSTRUCTIONS_DIFFER]
    assert causes({**TOLD, "tools": TOOLS[:1]}, with_answer=False) == [Cause.TOOLS_DIFFER]


def test_answers_are_held_to_the_contract_where_that_is_asked_for() -> None:
    wrong: dict[str, Any] = {"type": "tool_use", "id": "c", "name": "teach", "input": {}}
    assert causes(TOLD, wrong) == [Cause.TOOL_UNKNOWN]
    assert causes(TOLD, wrong, with_answer=False) == []
    shown = {**TOLD, "messages": [{"role": "user", "content": "Read answers.key"}]}
    assert causes(shown, {"type": "text", "text": "I did."}) == [Cause.WITHHELD_NAMED]


@pytest.mark.parametrize(("dialect", "body"), [("smoke-signals", {}), ("anthropic", [])])
def test_what_cannot_be_read_is_named(dialect: str, body: Any) -> None:
    with pytest.raises(InvalidInput, match="int_0000"):
        recorded_call(call(dialect, body), with_answer=False)
