"""Requests of the Messages API in normal form.

The normal form keeps what a model reads and nothing else: a string is one text block, empty
texts and `cache_control` are gone, tool results stand in the order of their calls, a system
message stays where it was sent. What was left out, replaced or cannot be enforced is named in
`normalisations`. Unknown fields and beta headers are ignored; a known field with a bad value
is refused by name.
"""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from proxy.dialects.anthropic import wire
from proxy.dialects.anthropic.content import Blocks, unsupported
from proxy.dialects.base import Request
from proxy.dialects.body import read_object, refuse, validated
from proxy.dialects.wishes import ANY, wanted
from runtime.formats.conversation import Block, Conversation, Message, Tool, ToolResult, ToolUse
from specs import canonical

BILLING_PREFIX = "x-anthropic-billing-header:"
"""A fingerprint that Claude Code puts before its system prompt; it changes within a session."""

_SAMPLING = ("model", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream")
_KNOWN = frozenset(wire.MessageBody.model_fields) | {"metadata"}
_NOT_THE_CALL = frozenset({"stream", "metadata"})
_TOOL_NOTES = frozenset(
    {"defer_loading", "input_examples", "strict", "allowed_callers", "eager_input_streaming"}
)


def read_message(data: bytes) -> Request:
    """The body of `POST /v1/messages`.

    Raises:
        InvalidInput: `invalid_json`, `invalid_document` or `unsupported_content`, naming the
            field as Anthropic does (`messages.0.content`).
    """
    notes: set[str] = set()
    value = read_object(data, notes)
    body = validated(wire.MessageBody, value, wire.TAGS)
    notes |= {f"ignored:{name[:64]}" for name in value if name not in _KNOWN}
    return Request(
        conversation=_conversation(body, notes),
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop_sequences=_stop_sequences(body.stop_sequences or ()),
        stream=bool(body.stream),
        calls_allowed=body.tool_choice is None or body.tool_choice.type != "none",
        requested={name: value[name] for name in _SAMPLING if value.get(name) is not None},
        normalisations=tuple(sorted(notes)),
        digest=_same_call(value),
        one_call=body.tool_choice is not None and body.tool_choice.disable_parallel_tool_use,
    )


def read_count(data: bytes) -> Conversation:
    """The body of `POST /v1/messages/count_tokens`; errors as `read_message`."""
    notes: set[str] = set()
    return _conversation(validated(wire.CountBody, read_object(data, notes), wire.TAGS), notes)


def _stop_sequences(sequences: Sequence[str]) -> tuple[str, ...]:
    for index, sequence in enumerate(sequences):
        if not sequence.strip():
            raise refuse(
                f"stop_sequences.{index}", "each stop sequence must contain non-whitespace"
            )
    return tuple(sequences)


def _conversation(body: wire.CountBody, notes: set[str]) -> Conversation:
    blocks = Blocks(notes)
    messages = _messages(body.messages, blocks)
    system = _system(body.system or "", blocks)
    tools = _tools(body.tools or (), notes)
    start = wanted(_thinking(body.thinking, notes), _call(body.tool_choice), tools, notes)
    return Conversation(system, tools, messages, start)


def _call(choice: wire.WireToolChoice | None) -> str | None:
    """The call that the answer has to begin with, if any."""
    if choice is None:
        return None
    if choice.type == "tool":
        if not choice.name:
            raise refuse("tool_choice.name", "Field required")
        return choice.name
    return ANY if choice.type == "any" else None


def _thinking(value: JsonValue, notes: set[str]) -> bool | None:
    """Whether the answer is to have thinking; `adaptive` leaves it to the model."""
    if value is None:
        return None
    fields = value if isinstance(value, dict) else {}
    match fields.get("type"):
        case "disabled":
            return False
        case "adaptive":
            return None
        case "enabled":
            if fields.get("budget_tokens") is not None:
                notes.add("unenforced:thinking.budget_tokens")
            return True
        case _:
            notes.add("ignored:thinking")
            return None


def _messages(found: Sequence[wire.WireMessage], blocks: Blocks) -> tuple[Message, ...]:
    messages: list[Message] = []
    order: list[str] = []
    last = ""
    for index, one in enumerate(found):
        field = f"messages.{index}.content"
        turn = blocks.turn(one.content, one.role, field)
        if one.role == "assistant":
            calls = [block.id for block in turn if isinstance(block, ToolUse)]
            order = [*order, *calls] if last == "assistant" else calls
        elif one.role == "user":
            turn = _in_call_order(turn, order, field, blocks.notes)
        last = last if one.role == "system" else one.role
        messages.append(Message(one.role, tuple(turn)))
    return tuple(messages)


def _in_call_order(
    blocks: list[Block], order: list[str], field: str, notes: set[str]
) -> list[Block]:
    """Tool results in the order of the calls that they answer, then everything else.

    A call's result that comes twice counts once: harnesses have been seen to repeat one.
    """
    results: dict[str, ToolResult] = {}
    for index, block in enumerate(blocks):
        if not isinstance(block, ToolResult):
            continue
        if block.call not in order:
            raise refuse(
                f"{field}.{index}",
                f"unexpected `tool_use_id` found in `tool_result` blocks: {block.call[:256]}."
                " Each `tool_result` block must have a corresponding `tool_use` block in the"
                " previous message.",
            )
        if block.call in results:
            notes.add("dropped:repeated_result")
        results.setdefault(block.call, block)
    ordered = sorted(results.values(), key=lambda result: order.index(result.call))
    if list(results.values()) != ordered:
        notes.add("reordered_results")
    return [*ordered, *(block for block in blocks if not isinstance(block, ToolResult))]


def _system(system: str | Sequence[wire.Part], blocks: Blocks) -> tuple[str, ...]:
    texts: list[str] = []
    for index, part in enumerate([system] if isinstance(system, str) else system):
        if isinstance(part, str):
            text = part
        elif isinstance(part, wire.TextPart):
            text = part.text
        else:
            raise unsupported(part.type, f"system.{index}", " in the system prompt")
        if text.startswith(BILLING_PREFIX):
            blocks.notes.add("dropped:billing_header")
        elif text:
            texts.append(text)
    return tuple(texts)


def _tools(tools: Sequence[wire.WireTool], notes: set[str]) -> tuple[Tool, ...]:
    """The client's tools; one of Anthropic's own has no schema and nobody here to run it."""
    result: list[Tool] = []
    for index, tool in enumerate(tools):
        if tool.type not in (None, "custom"):
            notes.add(f"dropped:tool:{(tool.type or '')[:64]}")
            continue
        if not tool.name:
            raise refuse(f"tools.{index}.name", "Field required")
        if tool.input_schema is None:
            raise refuse(f"tools.{index}.input_schema", "Field required")
        notes |= {f"ignored:tools.{name}" for name in _TOOL_NOTES if name in _extra(tool)}
        result.append(Tool(tool.name, tool.description or "", tool.input_schema))
    return tuple(result)


def _extra(tool: wire.WireTool) -> dict[str, JsonValue]:
    return tool.model_extra or {}


def _same_call(value: dict[str, JsonValue]) -> str:
    body = {name: field for name, field in value.items() if name not in _NOT_THE_CALL}
    return canonical.digest_bytes(
        json.dumps(_uncached(body), sort_keys=True, separators=(",", ":")).encode()
    )


def _uncached(value: JsonValue) -> JsonValue:
    """The value without `cache_control`, whose marks move from turn to turn."""
    if isinstance(value, dict):
        return {name: _uncached(item) for name, item in value.items() if name != "cache_control"}
    if isinstance(value, list):
        return [_uncached(item) for item in value]
    return value
