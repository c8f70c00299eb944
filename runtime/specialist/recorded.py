"""A recorded model call, as a check sees it: what the harness told the model, and the answer.

A harness may add to its instructions, or send other tools than its profile suggests; only the
request that the proxy recorded tells. Each API says instructions and tools in its own place;
what else a request holds is taken as one text, in which names are looked for.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from specs import repaired
from specs.chat import ChatMessage
from specs.errors import ErrorObject, InvalidInput
from specs.interaction import Interaction

_BILLING = "x-anthropic-billing-header:"
"""Begins a text that is no instruction and reaches no model."""

type _Object = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call."""

    instructions: str
    tools: list[JsonValue]
    """In the form in which a specification's are digested."""
    given: str
    """Every text of the conversation so far, system texts left out."""
    answer: ChatMessage | None


def recorded_call(call: Interaction, *, with_answer: bool) -> RecordedCall:
    """A call read back from a trial's evidence.

    Raises:
        InvalidInput: an API that is not known here, or a body that is no object.
    """
    body = repaired.loads(call.request)
    if not isinstance(body, dict):
        raise _refuse(call, "its request is no JSON object")
    match call.intent.dialect:
        case "anthropic":
            system, rest = _texts(body.get("system")), body.get("messages")
            tools = [_anthropic_tool(tool) for tool in _objects(body.get("tools"))]
        case "openai-chat":
            system, rest = _leading(body.get("messages"))
            tools = [_openai_tool(tool.get("function")) for tool in _objects(body.get("tools"))]
        case "openai-responses":
            leading, rest = _leading(body.get("input"))
            system = [*_texts(body.get("instructions")), *leading]
            tools = [_openai_tool(tool) for tool in _objects(body.get("tools"))]
        case other:
            raise _refuse(call, f"its API {other!r} is not read here")
    kept = [text for text in system if text and not text.startswith(_BILLING)]
    answer = call.answer if with_answer else None
    return RecordedCall(
        instructions="\n\n".join(kept),
        tools=[tool for tool in tools if tool is not None],
        given="\n".join(_strings(rest)),
        answer=None if answer is None else _answer(answer.content),
    )


def _answer(content: list[JsonValue]) -> ChatMessage:
    """Content blocks as a message of a chat row."""
    blocks = _objects(content)
    calls: list[JsonValue] = [
        {
            "id": str(block.get("id") or "call"),
            "function": {"name": block.get("name"), "arguments": block.get("input")},
        }
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    message: _Object = {
        "role": "assistant",
        "content": "".join(str(b.get("text")) for b in blocks if b.get("type") == "text"),
    }
    if thought := "".join(str(b.get("thinking")) for b in blocks if b.get("type") == "thinking"):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return ChatMessage.model_validate_json(json.dumps(message))


def _leading(messages: JsonValue) -> tuple[list[str], JsonValue]:
    """System texts before any turn, and the turns."""
    if not isinstance(messages, list):
        return [], messages
    system: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer"):
            return system, messages[index:]
        system += _texts(cast(_Object, message).get("content"))
    return system, []


def _texts(content: JsonValue) -> list[str]:
    """The texts of a content: one, or those of its parts."""
    if isinstance(content, str):
        return [content]
    return [str(part["text"]) for part in _objects(content) if "text" in part]


def _anthropic_tool(tool: _Object) -> JsonValue:
    if tool.get("type") not in (None, "custom"):
        return None  # one of the API's own, which no model is shown
    return _tool(tool, tool.get("input_schema"))


def _openai_tool(function: JsonValue) -> JsonValue:
    if not isinstance(function, dict) or "name" not in function:
        return None
    return _tool(function, function.get("parameters"))


def _tool(tool: _Object, schema: JsonValue) -> JsonValue:
    return {
        "name": tool.get("name"),
        "description": tool.get("description") or "",
        "input_schema": schema or {},
    }


def _objects(value: JsonValue) -> list[_Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value if isinstance(value, list) else value.values():
            yield from _strings(item)


def _refuse(call: Interaction, cause: str) -> InvalidInput:
    return InvalidInput(
        f"The call {call.intent.interaction} cannot be compared: {cause}.",
        object=ErrorObject(type="interaction", id=call.intent.interaction),
        next="See it: practicum run interactions RUN --trial TRIAL --request",
    )
