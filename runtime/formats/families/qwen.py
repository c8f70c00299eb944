"""Qwen: ChatML with control tokens for calls, results and thinking.

    qwen3          calls are JSON; the model opens its thinking itself
    qwen3-coder    calls are `<function=…><parameter=…>`; no thinking
    qwen3.5        calls as qwen3-coder; the prompt opens thinking

Results stand in a user turn of their own. Arguments between XML-like tags have no types, so the
tool's schema says what they are; a tag inside a value that looks like the end of the value ends it.
As the published templates have it, a truth value or nothing is written there as Python says it
(`True`, `None`), and a blank line stands between text and the first call.
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from runtime.formats.codec import Mark, Piece
from runtime.formats.conversation import Block, Message, Tool, ToolResult, ToolUse
from runtime.formats.families import chatml
from runtime.formats.families.base import RoleTurns, calls_of, joined_text, thoughts
from runtime.formats.families.chatml import CLOSE, END, OPEN, START
from runtime.formats.families.reading import Body, ReadCall, Unreadable
from runtime.formats.families.values import (
    dumps,
    read_json_call,
    read_value,
    signature,
    text_of,
)

THINK, UNTHINK = "<think>", "</think>"
_REMINDER = (
    "\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner"
    " <function=...></function> block must be nested within "
)
_REMINDER_REST = (
    " XML tags\n- Required parameters MUST be specified\n- You may provide optional reasoning for"
    " your function call in natural language BEFORE the function call, but NOT after\n- If there is"
    " no function call available, answer the question like normal with your current knowledge and"
    " do not tell the user about function calls\n</IMPORTANT>"
)
_EXAMPLE = (
    "\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
    "multiple lines\n</parameter>\n</function>\n"
)
_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(
    r"\s*<parameter=([^<>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL
)


class Qwen3(RoleTurns):
    """The family `qwen3`."""

    renderer = "qwen3/1"
    stops = (END, "<|endoftext|>")
    required = (START, END, OPEN, CLOSE, THINK, UNTHINK)
    call = (OPEN, CLOSE)
    think = (THINK, UNTHINK)
    thinks = True
    gap = "\n"
    """Between the text of an answer and its first call."""

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        return read_json_call(body, tools)

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        del tools
        return chatml.json_call_start(name)

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        content: list[Piece] = ["\n\n".join(system)] if system else []
        if tools:
            content += [*(["\n\n"] if system else []), *chatml.tool_prompt(tools)]
        return chatml.turn("system", content) if content else []

    def generation(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(START), "assistant\n"]

    def quiet(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(START), "assistant\n", Mark(THINK), "\n\n", Mark(UNTHINK), "\n\n"]

    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        text = joined_text(blocks)
        calls = chatml.lines([self.write_call(call) for call in calls_of(blocks)])
        gap = [self.gap] if text and calls else []
        return [*self.thought(thoughts(blocks)), *([text] if text else []), *gap, *calls]

    def thought(self, text: str) -> list[Piece]:
        """Thinking as the model writes it."""
        return [Mark(THINK), f"\n{text}\n", Mark(UNTHINK), "\n\n"] if text else []

    def write_call(self, call: ToolUse) -> list[Piece]:
        """A call with its marks."""
        return chatml.json_call(call)

    def user(self, text: str) -> list[Piece]:
        return chatml.turn("user", [text])

    def system(self, text: str) -> list[Piece]:
        return chatml.turn("system", [text])

    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        parts = [chatml.tool_response(result) for result, _ in results]
        return chatml.turn("user", chatml.lines(parts))

    def joint(self, last: str | None) -> list[Piece]:
        return ["\n"] if last == END else [Mark(END), "\n"]


class _Functions(Qwen3):
    """What both families of `<function=…>` share."""

    gap = "\n\n"

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        return read_function(body, tools)

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        del tools
        return [Mark(OPEN), f"\n<function={name}>\n" if name else "\n<function"]

    def write_call(self, call: ToolUse) -> list[Piece]:
        return write_function(call)


class QwenCoder(_Functions):
    """The family `qwen3-coder`."""

    renderer = "qwen3-coder/2"
    required = (START, END, OPEN, CLOSE)
    think = None
    thinks = False

    def quiet(self, before: Message | None) -> list[Piece]:
        return self.generation(before)

    def thought(self, text: str) -> list[Piece]:
        del text
        return []

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        if not tools:
            return chatml.turn("system", ["\n\n".join(system)]) if system else []
        first = "\n\n".join(system) or _CODER_SYSTEM
        listed = "".join(_coder_tool(tool) for tool in tools)
        head = f"{first}\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>"
        return chatml.turn("system", [f"{head}{listed}\n</tools>", *_FORMAT])

    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        parts = [[*chatml.tool_response(result), "\n"] for result, _ in results]
        return chatml.turn("user", [piece for part in parts for piece in part])


class Qwen35(_Functions):
    """The family `qwen3.5`."""

    renderer = "qwen3.5/2"
    opens_thinking = True
    unthought = ("\n", Mark(UNTHINK), "\n\n")

    def generation(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(START), "assistant\n", Mark(THINK), "\n"]

    def thought(self, text: str) -> list[Piece]:
        return [f"{text}\n", Mark(UNTHINK), "\n\n"]

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        content: list[Piece] = []
        if tools:
            listed = "".join(f"\n{dumps(signature(tool))}" for tool in tools)
            head = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
            content = [f"{head}{listed}\n</tools>", *_FORMAT]
        if system:
            content += [*(["\n\n"] if tools else []), "\n\n".join(system)]
        return chatml.turn("system", content) if content else []


_CODER_SYSTEM = (
    "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."
)
_FORMAT: tuple[Piece, ...] = (
    "\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n",
    Mark(OPEN),
    _EXAMPLE,
    Mark(CLOSE),
    _REMINDER,
    Mark(OPEN),
    Mark(CLOSE),
    _REMINDER_REST,
)


def write_function(call: ToolUse) -> list[Piece]:
    """A call as `<function=…>`."""
    values = "".join(
        f"<parameter={name}>\n{_shown(value)}\n</parameter>\n" for name, value in call.input.items()
    )
    return [Mark(OPEN), f"\n<function={call.name}>\n{values}</function>\n", Mark(CLOSE)]


def read_function(body: Body, tools: Mapping[str, Tool]) -> ReadCall:
    """A call `<function=…>` between its marks.

    Raises:
        Unreadable: it is none.
    """
    found = _FUNCTION.fullmatch(text_of(body))
    if found is None:
        raise Unreadable("the tool call is no whole <function=…>")
    name, rest = found.group(1), found.group(2)
    arguments: dict[str, JsonValue] = {}
    place = 0
    while match := _PARAMETER.match(rest, place):
        key = match.group(1)
        if key in arguments:
            raise Unreadable(f"the parameter {key} is given twice")
        arguments[key] = read_value(match.group(2), key, tools.get(name))
        place = match.end()
    if rest[place:].strip():
        raise Unreadable("there is text between the parameters of the tool call")
    return ReadCall(name, arguments)


def _coder_tool(tool: Tool) -> str:
    """A tool as Qwen3-Coder's template lists it."""
    lines = ["", "<function>", f"<name>{tool.name}</name>"]
    if tool.description:
        lines.append(f"<description>{tool.description.strip()}</description>")
    lines.append("<parameters>")
    properties = tool.schema.get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        fields = schema if isinstance(schema, dict) else {}
        lines += ["<parameter>", f"<name>{name}</name>"]
        if "type" in fields:
            lines.append(f"<type>{fields['type']}</type>")
        if "description" in fields:
            lines.append(f"<description>{str(fields['description']).strip()}</description>")
        lines += [*_extra(fields, ("name", "type", "description")), "</parameter>"]
    lines += [*_extra(tool.schema, ("type", "properties")), "</parameters>", "</function>"]
    return "\n".join(lines)


def _extra(fields: Mapping[str, JsonValue], handled: Sequence[str]) -> list[str]:
    return [
        f"<{key}>{_shown(value)}</{key}>" for key, value in fields.items() if key not in handled
    ]


def _shown(value: JsonValue) -> str:
    """What has parts as JSON, everything else as Python says it."""
    return dumps(value) if isinstance(value, dict | list) else str(value)
