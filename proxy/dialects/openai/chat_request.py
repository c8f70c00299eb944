"""Requests of Chat Completions in normal form.

Leading system and developer messages are the system prompt; the reasoning that we answered
with (`reasoning_content`) comes back as thinking; neighbouring tool messages are one turn.
Unknown fields are ignored, fields that nothing here can enforce are named, and a request that
would need more than one answer is refused.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from proxy.dialects.base import Request
from proxy.dialects.body import read_object, refuse, validated
from proxy.dialects.openai import content
from proxy.dialects.openai.chat_wire import (
    MAX_STOP_SEQUENCES,
    ChatBody,
    ChatMessage,
    ChatTool,
    ToolCall,
)
from proxy.dialects.wishes import openai_call, openai_thinking, wanted
from runtime.formats.conversation import Block, Conversation, Text, Thinking, Tool, ToolUse
from specs.errors import ErrorCode

NAME = "openai-chat"

_SAMPLING = (
    "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed",
    "stop", "logprobs", "stream", "stream_options",
)  # fmt: skip
_NOT_THE_CALL = frozenset({"stream", "stream_options", "metadata", "user", "store"})
_UNENFORCED = ("frequency_penalty", "presence_penalty", "logit_bias", "top_logprobs")
_KNOWN = frozenset(ChatBody.model_fields) | _NOT_THE_CALL | {*_UNENFORCED, "response_format"}
_NO_CALL = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"


def read_chat(data: bytes) -> Request:
    """The body of `POST /v1/chat/completions`.

    Raises:
        InvalidInput: `invalid_json`, `invalid_document` or `unsupported_content`, naming the
            field (`messages.0.content`).
    """
    notes: set[str] = set()
    value = read_object(data, notes)
    body = validated(ChatBody, value, content.TAGS)
    _check(body)
    notes |= {f"ignored:{name[:64]}" for name in value if name not in _KNOWN}
    notes |= {f"unenforced:{name}" for name in _UNENFORCED if value.get(name)}
    if _is_form(value.get("response_format")):
        notes.add("unenforced:response_format")
    most = body.max_completion_tokens
    return Request(
        conversation=_conversation(body, notes),
        max_tokens=body.max_tokens if most is None else most,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop_sequences=_stop(body.stop),
        stream=bool(body.stream),
        calls_allowed=body.tool_choice != "none",
        requested={name: value[name] for name in _SAMPLING if value.get(name) is not None},
        normalisations=tuple(sorted(notes)),
        digest=content.same_call(NAME, value, _NOT_THE_CALL),
        seed=body.seed,
        one_call=body.parallel_tool_calls is False,
        logprobs=bool(body.logprobs),
    )


def _check(body: ChatBody) -> None:
    if body.n not in (None, 1):
        raise refuse("n", "only one choice is sampled; n must be 1")
    for name, value in (("functions", body.functions), ("function_call", body.function_call)):
        if value not in (None, []):
            raise refuse(name, "is not supported; use tools", ErrorCode.UNSUPPORTED_CONTENT)


def _is_form(value: JsonValue) -> bool:
    return isinstance(value, dict) and value.get("type") != "text"


def _stop(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    found = [stop] if isinstance(stop, str) else list(stop or ())
    if len(found) > MAX_STOP_SEQUENCES:
        raise refuse("stop", f"at most {MAX_STOP_SEQUENCES} sequences are supported")
    for index, sequence in enumerate(found):
        if not sequence:
            raise refuse(f"stop.{index}", "a stop sequence must not be empty")
    return tuple(found)


def _conversation(body: ChatBody, notes: set[str]) -> Conversation:
    turns = content.Turns(notes)
    for index, message in enumerate(body.messages):
        _add(turns, message, f"messages.{index}")
    tools = _tools(body.tools or (), notes)
    thinking = openai_thinking(body.reasoning_effort, "reasoning_effort", notes)
    start = wanted(thinking, openai_call(body.tool_choice, notes), tools, notes)
    return turns.conversation(tools, "messages", start)


def _add(turns: content.Turns, message: ChatMessage, field: str) -> None:
    notes = turns.notes
    if message.name:
        notes.add("ignored:messages.name")
    if message.role == "assistant":
        turns.assistant(_said(message, field, notes))
        return
    if message.content is None and message.role != "tool":
        raise refuse(f"{field}.content", "Field required")
    parts = content.texts(message.content, f"{field}.content", notes)
    match message.role:
        case "user":
            turns.user(parts)
        case "tool":
            if not message.tool_call_id:
                raise refuse(f"{field}.tool_call_id", "Field required")
            turns.result(message.tool_call_id, "\n".join(parts), field, _NO_CALL)
        case _:
            turns.system(parts)


def _said(message: ChatMessage, field: str, notes: set[str]) -> list[Block]:
    if message.function_call is not None:
        raise content.unsupported("function_call", f"{field}.function_call")
    thought = message.reasoning_content or message.reasoning
    parts = content.texts(message.content, f"{field}.content", notes)
    parts += [message.refusal] if message.refusal else []
    blocks: list[Block] = [Thinking(thought)] if thought else []
    blocks += [Text(part) for part in parts]
    for index, call in enumerate(message.tool_calls or ()):
        blocks.append(_call(call, f"{field}.tool_calls.{index}", notes))
    return blocks


def _call(call: ToolCall, field: str, notes: set[str]) -> ToolUse:
    if call.type != "function":
        raise content.unsupported(call.type, field)
    if call.function is None:
        raise refuse(f"{field}.function", "Field required")
    return ToolUse(call.id, call.function.name, content.arguments(call.function.arguments, notes))


def _tools(tools: Sequence[ChatTool], notes: set[str]) -> tuple[Tool, ...]:
    """The client's functions; a tool of another kind has no schema that could be shown."""
    result: list[Tool] = []
    for index, tool in enumerate(tools):
        if tool.type != "function":
            notes.add(f"dropped:tool:{tool.type[:64]}")
            continue
        spec = tool.function
        if spec is None:
            raise refuse(f"tools.{index}.function", "Field required")
        if spec.strict:
            notes.add("unenforced:tools.strict")
        result.append(Tool(spec.name, spec.description or "", content.schema(spec.parameters)))
    return tuple(result)
