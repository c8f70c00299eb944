"""DeepSeek.

    deepseek-v3.1   calls as `name, separator, JSON`; thinking is closed by the prompt, as the
                    model was trained for tools, so that of a foreign turn is left out; after
                    results it goes on without a new turn
    deepseek-v4     calls as `<｜DSML｜invoke>` with typed parameters; the prompt opens thinking

System turns between turns are bare text, as V4's template writes them.
"""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from runtime.formats.codec import Mark, Piece
from runtime.formats.conversation import Block, Message, Text, Tool, ToolResult, ToolUse
from runtime.formats.families.base import (
    RoleTurns,
    calls_of,
    ends_with_results,
    joined_text,
    thoughts,
)
from runtime.formats.families.reading import Body, ReadCall, Unreadable
from runtime.formats.families.values import dumps, function, read_object, write_value

BEGIN, END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, UNTHINK = "<think>", "</think>"
CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
OUTPUT, OUTPUT_END = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
DSML = "｜DSML｜"
_DSML_CALLS, _DSML_CALLS_END = "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"
_INVOKE, _INVOKE_END = "<｜DSML｜invoke", "</｜DSML｜invoke>"
_PARAMETER, _PARAMETER_END = "<｜DSML｜parameter", "</｜DSML｜parameter>"


class _DeepSeek(RoleTurns):
    stops = (END,)
    think = (THINK, UNTHINK)

    def user(self, text: str) -> list[Piece]:
        return [Mark(USER), text]

    def system(self, text: str) -> list[Piece]:
        return [text]

    def joint(self, last: str | None) -> list[Piece]:
        return [] if last == END else [Mark(END)]


class DeepSeekV31(_DeepSeek):
    """The family `deepseek-v3.1`."""

    renderer = "deepseek-v3.1/1"
    required = (BEGIN, END, USER, ASSISTANT, UNTHINK, CALLS, CALLS_END, CALL, SEPARATOR, CALL_END)
    call = (CALL, CALL_END)
    inner = (SEPARATOR,)
    section = (CALLS, CALLS_END)

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        del tools
        return _read_call(body)

    def joint(self, last: str | None) -> list[Piece]:
        return [*([Mark(CALLS_END)] if last == CALL_END else []), *super().joint(last)]

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        del tools
        return [Mark(CALLS), Mark(CALL), *([name, Mark(SEPARATOR)] if name else [])]

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        texts: list[Piece] = ["\n\n".join(system)] if system else []
        if tools:
            listed = "".join(
                f"\n\n### {tool.name}\nDescription: {tool.description}\n\n"
                f"Parameters: {dumps(dict(tool.schema))}"
                for tool in tools
            )
            head = "## Tools\nYou have access to the following tools:"
            texts += [*(["\n\n"] if system else []), f"{head}{listed}", *_V31_FORMAT]
        return [Mark(BEGIN), *texts]

    def generation(self, before: Message | None) -> list[Piece]:
        return [] if ends_with_results(before) else [Mark(ASSISTANT), Mark(UNTHINK)]

    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        pieces: list[Piece] = [joined_text(blocks)]
        calls = [
            piece
            for call in calls_of(blocks)
            for piece in (
                *(Mark(CALL), call.name, Mark(SEPARATOR)),
                *(dumps(dict(call.input)), Mark(CALL_END)),
            )
        ]
        return [*pieces, Mark(CALLS), *calls, Mark(CALLS_END)] if calls else pieces

    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        return [
            piece
            for result, _ in results
            for piece in (Mark(OUTPUT), result.text, Mark(OUTPUT_END))
        ]


class DeepSeekV4(_DeepSeek):
    """The family `deepseek-v4`."""

    renderer = "deepseek-v4/1"
    required = (BEGIN, END, USER, ASSISTANT, THINK, UNTHINK, DSML)
    thinks = True
    opens_thinking = True
    unthought = ("", Mark(UNTHINK))
    ends_calls = False
    """The end of a call is text, behind which nobody can tell that its row is still open."""
    call = (_INVOKE, _INVOKE_END)
    inner = (_PARAMETER, _PARAMETER_END)
    section = (_DSML_CALLS, _DSML_CALLS_END)

    def spelling(self, name: str) -> Sequence[Piece]:
        return _around_dsml(name) if DSML in name else super().spelling(name)

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        del tools
        return _read_invoke(body)

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        del tools
        head: list[Piece] = ["\n\n", *_around_dsml(_DSML_CALLS), "\n", *_around_dsml(_INVOKE)]
        return [*head, f' name="{name}">\n' if name else ' name="']

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        texts: list[Piece] = ["\n\n".join(system)] if system else []
        if tools:
            listed = "\n".join(dumps(function(tool)) for tool in tools)
            texts += ["\n\n", *_V4_FORMAT, listed, _V4_END]
        return [Mark(BEGIN), *texts]

    def generation(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(ASSISTANT), Mark(THINK)]

    def quiet(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(ASSISTANT), Mark(UNTHINK)]

    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        pieces: list[Piece] = [thoughts(blocks), Mark(UNTHINK), joined_text(blocks)]
        calls = calls_of(blocks)
        if not calls:
            return pieces
        pieces += ["\n\n", *_around_dsml(_DSML_CALLS), "\n"]
        for call in calls:
            pieces += _write_invoke(call)
        return [*pieces, *_around_dsml(_DSML_CALLS_END)]

    def turn(
        self, message: Message, before: Message | None, calls: Mapping[str, ToolUse]
    ) -> list[Piece]:
        results = [block for block in message.blocks if isinstance(block, ToolResult)]
        if not results:
            return super().turn(message, before, calls)
        pieces = self.results([(result, calls.get(result.call)) for result in results])
        if any(isinstance(block, Text) for block in message.blocks):
            pieces += ["\n\n", joined_text(message.blocks)]  # in the same turn
        return pieces

    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        texts = [f"<tool_result>{result.text}</tool_result>" for result, _ in results]
        return [Mark(USER), "\n\n".join(texts)]


def _read_call(body: Body) -> ReadCall:
    match list(body):
        case [str(name), Mark(token=token), str(arguments)] if token == SEPARATOR and name.strip():
            return ReadCall(name.strip(), read_object(arguments, "arguments"))
        case _:
            raise Unreadable("the tool call is not a name, a separator and arguments")


def _around_dsml(name: str) -> list[Piece]:
    """Markup with its control token apart."""
    before, _, after = name.partition(DSML)
    return [before, Mark(DSML), after]


def _write_invoke(call: ToolUse) -> list[Piece]:
    pieces: list[Piece] = [*_around_dsml(_INVOKE), f' name="{call.name}">\n']
    for index, (name, value) in enumerate(call.input.items()):
        kind = "true" if isinstance(value, str) else "false"
        pieces += ["\n"] if index else []
        pieces += [*_around_dsml(_PARAMETER), f' name="{name}" string="{kind}">']
        pieces += [write_value(value), *_around_dsml(_PARAMETER_END)]
    return [*pieces, "\n", *_around_dsml(_INVOKE_END), "\n"]


def _read_invoke(body: Body) -> ReadCall:
    """` name="…">`, then parameters, each between its marks.

    Raises:
        Unreadable: it is not that.
    """
    parts = list(body)
    name, rest = _attributes(parts.pop(0) if parts else "", ("name",))
    if rest.strip() or not name["name"]:
        raise Unreadable("there is text in the tool call outside of its parameters")
    arguments: dict[str, JsonValue] = {}
    while parts:
        match parts:
            case [str(space), *_] if not space.strip():
                del parts[0]
            case [Mark(token=first), str(text), Mark(token=last), *_] if (first, last) == (
                _PARAMETER,
                _PARAMETER_END,
            ):
                key, value = _parameter(text)
                if key in arguments:
                    raise Unreadable(f"the parameter {key} is given twice")
                arguments[key] = value
                del parts[:3]
            case _:
                raise Unreadable("there is text in the tool call outside of its parameters")
    return ReadCall(name["name"], arguments)


def _parameter(text: str) -> tuple[str, JsonValue]:
    found, value = _attributes(text, ("name", "string"))
    if found["string"] == "true":
        return found["name"], value
    if found["string"] != "false":
        raise Unreadable(f"the parameter {found['name']} says neither true nor false for string")
    wrapped = read_object(f'{{"value": {value}}}', f"parameter {found['name']}")
    if list(wrapped) != ["value"]:
        raise Unreadable(f"the parameter {found['name']} is not one value")
    return found["name"], wrapped["value"]


def _attributes(text: Piece, names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Attributes in their one order, and what follows the tag."""
    found: dict[str, str] = {}
    rest = text if isinstance(text, str) else ""
    for name in names:
        before, start, rest = rest.partition(f' {name}="')
        value, end, rest = rest.partition('"')
        if before or not start or not end or "\n" in value:
            raise Unreadable(f"a tag of the tool call has no {name}")
        found[name] = value
    if not rest.startswith(">"):
        raise Unreadable("a tag of the tool call is not closed")
    return found, rest[1:]


_V31_FORMAT: tuple[Piece, ...] = (
    "\n\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n",
    *(Mark(CALLS), Mark(CALL), "tool_call_name", Mark(SEPARATOR), "tool_call_arguments"),
    *(Mark(CALL_END), "{additional_tool_calls}", Mark(CALLS_END)),
    "\n\nWhere:\n\n- `tool_call_name` must be an exact match to one of the available tools\n"
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema"
    "\n- For multiple tool calls, chain them directly without separators or spaces\n",
)
_V4_FORMAT: tuple[Piece, ...] = (
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can"
    ' invoke tools by writing a "',
    *_around_dsml(_DSML_CALLS),
    '" block like the following:\n\n',
    *_around_dsml(_DSML_CALLS),
    "\n",
    *_around_dsml(_INVOKE),
    ' name="$TOOL_NAME">\n',
    *_around_dsml(_PARAMETER),
    ' name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE',
    *_around_dsml(_PARAMETER_END),
    "\n...\n",
    *_around_dsml(_INVOKE_END),
    "\n",
    *_around_dsml(_INVOKE),
    ' name="$TOOL_NAME2">\n...\n',
    *_around_dsml(_INVOKE_END),
    "\n",
    *_around_dsml(_DSML_CALLS_END),
    '\n\nString parameters should be specified as is and set `string="true"`. For all other types'
    " (numbers, booleans, arrays, objects), pass the value in JSON format and set"
    ' `string="false"`.\n\nIf thinking_mode is enabled (triggered by ',
    Mark(THINK),
    "), you MUST output your complete reasoning inside ",
    *(Mark(THINK), "...", Mark(UNTHINK)),
    " BEFORE any tool calls or final response.\n\nOtherwise, output directly after ",
    Mark(UNTHINK),
    " with tool calls or final response.\n\n### Available Tool Schemas\n\n",
)
_V4_END = (
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke"
    " tool calls.\n"
)
