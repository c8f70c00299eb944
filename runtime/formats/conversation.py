"""A conversation in normal form: what a model reads, whatever dialect it came in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

type Role = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is read as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning of an assistant turn; `signature` is opaque and rendered by no family."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of an assistant turn."""

    id: str
    name: str
    input: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call returned."""

    call: str
    text: str


type Block = Text | Thinking | ToolUse | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One turn in normal form."""

    role: Role
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call; `schema` is its JSON Schema."""

    name: str
    description: str
    schema: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Start:
    """How the answer is to begin, as far as its prompt can make it.

    `thinking`: with it, without it, or as the model does (None). `call`: with a call of the tool
    of that name, or of any with an empty name; such an answer has no thinking.
    """

    thinking: bool | None = None
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is rendered: system texts, tools, turns, and how the answer is to begin."""

    system: tuple[str, ...]
    tools: tuple[Tool, ...]
    messages: tuple[Message, ...]
    start: Start = Start()
