"""GLM: role tokens begin turns and, drawn by the model, end answers.

An answer ends with the token that begins the next turn: `<|user|>`, or `<|observation|>` after
calls. The next prompt then goes on behind it. If the next turn is another one, the drawn token
stays where it is, as an empty turn: sampled tokens are never taken back.

The prompt opens thinking. Arguments have no types, so the tool's schema says what they are.
"""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from runtime.formats.codec import Mark, Piece
from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Tool,
    ToolResult,
    ToolUse,
)
from runtime.formats.families.base import RoleTurns, calls_of, joined_text, thoughts
from runtime.formats.families.reading import Body, ReadCall, Unreadable
from runtime.formats.families.values import dumps, function, read_value, write_value

USER, ASSISTANT, SYSTEM = "<|user|>", "<|assistant|>", "<|system|>"
OBSERVATION, ENDOFTEXT = "<|observation|>", "<|endoftext|>"
THINK, UNTHINK = "<think>", "</think>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
RESULT, RESULT_END = "<tool_response>", "</tool_response>"
_EFFORT = "Reasoning Effort: Max"
_TOOLS = (
    "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are"
    " provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_FORMAT: tuple[Piece, ...] = (
    "\n</tools>\n\nFor each function call, output the function name and arguments within the"
    " following XML format:\n",
    *(Mark(CALL), "{function-name}"),
    *(Mark(KEY), "{arg-key-1}", Mark(KEY_END), Mark(VALUE), "{arg-value-1}", Mark(VALUE_END)),
    *(Mark(KEY), "{arg-key-2}", Mark(KEY_END), Mark(VALUE), "{arg-value-2}", Mark(VALUE_END)),
    *("...", Mark(CALL_END)),
)


class Glm(RoleTurns):
    """The family `glm`."""

    renderer = "glm/1"
    stops = (USER, OBSERVATION, ENDOFTEXT)
    required = (USER, ASSISTANT, SYSTEM, OBSERVATION, THINK, UNTHINK, CALL, CALL_END, KEY, VALUE)
    call = (CALL, CALL_END)
    inner = (KEY, KEY_END, VALUE, VALUE_END)
    think = (THINK, UNTHINK)
    thinks = True
    opens_thinking = True
    unthought = ("", Mark(UNTHINK))

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        return _read_call(body, tools)

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        """Only what follows a name ends it: its first key, where it must have one."""
        needs = any(tool.name == name and tool.schema.get("required") for tool in tools)
        return [Mark(CALL), *([name] if name else []), *([Mark(KEY)] if needs else [])]

    def suffix(self, conversation: Conversation, start: int, last: str | None) -> list[Piece]:
        pieces = super().suffix(conversation, start, last)
        return pieces[1:] if last is not None and pieces[0] == Mark(last) else pieces

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        pieces: list[Piece] = [Mark("[gMASK]"), Mark("<sop>"), *self.system(_EFFORT)]
        if tools:
            listed = "\n".join(dumps(function(tool)) for tool in tools)
            pieces += [*self.system(f"{_TOOLS}{listed}"), *_FORMAT]
        return [*pieces, *(self.system("\n\n".join(system)) if system else [])]

    def generation(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(ASSISTANT), Mark(THINK)]

    def quiet(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(ASSISTANT), Mark(UNTHINK)]

    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        pieces: list[Piece] = [thoughts(blocks), Mark(UNTHINK), joined_text(blocks)]
        for call in calls_of(blocks):
            pieces += [Mark(CALL), call.name]
            for name, value in call.input.items():
                pieces += [Mark(KEY), name, Mark(KEY_END)]
                pieces += [Mark(VALUE), write_value(value), Mark(VALUE_END)]
            pieces.append(Mark(CALL_END))
        return pieces

    def stop(self, blocks: Sequence[Block]) -> str:
        return OBSERVATION if calls_of(blocks) else USER

    def user(self, text: str) -> list[Piece]:
        return [Mark(USER), text]

    def system(self, text: str) -> list[Piece]:
        return [Mark(SYSTEM), text]

    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        pieces: list[Piece] = [Mark(OBSERVATION)]
        for result, _ in results:
            pieces += [Mark(RESULT), result.text, Mark(RESULT_END)]
        return pieces

    def joint(self, last: str | None) -> list[Piece]:
        del last
        return []


def _read_call(body: Body, tools: Mapping[str, Tool]) -> ReadCall:
    """A name, then keys and values, each between its marks; line ends between them are free.

    Raises:
        Unreadable: it is not that.
    """
    parts = list(body)
    name = parts.pop(0) if parts else ""
    if isinstance(name, Mark) or not name.strip():
        raise Unreadable("the tool call has no name")
    name = name.strip()
    arguments: dict[str, JsonValue] = {}
    while True:
        _skip_blank(parts)
        if not parts:
            return ReadCall(name, arguments)
        key = _between(parts, KEY, KEY_END)
        _skip_blank(parts)
        value = _between(parts, VALUE, VALUE_END)
        if key in arguments:
            raise Unreadable(f"the argument {key} is given twice")
        arguments[key] = read_value(value, key, tools.get(name))


def _skip_blank(parts: list[Piece]) -> None:
    if parts and isinstance(parts[0], str) and not parts[0].strip():
        del parts[0]


def _between(parts: list[Piece], opens: str, closes: str) -> str:
    """Take the text between two marks."""
    match parts:
        case [Mark(token=first), Mark(token=last), *_] if (first, last) == (opens, closes):
            del parts[:2]
            return ""
        case [Mark(token=first), str(text), Mark(token=last), *_] if (first, last) == (
            opens,
            closes,
        ):
            del parts[:3]
            return text
        case _:
            raise Unreadable(f"the tool call has no {opens} where one is due")
