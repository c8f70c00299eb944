"""The independent renderer: the same conversation through `tml-renderers`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tml_renderers import chat

from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.formats.codec import Codec, Mark, Piece
from runtime.formats.conversation import (
    Conversation,
    Message,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from runtime.formats.families import Family, family_named
from runtime.formats.families.values import dumps
from specs.model import FamilyName


@dataclass(frozen=True)
class Difference:
    """Where we render otherwise on purpose: a pattern in the oracle's rendering, and ours."""

    why: str
    pattern: str
    ours: str


@dataclass(frozen=True)
class Case:
    """A family beside the renderer that it is compared with."""

    family: FamilyName
    tokenizer: str
    renderer: Callable[[], Any]
    differences: tuple[Difference, ...] = ()
    declares_tools: bool = True
    late_system: bool = True
    """Whether the renderer takes system messages between turns at all."""


@cache
def adapter(name: FamilyName, tokenizer: str) -> tuple[Family, Codec]:
    codec = load_codec(carried_tokenizer(tokenizer))
    return family_named(name, codec, model=f"a test of {name}"), codec


@cache
def renderer(make: Callable[[], Any]) -> Any:
    return make()


def rendered(case: Case, conversation: Conversation) -> list[int]:
    """The oracle's prompt, with our differences applied."""
    spans, _ = renderer(case.renderer).render_for_completion(_native(conversation))
    codec = adapter(case.family, case.tokenizer)[1]
    text = marked(codec, [number for span in spans for number in span.span.int_tokens])
    for difference in case.differences:
        text = re.sub(difference.pattern, difference.ours, text, flags=re.DOTALL)
    return list(codec.encode(_unmarked(text)))


def marked(codec: Codec, ids: Sequence[int]) -> str:
    """The text of ids with control tokens in ⟦⟧, which the samples do not hold."""
    return "".join(
        f"⟦{piece.token}⟧" if isinstance(piece, Mark) else piece for piece in codec.pieces(ids)
    )


def _unmarked(text: str) -> list[Piece]:
    return [
        Mark(part[1:-1]) if part.startswith("⟦") else part
        for part in re.split(r"(⟦[^⟧]*⟧)", text)
        if part
    ]


def _native(conversation: Conversation) -> list[Any]:
    messages = [{"role": "system", "content": text} for text in conversation.system]
    names = {
        block.id: block.name
        for message in conversation.messages
        for block in message.blocks
        if isinstance(block, ToolUse)
    }
    for message in conversation.messages:
        messages += _dicts(message, names)
    listed: Any = chat.MessageList.from_oss_messages(messages)
    native: list[Any] = list(listed)
    return [*([_declared(conversation.tools)] if conversation.tools else []), *native]


def _declared(tools: Sequence[Tool]) -> Any:
    specs = [
        chat.ToolSpecJson("function", tool.name, tool.description, dict(tool.schema))
        for tool in tools
    ]
    author = chat.Author(chat.AuthorKind.System)
    return chat.Message(content=chat.ToolDeclareJson(specs), author=author)


def _dicts(message: Message, names: dict[str, str]) -> list[dict[str, Any]]:
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    results = [
        {
            "role": "tool",
            "tool_call_id": block.call,
            "name": names[block.call],
            "content": block.text,
        }
        for block in message.blocks
        if isinstance(block, ToolResult)
    ]
    if message.role != "assistant":
        text = [{"role": message.role, "content": "\n".join(texts)}] if texts else []
        return [*results, *text]
    parts = [
        {"type": "thinking", "thinking": block.text}
        for block in message.blocks
        if isinstance(block, Thinking)
    ]
    parts += [{"type": "text", "text": "\n".join(texts)}] if texts else []
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": dumps(dict(block.input))},
        }
        for block in message.blocks
        if isinstance(block, ToolUse)
    ]
    said: dict[str, Any] = {"role": "assistant", "content": parts or ""}
    return [{**said, "tool_calls": calls} if calls else said]
