"""Kimi K2 (thinking): turns with a name, calls with an id that counts them.

A call's id is `functions.<name>:<n>`, and its result refers to it. The id that we mint ends with
that number, so a result can name the call as the model did; a foreign call counts from its place
in the conversation.
"""

import re
from collections.abc import Mapping, Sequence

from runtime.formats.codec import Mark, Piece
from runtime.formats.conversation import Block, Message, Tool, ToolResult, ToolUse
from runtime.formats.families.base import RoleTurns, calls_of, joined_text, thoughts
from runtime.formats.families.reading import Body, ReadCall, Unreadable
from runtime.formats.families.values import dumps, read_object, signature
from specs import canonical

END, MIDDLE = "<|im_end|>", "<|im_middle|>"
USER, ASSISTANT, SYSTEM = "<|im_user|>", "<|im_assistant|>", "<|im_system|>"
THINK, UNTHINK = "<think>", "</think>"
CALLS, CALLS_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = (
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
_DEFAULT_SYSTEM = "You are Kimi, an AI assistant created by Moonshot AI."
_ID = re.compile(r"\s*functions\.([^:\s]+):(\d{1,6})\s*")
_MINTED = re.compile(r"toolu_[0-9a-f]{34,}_(\d{1,6})")


class KimiK2(RoleTurns):
    """The family `kimi-k2`."""

    renderer = "kimi-k2/1"
    stops = (END, "[EOS]")
    required = (END, MIDDLE, USER, ASSISTANT, SYSTEM, CALLS, CALLS_END, CALL, ARGUMENTS, CALL_END)
    call = (CALL, CALL_END)
    inner = (ARGUMENTS,)
    section = (CALLS, CALLS_END)
    think = (THINK, UNTHINK)
    thinks = True
    unthought = (Mark(THINK), "", Mark(UNTHINK))

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        del tools
        return _read_call(body)

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        """The model counts its calls itself."""
        del tools
        return [Mark(CALLS), Mark(CALL), *([f"functions.{name}:"] if name else [])]

    def turn(
        self, message: Message, before: Message | None, calls: Mapping[str, ToolUse]
    ) -> list[Piece]:
        named = {
            number: ToolUse(call_id(call, place), call.name, call.input)
            for place, (number, call) in enumerate(calls.items())
        }
        blocks = tuple(
            named[block.id] if isinstance(block, ToolUse) else block for block in message.blocks
        )
        return super().turn(Message(message.role, blocks), before, named)

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        pieces: list[Piece] = []
        if tools:
            listed = canonical_list(tools)
            pieces += _turn(SYSTEM, "tool_declare", [listed])
        return [*pieces, *_turn(SYSTEM, "system", ["\n\n".join(system) or _DEFAULT_SYSTEM])]

    def generation(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(ASSISTANT), "assistant", Mark(MIDDLE)]

    def quiet(self, before: Message | None) -> list[Piece]:
        return [*self.generation(before), Mark(THINK), Mark(UNTHINK)]

    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        pieces = [Mark(THINK), thoughts(blocks), Mark(UNTHINK), joined_text(blocks)]
        calls = [
            piece
            for index, call in enumerate(calls_of(blocks))
            for piece in (
                *(Mark(CALL), call_id(call, index), Mark(ARGUMENTS)),
                *(dumps(dict(call.input)), Mark(CALL_END)),
            )
        ]
        return [*pieces, Mark(CALLS), *calls, Mark(CALLS_END)] if calls else pieces

    def user(self, text: str) -> list[Piece]:
        return _turn(USER, "user", [text])

    def system(self, text: str) -> list[Piece]:
        return _turn(SYSTEM, "system", [text])

    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        pieces: list[Piece] = []
        for result, call in results:
            name, number = (call.name, call.id) if call is not None else ("tool", result.call)
            pieces += _turn(SYSTEM, name, [f"## Return of {number}\n{result.text}"])
        return pieces

    def joint(self, last: str | None) -> list[Piece]:
        if last == CALL_END:
            return [Mark(CALLS_END), Mark(END)]
        return [] if last == END else [Mark(END)]


def call_id(call: ToolUse, index: int) -> str:
    """A call's id as the model writes it; `index` where the id is not one that we minted."""
    minted = _MINTED.fullmatch(call.id)
    native = _ID.fullmatch(call.id)
    if native is not None and native.group(1) == call.name:
        return call.id
    return f"functions.{call.name}:{minted.group(1) if minted else index}"


def canonical_list(tools: Sequence[Tool]) -> str:
    """Tool specifications as the model was trained on them: compact, keys sorted."""
    listed = canonical.canonical_bytes([signature(tool) for tool in tools])
    return listed.decode()


def _turn(role: str, name: str, content: Sequence[Piece]) -> list[Piece]:
    return [Mark(role), name, Mark(MIDDLE), *content, Mark(END)]


def _read_call(body: Body) -> ReadCall:
    match list(body):
        case [str(number), Mark(token=token), str(arguments)] if token == ARGUMENTS:
            found = _ID.fullmatch(number)
            if found is None:
                raise Unreadable("the tool call's id is not functions.<name>:<number>")
            read = read_object(arguments, "arguments")
            return ReadCall(found.group(1), read, tag=f"_{int(found.group(2))}")
        case _:
            raise Unreadable("the tool call is not an id and arguments")
