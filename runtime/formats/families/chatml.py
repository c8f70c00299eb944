"""ChatML with tools as SmolLM2 and Qwen 2.5 write them.

No default system message is added: the content is what was sent. Tool specifications stand in
the system prompt, calls are `<tool_call>` with JSON, results are `<tool_response>` inside a
user turn. A system message between turns is a system turn of its own. Its models do not think:
thinking of a foreign turn is left out.
"""

from collections.abc import Mapping, Sequence

from runtime.formats.codec import Mark, Piece
from runtime.formats.conversation import (
    Block,
    Message,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from runtime.formats.families.base import Template
from runtime.formats.families.reading import Body, ReadCall
from runtime.formats.families.values import dumps, read_json_call, signature

_TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and"
    " arguments within "
)
_CALL_SHAPE = '\n{"name": <function-name>, "arguments": <args-json-object>}\n'
OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"
START, END = "<|im_start|>", "<|im_end|>"


class ChatML(Template):
    """The family `chatml`."""

    renderer = "chatml/1"
    stops = (END, "<|endoftext|>")
    required = (START, END)
    call = (OPEN, CLOSE)

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        return read_json_call(body, tools)

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        content: list[Piece] = ["\n\n".join(system)] if system else []
        if tools:
            content += ["\n\n"] if system else []
            content += tool_prompt(tools)
        return turn("system", content) if content else []

    def generation(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(START), "assistant\n"]

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        del tools
        return json_call_start(name)

    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        return _content(blocks)

    def joint(self, last: str | None) -> list[Piece]:
        return ["\n"] if last == END else [Mark(END), "\n"]

    def turn(
        self, message: Message, before: Message | None, calls: Mapping[str, ToolUse]
    ) -> list[Piece]:
        del before, calls
        return turn(message.role, _content(message.blocks))


def turn(role: str, content: Sequence[Piece]) -> list[Piece]:
    """A ChatML turn."""
    return [Mark(START), f"{role}\n", *content, Mark(END), "\n"]


def tool_prompt(tools: Sequence[Tool]) -> list[Piece]:
    """Tool specifications for the system turn, with calls as JSON."""
    return [
        _TOOLS_BEFORE,
        *(f"\n{dumps(signature(tool))}" for tool in tools),
        _TOOLS_AFTER,
        *(Mark(OPEN), Mark(CLOSE), " XML tags:\n"),
        *(Mark(OPEN), _CALL_SHAPE, Mark(CLOSE)),
    ]


def json_call(call: ToolUse) -> list[Piece]:
    """A call in its markup."""
    spec = dumps({"name": call.name, "arguments": dict(call.input)})
    return [Mark(OPEN), f"\n{spec}\n", Mark(CLOSE)]


def json_call_start(name: str) -> list[Piece]:
    """The beginning of a call; without a name, of any."""
    return [Mark(OPEN), f'\n{{"name": {dumps(name)}, "arguments":' if name else '\n{"name":']


def tool_response(result: ToolResult) -> list[Piece]:
    """A result in its markup."""
    return [Mark(RESULT_OPEN), f"\n{result.text}\n", Mark(RESULT_CLOSE)]


def lines(parts: Sequence[Sequence[Piece]]) -> list[Piece]:
    """The parts, a line apart."""
    return [
        piece
        for index, part in enumerate(parts)
        for piece in ([*part] if index == 0 else ["\n", *part])
    ]


def _content(blocks: Sequence[Block]) -> list[Piece]:
    parts: list[list[Piece]] = []
    for block in blocks:
        match block:
            case Text():
                parts.append([block.text])
            case ToolUse():
                parts.append(json_call(block))
            case ToolResult():
                parts.append(tool_response(block))
            case Thinking():
                continue
    return lines(parts)
