"""What both OpenAI dialects read alike: content parts, arguments of calls, the order of turns.

Models here read text. Media becomes a marker that says what stood there, so that the model
knows and the harness goes on. Every replacement is deterministic and named in `notes`.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, JsonValue, Tag

from proxy.dialects.body import read_value, refuse
from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Start,
    Text,
    Tool,
    ToolResult,
    ToolUse,
)
from specs import canonical
from specs.errors import ErrorCode, InvalidInput

UNPARSED = "__unparsed__"
"""Holds arguments of a foreign call that are no JSON object."""

_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "video_url": "video",
    "input_audio": "audio",
    "audio_url": "audio",
    "file": "file",
    "input_file": "file",
}
_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})


class Wire(BaseModel):
    """Strict about what it names, silent about the rest."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class TextPart(Wire):
    type: Literal["text", "input_text", "output_text", "summary_text", "reasoning_text"]
    text: str


class RefusalPart(Wire):
    type: Literal["refusal"]
    refusal: str


class MediaPart(Wire):
    """An image, a sound or a file, wherever it comes from."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    type: str


class OtherPart(Wire):
    type: str


TAGS = frozenset({"text", "refusal", "media", "other"})


def _kind(value: Any) -> str:
    kind = str(cast(Any, value).get("type") if isinstance(value, dict) else None)
    if kind in _TEXTS:
        return "text"
    if kind in _MEDIA:
        return "media"
    return kind if kind == "refusal" else "other"


Part = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[RefusalPart, Tag("refusal")]
    | Annotated[MediaPart, Tag("media")]
    | Annotated[OtherPart, Tag("other")],
    Discriminator(_kind),
]


def texts(content: str | Sequence[Part] | None, field: str, notes: set[str]) -> list[str]:
    """What a model reads of a content, part by part; empty texts are gone.

    Raises:
        InvalidInput: `unsupported_content`, naming the part.
    """
    if content is None or isinstance(content, str):
        return [content] if content else []
    found = [_text(part, f"{field}.{index}", notes) for index, part in enumerate(content)]
    return [text for text in found if text]


def _text(part: Part, field: str, notes: set[str]) -> str:
    match part:
        case TextPart():
            return part.text
        case RefusalPart():
            return part.refusal
        case MediaPart():
            name = _MEDIA[part.type]
            notes.add(f"replaced:{name}")
            return f"[{name} not shown: {_about(part)}; this model reads text only]"
        case OtherPart():
            raise unsupported(part.type, field)


def _about(part: MediaPart) -> str:
    """The media type or the name of what is not shown."""
    extra: dict[str, JsonValue] = part.model_extra or {}
    inner = extra.get(part.type, extra)
    values: dict[str, JsonValue] = inner if isinstance(inner, dict) else {"url": inner}
    for name in ("filename", "format"):
        if isinstance(found := values.get(name), str) and found:
            return found[:64]
    for name in ("url", "image_url", "file_url", "file_data"):
        found = values.get(name)
        if isinstance(found, str) and found.startswith("data:"):
            return found[5:69].partition(",")[0].partition(";")[0] or "data"
        if isinstance(found, str) and found:
            return "url"
    return part.type


def unsupported(kind: str, field: str) -> InvalidInput:
    """Something that has no meaning where it stands."""
    return refuse(field, f"`{kind[:64]}` is not supported here", ErrorCode.UNSUPPORTED_CONTENT)


def arguments(text: str, notes: set[str]) -> dict[str, JsonValue]:
    """The arguments of a call. Ours are JSON objects; a foreign model's may be anything."""
    try:
        value = read_value(text, notes) if text.strip() else {}
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        return value
    notes.add("unparsed:arguments")
    return {UNPARSED: text}


def serialised(block: dict[str, JsonValue]) -> str:
    """The arguments of one of our calls as text."""
    return json.dumps(block["input"], ensure_ascii=False)


def schema(parameters: dict[str, JsonValue] | None) -> dict[str, JsonValue]:
    """The schema of a function; without parameters it takes none."""
    return parameters if parameters is not None else {"type": "object", "properties": {}}


def same_call(dialect: str, value: dict[str, JsonValue], without: frozenset[str]) -> str:
    """Digest over what makes two requests the same call."""
    body = {name: field for name, field in value.items() if name not in without}
    data = json.dumps([dialect, body], sort_keys=True, separators=(",", ":"))
    return canonical.digest_bytes(data.encode())


class Turns:
    """Collects the turns of a request in normal form.

    System texts before any turn are the system prompt; later ones stay where they were sent.
    Neighbouring results are one turn, in the order of the calls that they answer; a call's
    result that comes twice counts once.
    """

    def __init__(self, notes: set[str]) -> None:
        self.notes = notes
        self._system: list[str] = []
        self._messages: list[Message] = []
        self._order: list[str] = []
        self._results: dict[str, ToolResult] = {}

    def system(self, parts: Sequence[str]) -> None:
        """A system or developer message."""
        self._flush()
        if self._messages:
            self._messages.append(Message("system", tuple(map(Text, parts))))
        else:
            self._system += parts

    def user(self, parts: Sequence[str]) -> None:
        """A user message."""
        self._flush()
        self._messages.append(Message("user", tuple(map(Text, parts))))

    def assistant(self, blocks: Sequence[Block], *, join: bool = False) -> None:
        """An assistant message; with `join` it goes on with one that ends the turns so far."""
        self._flush()
        calls = [block.id for block in blocks if isinstance(block, ToolUse)]
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == "assistant":
            self._order += calls
            if join:
                self._messages[-1] = Message("assistant", (*last.blocks, *blocks))
                return
        else:
            self._order = calls
        self._messages.append(Message("assistant", tuple(blocks)))

    def result(self, call: str, text: str, field: str, unknown: str) -> None:
        """The result of a call; `unknown` says in the dialect's words that there is no such."""
        if call not in self._order:
            raise refuse(field, unknown)
        if call in self._results:
            self.notes.add("dropped:repeated_result")
        self._results.setdefault(call, ToolResult(call, text))

    def conversation(self, tools: Sequence[Tool], field: str, start: Start) -> Conversation:
        """All of it. A request of system texts alone ends with the last one as its turn."""
        self._flush()
        if not self._messages and self._system:
            self._messages.append(Message("system", (Text(self._system.pop()),)))
        if not self._messages:
            raise refuse(field, "at least one message with content is required")
        return Conversation(tuple(self._system), tuple(tools), tuple(self._messages), start)

    def _flush(self) -> None:
        if not self._results:
            return
        found = list(self._results.values())
        ordered = sorted(found, key=lambda result: self._order.index(result.call))
        if ordered != found:
            self.notes.add("reordered_results")
        self._results = {}
        self._messages.append(Message("user", tuple(ordered)))
