"""Reading an answer as it arrives: deltas of text and thinking, then content blocks.

A call is a tool_use block only if its markup is closed and its arguments are whole and strict.
Anything else reaches the harness as text, with the reason: never an error, never a call that
was not made. Markup inside thinking is thinking. Reading a whole answer is reading it piece by
piece, so a stream and the final message cannot differ.

Normal form: thinking without the line ends around it; text without those between it and a call
or thinking; a text of white space alone only where it is the whole answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from pydantic import JsonValue

from runtime.formats.codec import Mark, Piece, spell
from runtime.formats.conversation import Tool
from runtime.formats.families.lexer import Lexer, Pattern


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the text block that will be at `block` of the content."""

    block: int
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of the thinking block that will be at `block` of the content."""

    block: int
    text: str


type Delta = TextDelta | ThinkingDelta


@dataclass(frozen=True, slots=True)
class Parsed:
    """Content blocks of an answer. A call that cannot be read stays text, with the reason."""

    content: list[JsonValue]
    parse_error: str | None = None


class Reader(Protocol):
    """Reads one answer, its stop token included.

    The deltas of a block concatenate to a prefix of its text in `Parsed.content`; they come in
    the order of blocks. What was held back is in the content alone.
    """

    @property
    def calls(self) -> int:
        """How many calls are whole so far."""
        ...

    def feed(self, pieces: Iterable[Piece]) -> list[Delta]:
        """Read what arrived (see `Codec.decoder`): the deltas that are certain now."""
        ...

    def close(self) -> Parsed:
        """All content blocks, once the answer is whole or was cut."""
        ...


class Unreadable(Exception):
    """The body of a call is not what the grammar asks for; the message says why."""


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call as it was read. `tag` is the family's own part of the id that is minted for it."""

    name: str
    input: dict[str, JsonValue]
    tag: str = ""


type Body = Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Grammar:
    """The markup of an answer. `read_call` may raise `Unreadable`, and nothing else."""

    patterns: Mapping[str, Pattern]
    """Everything that counts as markup, by name: what follows, and what `read_call` looks for."""
    read_call: Callable[[Body, Mapping[str, Tool]], ReadCall]
    call: tuple[str, str]
    """Opens and closes a call."""
    section: tuple[str, str] | None = None
    """Stands around a row of calls."""
    think: tuple[str, str] | None = None
    stops: frozenset[str] = frozenset()


class SectionReader:
    """The reader of every family whose answer is thinking, text and delimited calls.

    Args:
        call: names the interaction; makes the ids of tool calls.
        tools: what may be called; without any, markup of a call is text.
        thinking: the answer begins inside thinking, which the prompt has opened.
    """

    def __init__(
        self, grammar: Grammar, *, call: str, tools: Sequence[Tool], thinking: bool
    ) -> None:
        self._grammar = grammar
        self._tools = {tool.name: tool for tool in tools}
        inert = set[str]() if tools else _call_markup(grammar)
        self._lexer = Lexer({k: v for k, v in grammar.patterns.items() if k not in inert})
        self._content = Content(call)
        self._thinking = thinking and grammar.think is not None
        self._body: list[Piece] | None = None
        self._section: list[str] = []
        self._errors: list[str] = []
        self._stop: Mark | None = None

    @property
    def calls(self) -> int:
        return self._content.calls

    def feed(self, pieces: Iterable[Piece]) -> list[Delta]:
        for piece in pieces:
            if self._stop is not None:  # it stopped nothing after all
                self._read_all(self._lexer.close())
                self._read(self._stop.token)
                self._stop = None
            if isinstance(piece, Mark) and piece.token in self._grammar.stops:
                self._stop = piece
            else:
                self._read_all(self._lexer.feed(piece))
        return self._content.take()

    def close(self) -> Parsed:
        self._read_all(self._lexer.close())
        if self._body is not None:
            self._errors.append(f"{self._grammar.call[0]} is not closed")
            self._give_back(self._body)
        if self._section:
            self._content.text("".join(self._section))
            self._errors.append("calls were announced and not made")
        return Parsed(self._content.close(), "; ".join(self._errors)[:1000] or None)

    def _read_all(self, symbols: Iterable[Piece]) -> None:
        for symbol in symbols:
            self._read(symbol)

    def _read(self, symbol: Piece) -> None:
        token = symbol.token if isinstance(symbol, Mark) else None
        opens_call, closes_call = self._grammar.call
        if self._body is not None:
            if token == closes_call:
                self._end_call(self._body)
            else:
                self._body.append(symbol)
        elif self._thinking:
            self._read_thinking(token, symbol)
        elif token == opens_call:
            self._body = []
        elif self._grammar.think is not None and token == self._grammar.think[0]:
            self._content.end()
            self._thinking = True
        elif self._grammar.section is not None and token in self._grammar.section:
            self._read_section(token)
        else:
            self._text(spell([symbol]))

    def _read_thinking(self, token: str | None, symbol: Piece) -> None:
        assert self._grammar.think is not None
        if token == self._grammar.think[1]:
            self._content.end()
            self._thinking = False
        else:
            self._content.thinking(spell([symbol]))

    def _read_section(self, token: str) -> None:
        """A row of calls begins or ends; its markup is text again if no call was made in it."""
        assert self._grammar.section is not None
        if token == self._grammar.section[0]:
            self._section.append(token)
        elif self._content.ends_with_call and not self._section:
            return
        else:
            self._text(token)

    def _text(self, text: str) -> None:
        if self._section:
            self._section.append(text)
            if not text.strip():
                return
            text = "".join(self._section)
            self._section.clear()
        self._content.text(text)

    def _end_call(self, body: list[Piece]) -> None:
        try:
            read = self._grammar.read_call(_merged(body), self._tools)
        except Unreadable as reason:
            self._errors.append(str(reason))
            self._give_back([*body, Mark(self._grammar.call[1])])
            return
        self._body = None
        self._section.clear()
        self._content.call(read)

    def _give_back(self, body: Body) -> None:
        """An unreadable call is text, as it was written."""
        self._body = None
        self._text(spell([Mark(self._grammar.call[0]), *body]))


class Content:
    """Content blocks under construction, and what of them may be shown already."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._blocks: list[dict[str, JsonValue]] = []
        self._kind = ""
        self._sure: list[str] = []
        """Of the open block: what stays, whatever follows."""
        self._held = ""
        """Of the open block: line ends and white space that may be trimmed."""
        self._deltas: list[Delta] = []
        self._trims = False
        """Whether there was markup: line ends beside it are not text."""
        self.calls = 0
        """How many calls there are."""

    @property
    def ends_with_call(self) -> bool:
        """Whether a call is the last thing so far."""
        return not self._sure and bool(self._blocks) and self._blocks[-1]["type"] == "tool_use"

    def text(self, text: str) -> None:
        """Add text."""
        self._add("text", text)

    def thinking(self, text: str) -> None:
        """Add thinking."""
        self._add("thinking", text)

    def call(self, read: ReadCall) -> None:
        """Add a call."""
        self.end()
        self.calls += 1
        number = f"toolu_{self._call[-32:]}{len(self._blocks):02x}{read.tag}"
        arguments = cast(JsonValue, read.input)
        self._blocks.append(
            {"type": "tool_use", "id": number, "name": read.name, "input": arguments}
        )

    def end(self) -> None:
        """End the open block; what may be trimmed is."""
        if self._sure:
            text = "".join(self._sure)
            if self._kind == "text":
                self._blocks.append({"type": "text", "text": text})
            else:
                self._blocks.append({"type": "thinking", "thinking": text, "signature": ""})
        self._kind, self._held, self._trims = "", "", True
        self._sure.clear()

    def take(self) -> list[Delta]:
        """Deltas since the last time."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def close(self) -> list[JsonValue]:
        """All blocks. An answer of text alone is kept as it stands."""
        if self._kind == "text" and not self._trims:
            self._sure.append(self._held)
        self.end()
        return list(cast(list[JsonValue], self._blocks))

    def _add(self, kind: str, text: str) -> None:
        if not text:
            return
        if self._kind != kind:
            if self._kind:
                self.end()
            self._kind = kind
        whole = self._held + text
        if not self._sure:
            if not whole.strip():
                self._held = whole
                return
            if self._trims or kind == "thinking":
                whole = whole.lstrip("\n")
        kept = whole.rstrip("\n")
        self._held = whole[len(kept) :]
        if kept:
            self._sure.append(kept)
            delta = TextDelta if kind == "text" else ThinkingDelta
            self._deltas.append(delta(len(self._blocks), kept))


def _call_markup(grammar: Grammar) -> set[str]:
    keep = set(grammar.think or ())
    return set(grammar.patterns) - keep


def _merged(body: Body) -> list[Piece]:
    """The same with neighbouring texts as one, however they arrived."""
    merged: list[Piece] = []
    for piece in body:
        if merged and isinstance(piece, str) and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged
