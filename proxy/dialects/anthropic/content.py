"""Content blocks of the Messages API in normal form: what a text model reads, and a record.

Models here read text. An image or a document that is no text is replaced by a marker that
says what stood there, so that the model knows and the harness goes on; so are the blocks of
server tools, which nobody runs here. Every replacement is deterministic and named in `notes`.
"""

from collections.abc import Sequence

from proxy.dialects.anthropic import wire
from proxy.dialects.body import refuse
from runtime.formats.conversation import Block, Role, Text, Thinking, ToolResult, ToolUse
from specs.errors import ErrorCode, InvalidInput

EMPTY_ERROR = "Error: the tool failed and returned no text."
_SERVER_PARTS = frozenset(
    {"server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload"}
)
_SERVER_RESULT = "_tool_result"


class Blocks:
    """Reads the blocks of one request; what it changed is in `notes`."""

    def __init__(self, notes: set[str]) -> None:
        self.notes = notes

    def turn(self, content: str | Sequence[wire.Part], role: Role, field: str) -> list[Block]:
        """The blocks of one message."""
        if isinstance(content, str):
            return [Text(content)] if content else []
        blocks: list[Block] = []
        for index, part in enumerate(content):
            blocks += self._blocks(part, role, f"{field}.{index}")
        return blocks

    def texts(self, content: str | Sequence[wire.Part], field: str, where: str) -> list[str]:
        """The texts of blocks that hold nothing but what can be read."""
        if isinstance(content, str):
            return [content]
        found: list[str] = []
        for index, part in enumerate(content):
            text = self._text(part, f"{field}.{index}")
            if text is None:
                raise unsupported(part.type, f"{field}.{index}", where)
            found.append(text)
        return found

    def _blocks(self, part: wire.Part, role: Role, field: str) -> list[Block]:
        match part:
            case wire.ToolUsePart() if role == "assistant":
                return [ToolUse(part.id, part.name, part.input)]
            case wire.ThinkingPart() if role == "assistant":
                return [Thinking(part.thinking, part.signature)] if part.thinking else []
            case wire.ToolResultPart() if role == "user":
                return [ToolResult(part.tool_use_id, self._result(part, field))]
            case wire.OtherPart() if part.type == "redacted_thinking" and role == "assistant":
                self.notes.add("dropped:redacted_thinking")
                return []
            case wire.OtherPart() if _of_a_server(part.type):
                self.notes.add(f"dropped:{part.type[:64]}")
                return []
            case _:
                text = self._text(part, field)
                if text is None:
                    raise unsupported(part.type, field, f" in a turn of the {role}")
                return [Text(text)] if text else []

    def _result(self, part: wire.ToolResultPart, field: str) -> str:
        texts = self.texts(part.content or "", f"{field}.content", " in a tool result")
        text = "\n".join(texts)
        if part.is_error:
            # No chat format has a place for it; tools say in their text what went wrong.
            self.notes.add("dropped:is_error")
            return text or EMPTY_ERROR
        return text

    def _text(self, part: wire.Part, field: str) -> str | None:
        """What a model reads of a part, or None if it is no content to read."""
        match part:
            case wire.TextPart():
                return part.text
            case wire.MediaPart():
                return self._media(part, field)
            case wire.SearchResultPart():
                texts = self.texts(part.content, f"{field}.content", " in a search result")
                return "\n".join([part.title, part.source, *texts])
            case wire.ToolReferencePart():
                self.notes.add("replaced:tool_reference")
                return f"[tool: {part.tool_name}]"
            case _:
                return None

    def _media(self, part: wire.MediaPart, field: str) -> str:
        source = part.source
        head = [text for text in (part.title, part.context) if text]
        if part.type == "document" and source.type == "text":
            return "\n".join([*head, source.data])
        if part.type == "document" and source.type == "content":
            content = self.texts(source.content, f"{field}.source.content", " in a document")
            return "\n".join([*head, *content])
        self.notes.add(f"replaced:{part.type}")
        kind = source.media_type[:64] or source.type
        return "\n".join([*head, f"[{part.type} not shown: {kind}; this model reads text only]"])


def unsupported(kind: str, field: str, where: str) -> InvalidInput:
    """A block that has no meaning where it stands."""
    return refuse(field, f"`{kind[:64]}` is not supported{where}", ErrorCode.UNSUPPORTED_CONTENT)


def _of_a_server(kind: str) -> bool:
    return kind in _SERVER_PARTS or kind.endswith(_SERVER_RESULT)
