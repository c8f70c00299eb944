"""gpt-oss: Harmony, where an answer is a row of messages on channels.

    <|channel|>analysis<|message|>thinking<|end|><|start|>assistant<|channel|>final<|message|>…

`analysis` is thinking, `final` and `commentary` without a recipient are text, and a message to
`functions.<name>` is a call, which `<|call|>` ends. An answer holds one call at most, since the
call ends it; several rendered calls follow one another. The system message names no date, so
that equal input gives equal tokens. A system turn between turns is a developer message.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from runtime.formats.codec import Mark, Piece, spell
from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from runtime.formats.families.base import RoleTurns, calls_of
from runtime.formats.families.reading import (
    Body,
    Content,
    Delta,
    Parsed,
    ReadCall,
    Reader,
    Unreadable,
)
from runtime.formats.families.values import dumps, read_object

START, END, RETURN, CALL = "<|start|>", "<|end|>", "<|return|>", "<|call|>"
CHANNEL, MESSAGE, CONSTRAIN = "<|channel|>", "<|message|>", "<|constrain|>"
_SYSTEM = (
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n\n"
    "Reasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included"
    " for every message."
)
_CALLS = "\nCalls to these tools must go to the commentary channel: 'functions'."
_RECIPIENT = re.compile(r"to=(\S+)")


class Harmony(RoleTurns):
    """The family `gpt-oss`."""

    renderer = "gpt-oss/1"
    stops = (RETURN, CALL, "<|endoftext|>")
    required = (START, END, RETURN, CALL, CHANNEL, MESSAGE)
    call = (MESSAGE, CALL)
    inner = (START, END, RETURN, CHANNEL, CONSTRAIN)
    thinks = True

    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        del tools
        return _read_call(body)

    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        del tools
        if not name:
            return [" to=functions"]
        return [f" to=functions.{name}", Mark(CHANNEL), "commentary json", Mark(MESSAGE)]

    def unenforced(self, conversation: Conversation) -> frozenset[str]:
        """A channel that is closed beforehand would take the calls with it."""
        start = conversation.start
        vain = {"thinking"} if start.thinking is False and start.call is None else set[str]()
        return super().unenforced(conversation) | vain

    def reader(
        self,
        *,
        call: str,
        tools: Sequence[Tool],
        prefilled: bool = False,
        begun: Sequence[Piece] | None = None,
    ) -> Reader:
        reader = _Reader(call=call, tools=tools, prefilled=prefilled)
        reader.feed(begun or ())
        return reader

    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        pieces = _message("system", _SYSTEM + (_CALLS if tools else ""))
        text = _instructions("\n\n".join(system)) if system else ""
        text += _declared(tools) if tools else ""
        return [*pieces, *(_message("developer", text) if text else [])]

    def generation(self, before: Message | None) -> list[Piece]:
        del before
        return [Mark(START), "assistant"]

    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        """Messages without the end of the last one."""
        channel = "commentary" if calls_of(blocks) else "final"
        rows: list[list[Piece]] = []
        for block in blocks:
            match block:
                case Thinking():
                    rows.append([Mark(CHANNEL), "analysis", Mark(MESSAGE), block.text])
                case Text():
                    rows.append([Mark(CHANNEL), channel, Mark(MESSAGE), block.text])
                case ToolUse():
                    rows.append(
                        [
                            *(f" to=functions.{block.name}", Mark(CHANNEL), "commentary json"),
                            *(Mark(MESSAGE), dumps(dict(block.input))),
                        ]
                    )
                case ToolResult():
                    continue
        rows = rows or [[Mark(CHANNEL), channel, Mark(MESSAGE)]]
        ends = [CALL if isinstance(block, ToolUse) else END for block in blocks]
        pieces = list(rows[0])
        for row, end in zip(rows[1:], ends, strict=False):
            pieces += [Mark(end), Mark(START), "assistant", *row]
        return pieces

    def stop(self, blocks: Sequence[Block]) -> str:
        return CALL if calls_of(blocks) else RETURN

    def turn(
        self, message: Message, before: Message | None, calls: Mapping[str, ToolUse]
    ) -> list[Piece]:
        if message.role != "assistant" or not calls_of(message.blocks):
            return super().turn(message, before, calls)
        return [*self.generation(before), *self.said(message.blocks), Mark(CALL)]

    def user(self, text: str) -> list[Piece]:
        return _message("user", text)

    def system(self, text: str) -> list[Piece]:
        return _message("developer", _instructions(text))

    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        pieces: list[Piece] = []
        for result, call in results:
            name = f"functions.{call.name}" if call is not None else "functions.tool"
            pieces += [Mark(START), f"{name} to=assistant", Mark(CHANNEL), "commentary"]
            pieces += [Mark(MESSAGE), dumps(result.text), Mark(END)]
        return pieces

    def joint(self, last: str | None) -> list[Piece]:
        return [] if last in (RETURN, CALL) else [Mark(END)]


class _Reader:
    """Reads messages: a header up to `<|message|>`, then a body up to its end."""

    def __init__(self, *, call: str, tools: Sequence[Tool], prefilled: bool) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._content = Content(call)
        self._header: list[Piece] | None = None if prefilled else []
        self._channel = "final"
        self._recipient = ""
        self._body: list[Piece] = []
        self._errors: list[str] = []

    @property
    def calls(self) -> int:
        return self._content.calls

    def feed(self, pieces: Iterable[Piece]) -> list[Delta]:
        for piece in pieces:
            self._read(piece)
        return self._content.take()

    def close(self) -> Parsed:
        if self._header is None:
            if self._recipient:
                self._errors.append("the tool call is not ended")
                self._give_back()
        elif spell(self._header).strip() not in ("", START, f"{START}assistant"):
            self._content.text(spell(self._header))
        return Parsed(self._content.close(), "; ".join(self._errors)[:1000] or None)

    def _read(self, piece: Piece) -> None:
        token = piece.token if isinstance(piece, Mark) else ""
        if self._header is not None:
            if token == MESSAGE:
                self._open(self._header)
            elif token in (END, RETURN, CALL, "<|endoftext|>"):
                self._end_header()
            else:
                self._header.append(piece)
        elif token in (END, RETURN, CALL, "<|endoftext|>"):
            self._end(token)
        elif self._recipient:
            self._body.append(piece)
        elif self._channel == "analysis":
            self._content.thinking(spell([piece]))
        else:
            self._content.text(spell([piece]))

    def _open(self, header: list[Piece]) -> None:
        """A message begins; its header says the channel, and whom it is for."""
        text = spell(header)
        found = _RECIPIENT.search(text)
        recipient = found.group(1).partition("<")[0] if found else ""
        callable_ = recipient.startswith("functions.") and bool(self._tools)
        self._recipient = recipient.removeprefix("functions.") if callable_ else ""
        _, _, rest = text.partition(CHANNEL)
        self._channel = "analysis" if rest.startswith("analysis") else "final"
        self._head, self._header = text, None
        self._body = []

    def _end_header(self) -> None:
        """A message that ends before it begins is text."""
        assert self._header is not None
        if spell(self._header).strip() not in ("", START, f"{START}assistant"):
            self._content.text(spell(self._header))
        self._header = []

    def _end(self, token: str) -> None:
        if self._recipient and token == CALL:
            try:
                self._content.call(_read_call([self._recipient, *self._body]))
            except Unreadable as reason:
                self._errors.append(str(reason))
                self._give_back()
        elif self._recipient:
            self._errors.append(f"the tool call is ended by {token}")
            self._give_back()
        self._content.end()
        self._header, self._recipient = [], ""

    def _give_back(self) -> None:
        """An unreadable call is text, as it was written."""
        self._content.text(spell([self._head, Mark(MESSAGE), *self._body]))

    _head = ""


def _read_call(body: Body) -> ReadCall:
    name, *rest = body
    if any(isinstance(piece, Mark) for piece in rest):
        raise Unreadable("a control token inside of a tool call")
    return ReadCall(spell([name]), read_object(spell(rest), "arguments"))


def _message(role: str, text: str) -> list[Piece]:
    return [Mark(START), role, Mark(MESSAGE), text, Mark(END)]


def _instructions(text: str) -> str:
    return f"# Instructions\n\n{text}\n\n"


def _declared(tools: Sequence[Tool]) -> str:
    parts: list[str] = []
    for tool in tools:
        described = "".join(f"// {line}\n" for line in tool.description.split("\n") if line)
        properties = tool.schema.get("properties")
        fields = _fields(tool.schema)
        shape = f"(_: {{\n{fields}\n}}) => any" if properties else "() => any"
        parts.append(f"{described}type {tool.name} = {shape};")
    listed = "\n\n".join(parts)
    space = "namespace functions"
    return f"# Tools\n\n## functions\n\n{space} {{\n\n{listed}\n\n}} // {space}"


def _fields(schema: Mapping[str, JsonValue]) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    lines: list[str] = []
    for name, field in properties.items() if isinstance(properties, dict) else ():
        described = field.get("description") if isinstance(field, dict) else None
        if isinstance(described, str) and described:
            lines += [f"// {line}" for line in described.split("\n")]
        lines.append(f"{name}{'' if name in needed else '?'}: {_type(field)},")
    return "\n".join(lines)


def _type(schema: JsonValue) -> str:
    """A JSON Schema as TypeScript, as far as the family's own templates go."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(listed := schema.get("enum"), list):
        return " | ".join(dumps(one) for one in listed)
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            return " | ".join(_type(option) for option in options)
    match schema.get("type"):
        case "string" | "boolean" | "null" as same:
            return same
        case "integer" | "number":
            return "number"
        case "array":
            return f"{_type(schema.get('items'))}[]"
        case "object":
            return f"{{\n{_fields(schema)}\n}}" if schema.get("properties") else "object"
        case list() as kinds:
            return " | ".join(_type({**schema, "type": kind}) for kind in kinds)
        case _:
            return "any"
