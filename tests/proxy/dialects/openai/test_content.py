"""What both OpenAI dialects read alike: arguments of calls that a client sends back."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from proxy.dialects.openai.content import UNPARSED, arguments
from specs.interaction import CallState
from tests.proxy.dialects.openai.clients import FUNCTION
from tests.proxy.world import Dice, ids_text, user, world

HALF = r'{"command": "echo \ud83d"}'
"""Arguments that were cut between the two halves of a character."""


@pytest.mark.parametrize(
    ("text", "value", "notes"),
    [
        ('{"a": [1, "é"]}', {"a": [1, "é"]}, set[str]()),
        (" ", {}, set[str]()),
        (HALF, {"command": "echo \ufffd"}, {"replaced:lone_surrogates"}),
        (r'{"\ude00": 1}', {"\ufffd": 1}, {"replaced:lone_surrogates"}),
        ('{"a": ' + "9" * 30 + "}", {"a": int("9" * 30)}, set[str]()),
        ("[1]", None, {"unparsed:arguments"}),
        ("{", None, {"unparsed:arguments"}),
        ('{"a": NaN}', None, {"unparsed:arguments"}),
        ('{"a": 1e999}', None, {"unparsed:arguments"}),
        ('{"a": 1, "a": 2}', None, {"unparsed:arguments"}),
        ('{"a":' * 70 + "1" + "}" * 70, None, {"unparsed:arguments"}),
    ],
    ids=[
        "an object", "none", "half a character", "half a character as a key", "a large number",
        "no object", "no JSON", "no number", "beyond every number", "a key twice", "too deep",
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_used_are_kept_as_their_text(
    text: str, value: dict[str, JsonValue] | None, notes: set[str]
) -> None:
    said: set[str] = set()
    assert arguments(text, said) == ({UNPARSED: text} if value is None else value)
    assert said == notes


def called(path: str) -> dict[str, Any]:
    """A request with a call of somebody else's in it."""
    if path == "/v1/responses":
        name = {"call_id": "c", "name": "Bash", "arguments": HALF}
        items: list[Any] = [user("u"), {"type": "function_call", **name}]
        items.append({"type": "function_call_output", "call_id": "c", "output": "x"})
        return {"model": "m", "input": items, "tools": [{"type": "function", **FUNCTION}]}
    call = {"id": "c", "type": "function", "function": {"name": "Bash", "arguments": HALF}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    turns = [user("u"), said, {"role": "tool", "tool_call_id": "c", "content": "x"}]
    tools = [{"type": "function", "function": FUNCTION}]
    return {"model": "m", "messages": turns, "tools": tools}


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_half_a_character_in_arguments_is_replaced_and_said_so(
    short_dir: Path, path: str
) -> None:
    async with world(short_dir, compute=Dice(["done"])) as stack:
        claims = stack.gateway.claims()
        response = await stack.client.post(
            path,
            content=json.dumps(called(path)).encode(),
            headers=stack.harness(**claims).headers,
        )
        (record,) = stack.interactions(claims["trial"])
    assert response.status_code == 200, response.text
    assert record.state is CallState.ANSWERED
    assert "echo \ufffd" in ids_text(record.prompt)
    assert "replaced:lone_surrogates" in record.intent.normalisations
