"""Requests of the Responses API in normal form.

Neighbouring items of the assistant (reasoning, messages, calls) are one turn, as they were one
answer; so are neighbouring outputs of calls. The API here is stateless: a request carries its
whole conversation, and one that refers to stored state is refused. Items and tools of what
OpenAI runs itself have nothing behind them here; they are dropped, on the record.
"""

import re
from collections.abc import Sequence

from pydantic import JsonValue

from proxy.dialects.base import Request
from proxy.dialects.body import read_object, refuse, validated
from proxy.dialects.openai import content
from proxy.dialects.openai import responses_wire as wire
from proxy.dialects.wishes import openai_call, openai_thinking, wanted
from runtime.formats.conversation import Conversation, Text, Thinking, Tool, ToolUse
from specs.errors import ErrorCode

NAME = "openai-responses"
REASONING = "rs_"
"""Begins the id of a reasoning item, which is its signature."""

_SAMPLING = ("model", "max_output_tokens", "temperature", "top_p", "stream", "include")
_NOT_THE_CALL = frozenset({"stream", "stream_options", "metadata", "user", "store"})
_INERT = frozenset({"include", "prompt_cache_key", "safety_identifier", "service_tier"})
_UNENFORCED = ("max_tool_calls", "top_logprobs")
_STATE = ("previous_response_id", "conversation", "prompt", "background")
_KNOWN = (
    frozenset(wire.ResponseBody.model_fields)
    | _NOT_THE_CALL
    | _INERT
    | {*_UNENFORCED, *_STATE, "text", "truncation"}
)
_SIGNATURE = re.compile(REASONING + "([0-9a-f]{34,})")


def read_response(data: bytes) -> Request:
    """The body of `POST /v1/responses`.

    Raises:
        InvalidInput: `invalid_json`, `invalid_document` or `unsupported_content`, naming the
            field (`input.0.content`).
    """
    notes: set[str] = set()
    value = read_object(data, notes)
    for name in _STATE:
        if value.get(name):
            raise refuse(
                name,
                "is not supported: nothing is stored between requests; send the whole"
                " conversation in `input`",
                ErrorCode.UNSUPPORTED_CONTENT,
            )
    body = validated(wire.ResponseBody, value, wire.TAGS)
    notes |= {f"ignored:{name[:64]}" for name in value if name not in _KNOWN}
    notes |= _unenforced(value)
    return Request(
        conversation=_conversation(body, notes),
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=None,
        stop_sequences=(),
        stream=bool(body.stream),
        calls_allowed=body.tool_choice != "none",
        requested={name: value[name] for name in _SAMPLING if value.get(name) is not None},
        normalisations=tuple(sorted(notes)),
        digest=content.same_call(NAME, value, _NOT_THE_CALL),
        one_call=body.parallel_tool_calls is False,
    )


def _unenforced(value: dict[str, JsonValue]) -> set[str]:
    """What was asked for and cannot be had."""
    notes = {f"unenforced:{name}" for name in _UNENFORCED if value.get(name)}
    text = value.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and form.get("type") != "text":
        notes.add("unenforced:text.format")
    if value.get("truncation") == "auto":
        notes.add("unenforced:truncation")
    return notes


def _conversation(body: wire.ResponseBody, notes: set[str]) -> Conversation:
    turns = content.Turns(notes)
    if body.instructions:
        turns.system([body.instructions])
    if isinstance(body.input, str):
        turns.user([body.input] if body.input else [])
    else:
        for index, item in enumerate(body.input):
            _add(turns, item, f"input.{index}")
    tools = _tools(body.tools or (), notes)
    asked = body.reasoning if isinstance(body.reasoning, dict) else {}
    notes |= {f"ignored:reasoning.{name[:64]}" for name in asked if name != "effort"}
    effort = asked.get("effort")
    thinking = openai_thinking(effort, "reasoning.effort", notes)
    start = wanted(thinking, openai_call(body.tool_choice, notes), tools, notes)
    return turns.conversation(tools, "input", start)


def _add(turns: content.Turns, item: wire.Item, field: str) -> None:
    notes = turns.notes
    match item:
        case wire.MessageItem():
            _say(turns, item, content.texts(item.content, f"{field}.content", notes))
        case wire.CallItem():
            arguments = content.arguments(item.arguments, notes)
            turns.assistant([ToolUse(item.call_id, item.name, arguments)], join=True)
        case wire.OutputItem():
            text = "\n".join(content.texts(item.output, f"{field}.output", notes))
            unknown = f"No tool call found for function call output with call_id {item.call_id}."
            turns.result(item.call_id, text, field, unknown)
        case wire.ReasoningItem():
            parts = content.texts(item.content or item.summary, f"{field}.content", notes)
            signed = _SIGNATURE.fullmatch(item.id or "")
            if parts:
                thought = Thinking("".join(parts), signed[1] if signed else "")
                turns.assistant([thought], join=True)
        case wire.OtherItem(type="item_reference"):
            raise content.unsupported("item_reference", field)
        case wire.OtherItem():
            notes.add(f"dropped:item:{item.type[:64]}")


def _say(turns: content.Turns, item: wire.MessageItem, parts: Sequence[str]) -> None:
    if item.role == "assistant":
        turns.assistant([Text(part) for part in parts], join=True)
    elif item.role == "user":
        turns.user(parts)
    else:
        turns.system(parts)


def _tools(tools: Sequence[wire.ResponseTool], notes: set[str]) -> tuple[Tool, ...]:
    result: list[Tool] = []
    for index, tool in enumerate(tools):
        if tool.type != "function":
            notes.add(f"dropped:tool:{tool.type[:64]}")
            continue
        if not tool.name:
            raise refuse(f"tools.{index}.name", "Field required")
        if tool.strict:
            notes.add("unenforced:tools.strict")
        result.append(Tool(tool.name, tool.description or "", content.schema(tool.parameters)))
    return tuple(result)
