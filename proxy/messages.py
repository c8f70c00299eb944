"""The Anthropic Messages dialect: a request as it arrives, and its normal form.

The normal form keeps what a model reads and nothing else: a string is one text block, empty
texts, `cache_control` and thinking are gone, tool results stand in the order of their calls.
What was left out is named in `normalisations`. Unknown top-level fields and beta headers are
ignored; a known field with a bad value is refused by name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, ValidationError

from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Role,
    Text,
    Tool,
    ToolResult,
    ToolUse,
)
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput

BILLING_PREFIX = "x-anthropic-billing-header:"
"""A fingerprint that Claude Code puts before its system prompt; it changes within a session."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request in normal form, with the sampling that it asks for (None where it is silent)."""

    conversation: Conversation
    max_tokens: int
    temperature: float | None
    top_p: float | None
    top_k: int | None
    stream: bool
    calls_allowed: bool
    """False with `tool_choice: none`: markup of a call is then text."""
    requested: Mapping[str, JsonValue]
    normalisations: tuple[str, ...]
    digest: str
    """Over what makes two requests the same call: all but `stream`, `metadata` and caching."""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _Text(_Wire):
    type: Literal["text"]
    text: str


class _ToolUse(_Wire):
    type: Literal["tool_use"]
    id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    input: dict[str, JsonValue]


class _Thinking(_Wire):
    type: Literal["thinking", "redacted_thinking"]


class _Other(_Wire):
    type: str


_TAGS = frozenset({"text", "tool_use", "tool_result", "thinking", "other"})


def _kind(value: Any) -> str:
    kind = str(cast(Any, value).get("type") if isinstance(value, dict) else None)
    kind = kind.removeprefix("redacted_")
    return kind if kind in _TAGS else "other"


_Part = Annotated[
    Annotated[_Text, Tag("text")]
    | Annotated[_ToolUse, Tag("tool_use")]
    | Annotated["_ToolResult", Tag("tool_result")]
    | Annotated[_Thinking, Tag("thinking")]
    | Annotated[_Other, Tag("other")],
    Discriminator(_kind),
]


class _ToolResult(_Wire):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[_Part] = ""


class _Message(_Wire):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Part]


class _Tool(_Wire):
    name: str = Field(min_length=1, max_length=256)
    type: str | None = None
    description: str = ""
    input_schema: dict[str, JsonValue] | None = None


class _ToolChoice(_Wire):
    type: Literal["auto", "any", "tool", "none"]


class _Count(_Wire):
    """Body of `count_tokens`."""

    model: str = Field(min_length=1, max_length=512)
    messages: list[_Message] = Field(min_length=1)
    system: str | list[_Part] = ""
    tools: list[_Tool] = Field(default_factory=list[_Tool])
    tool_choice: _ToolChoice | None = None


class _Body(_Count):
    max_tokens: int = Field(ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    stop_sequences: list[str] | None = None
    stream: bool = False


_SAMPLING = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream")
_KNOWN = frozenset(_Body.model_fields) | {"metadata"}
_NOT_THE_CALL = frozenset({"stream", "metadata"})


def read_request(data: bytes) -> Request:
    """Parse the body of `POST /v1/messages`.

    Raises:
        InvalidInput: `invalid_json`, `invalid_document` or `unsupported_content`, naming the
            field as Anthropic does (`messages.0.content`).
    """
    value = _object(data)
    body = _validate(_Body, value)
    if body.stop_sequences:
        raise _refuse(
            "stop_sequences",
            "stop sequences are not supported: the model's own end of turn ends an answer",
            ErrorCode.UNSUPPORTED_CONTENT,
        )
    notes: set[str] = {f"ignored:{name[:64]}" for name in value if name not in _KNOWN}
    if body.tool_choice is not None and body.tool_choice.type in ("any", "tool"):
        notes.add("ignored:tool_choice")
    conversation = _conversation(body, notes)
    return Request(
        conversation=conversation,
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stream=body.stream,
        calls_allowed=body.tool_choice is None or body.tool_choice.type != "none",
        requested={name: value[name] for name in _SAMPLING if value.get(name) is not None},
        normalisations=tuple(sorted(notes)),
        digest=_same_call(value),
    )


def read_count(data: bytes) -> Conversation:
    """Parse the body of `POST /v1/messages/count_tokens`; errors as `read_request`."""
    return _conversation(_validate(_Count, _object(data)), set())


def _object(data: bytes) -> dict[str, JsonValue]:
    value = canonical.loads(data, what="request", allow_nul=True)
    if not isinstance(value, dict):
        raise InvalidInput(
            "The request body must be a JSON object.",
            object=ErrorObject(type="request", pointer="/"),
        )
    return value


def _validate[M: BaseModel](model: type[M], value: dict[str, JsonValue]) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        found = [(_field(problem["loc"]), problem["msg"]) for problem in problems]
        within = [one for one in found if one[0].startswith(found[0][0])]
        raise _refuse(*max(within, key=lambda one: one[0].count("."))) from None


def _field(location: Sequence[str | int]) -> str:
    """Pydantic's location in Anthropic's words, without the branches of its unions."""
    parts: list[str] = []
    for index, part in enumerate(location):
        branch = isinstance(part, str) and (part == "str" or part.startswith("list["))
        tag = part in _TAGS and index > 0 and isinstance(location[index - 1], int)
        if not branch and not tag:
            parts.append(str(part))
    return ".".join(parts) or "body"


def _refuse(field: str, cause: str, code: ErrorCode = ErrorCode.INVALID_DOCUMENT) -> InvalidInput:
    pointer = "/" + field.replace(".", "/")
    return InvalidInput(
        f"{field}: {cause}",
        code=code,
        object=ErrorObject(type="request", pointer=pointer),
        next=f"Correct {field} and send the request again.",
    )


def _conversation(body: _Count, notes: set[str]) -> Conversation:
    messages: list[Message] = []
    order: list[str] = []
    for index, wire in enumerate(body.messages):
        blocks = _blocks(wire.content, wire.role, f"messages.{index}.content", notes)
        if wire.role == "assistant":
            order = [block.id for block in blocks if isinstance(block, ToolUse)]
        elif wire.role == "user":
            blocks = _in_call_order(blocks, order, f"messages.{index}.content")
            order = []
        messages.append(Message(wire.role, tuple(blocks)))
    return Conversation(_system(body.system, notes), _tools(body.tools), tuple(messages))


def _blocks(content: str | Sequence[_Part], role: Role, field: str, notes: set[str]) -> list[Block]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    blocks: list[Block] = []
    for index, part in enumerate(content):
        where = f"{field}.{index}"
        match part:
            case _Text():
                if part.text:
                    blocks.append(Text(part.text))
            case _ToolUse() if role == "assistant":
                blocks.append(ToolUse(part.id, part.name, part.input))
            case _ToolResult() if role == "user":
                blocks.append(ToolResult(part.tool_use_id, _result(part.content, where)))
            case _Thinking() if role == "assistant":
                notes.add("dropped:thinking")
            case _:
                raise _unsupported(part.type, where, f" in a turn of the {role}")
    return blocks


def _result(content: str | Sequence[_Part], field: str) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for index, part in enumerate(content):
        if not isinstance(part, _Text):
            raise _unsupported(part.type, f"{field}.content.{index}", " in a tool result")
        texts.append(part.text)
    return "\n".join(texts)


def _in_call_order(blocks: list[Block], order: list[str], field: str) -> list[Block]:
    """Tool results in the order of the calls that they answer, then everything else."""
    results: list[ToolResult] = []
    for index, block in enumerate(blocks):
        if not isinstance(block, ToolResult):
            continue
        if block.call not in order:
            raise _refuse(
                f"{field}.{index}",
                f"unexpected `tool_use_id` found in `tool_result` blocks: {block.call[:256]}."
                " Each `tool_result` block must have a corresponding `tool_use` block in the"
                " previous message.",
            )
        results.append(block)
    results.sort(key=lambda result: order.index(result.call))
    return [*results, *(block for block in blocks if not isinstance(block, ToolResult))]


def _system(system: str | Sequence[_Part], notes: set[str]) -> tuple[str, ...]:
    texts: list[str] = []
    for index, part in enumerate([system] if isinstance(system, str) else system):
        if isinstance(part, str):
            text = part
        elif isinstance(part, _Text):
            text = part.text
        else:
            raise _unsupported(part.type, f"system.{index}", " in the system prompt")
        if text.startswith(BILLING_PREFIX):
            notes.add("dropped:billing_header")
        elif text:
            texts.append(text)
    return tuple(texts)


def _tools(tools: Sequence[_Tool]) -> tuple[Tool, ...]:
    """Client tools; a server tool (`web_search_…`) has no schema and nobody here to run it."""
    result: list[Tool] = []
    for index, tool in enumerate(tools):
        if tool.input_schema is None:
            if tool.type in (None, "custom"):
                raise _refuse(f"tools.{index}.input_schema", "Field required")
            raise _unsupported(tool.type, f"tools.{index}", " as a tool: server tools are not run")
        result.append(Tool(tool.name, tool.description, tool.input_schema))
    return tuple(result)


def _unsupported(kind: str, field: str, where: str) -> InvalidInput:
    return _refuse(field, f"`{kind[:64]}` is not supported{where}", ErrorCode.UNSUPPORTED_CONTENT)


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
