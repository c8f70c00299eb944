"""ChatML with tools as SmolLM2 and Qwen write them.

No default system message is added: the content is what was sent. Tool specifications stand in
the system prompt, calls are `<tool_call>` with JSON, results are `<tool_response>` inside a
user turn. A system message between turns is a system turn of its own.

A call is a tool_use block only if its markup is closed and its JSON is whole and strict.
Anything else reaches the harness as text: never an error, never a call that was not made.
"""

import json
import re
from collections.abc import Sequence

from pydantic import JsonValue

from runtime.formats.codec import Mark, Piece
from runtime.formats.conversation import Message, Text, Tool, ToolResult, ToolUse
from runtime.formats.families.base import Parsed
from specs import canonical
from specs.errors import InvalidInput

_TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and"
    " arguments within "
)
_CALL_SHAPE = '\n{"name": <function-name>, "arguments": <args-json-object>}\n'
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_RESULT_OPEN, _RESULT_CLOSE = "<tool_response>", "</tool_response>"
_CALL = re.compile(f"{_OPEN}(.*?){_CLOSE}", re.DOTALL)


class ChatML:
    """The family `chatml`."""

    START, END = "<|im_start|>", "<|im_end|>"
    renderer = "chatml/1"
    end = END

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        content: list[Piece] = ["\n\n".join(system)] if system else []
        if tools:
            content += ["\n\n"] if system else []
            content += [_TOOLS_BEFORE, *(f"\n{_signature(tool)}" for tool in tools), _TOOLS_AFTER]
            content += [Mark(_OPEN), Mark(_CLOSE), " XML tags:\n"]
            content += [Mark(_OPEN), _CALL_SHAPE, Mark(_CLOSE)]
        return self._turn("system", content) if content else []

    def turns(self, messages: Sequence[Message]) -> list[Piece]:
        return [
            piece for message in messages for piece in self._turn(message.role, _content(message))
        ]

    def generation(self, prefill: str = "") -> list[Piece]:
        return [Mark(self.START), "assistant\n", prefill]

    def joint(self, *, ended: bool) -> list[Piece]:
        return ["\n"] if ended else [Mark(self.END), "\n"]

    def parse(self, text: str, *, call: str, tools: bool) -> Parsed:
        if not tools or _OPEN not in text:
            return Parsed([_text(text)] if text else [])
        content: list[JsonValue] = []
        errors: list[str] = []
        rest = 0
        pending = ""
        for match in _CALL.finditer(text):
            block, error = _read_call(match.group(1), f"toolu_{call[-32:]}{len(content):02x}")
            before = text[rest : match.start()]
            rest = match.end()
            if block is None:
                errors.append(error)
                pending += before + match.group(0)
                continue
            _add_text(content, pending + before)
            pending = ""
            content.append(block)
        pending += text[rest:]
        if _OPEN in text[rest:]:
            errors.append(f"{_OPEN} is not closed")
        _add_text(content, pending)
        return Parsed(content, "; ".join(errors)[:1000] or None)

    def _turn(self, role: str, content: Sequence[Piece]) -> list[Piece]:
        return [Mark(self.START), f"{role}\n", *content, Mark(self.END), "\n"]


def _content(message: Message) -> list[Piece]:
    parts: list[list[Piece]] = []
    for block in message.blocks:
        match block:
            case Text():
                parts.append([block.text])
            case ToolUse():
                spec = _dumps({"name": block.name, "arguments": dict(block.input)})
                parts.append([Mark(_OPEN), f"\n{spec}\n", Mark(_CLOSE)])
            case ToolResult():
                parts.append([Mark(_RESULT_OPEN), f"\n{block.text}\n", Mark(_RESULT_CLOSE)])
    return [
        piece
        for index, part in enumerate(parts)
        for piece in ([*part] if index == 0 else ["\n", *part])
    ]


def _signature(tool: Tool) -> str:
    function: dict[str, JsonValue] = {"name": tool.name, "parameters": dict(tool.schema)}
    if tool.description:
        function = {"name": tool.name, "description": tool.description, **function}
    return _dumps({"type": "function", "function": function})


def _dumps(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read_call(text: str, name: str) -> tuple[dict[str, JsonValue] | None, str]:
    """The tool_use block of one call's JSON, or None and the reason."""
    try:
        value = canonical.loads(text.strip(), what="tool call", allow_nul=True)
    except InvalidInput as error:
        return None, error.problem.detail
    if not isinstance(value, dict):
        return None, "the tool call is not an object"
    tool, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(tool, str) or not tool:
        return None, "the tool call has no name"
    if not isinstance(arguments, dict):
        return None, "the arguments of the tool call are not an object"
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}, ""


def _add_text(content: list[JsonValue], text: str) -> None:
    """Text around calls, without the line ends that only separate them."""
    text = text.strip("\n")
    if text.strip():
        content.append(_text(text))


def _text(text: str) -> dict[str, JsonValue]:
    return {"type": "text", "text": text}
