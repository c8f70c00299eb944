"""What the proxy asks of a model family.

A prompt is `opening + turns + generation`. After an answer the next prompt is the stored tokens
of prompt and answer and then a *suffix*: what the template puts between the answer's last token
and the next turn, the new turns, and the open turn that the model continues. The suffix depends
on how the answer ended, since for some families the stop token begins the next turn. So every
prompt extends the one before it by construction, and thinking of earlier turns stays: the
thinking policy of all families is `preserve`.

An assistant turn that is rendered rather than stored (a foreign history, a prefill, a scenario)
is the open turn followed by what the model would have written. Rendered system turns stand where
they were sent.

How an answer begins can be made so by its prompt alone (`Conversation.start`): thinking that the
prompt has closed, a call that it has begun. These tokens are prompt, never output; what a family
cannot be made to do this way is `unenforced`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, override

from runtime.formats.codec import Codec, Mark, Piece, spell
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
from runtime.formats.families.lexer import pattern
from runtime.formats.families.reading import (
    Body,
    Grammar,
    Parsed,
    ReadCall,
    Reader,
    SectionReader,
)


class Family(Protocol):
    """Rendering and parsing of one family; pure and without state."""

    @property
    def renderer(self) -> str:
        """Name and version, as samplers record it: any change of rendering is a new version."""
        ...

    @property
    def stops(self) -> tuple[str, ...]:
        """The tokens that end an answer; `stops[0]` ends one that calls no tool."""
        ...

    @property
    def thinks(self) -> bool:
        """Whether answers may hold thinking."""
        ...

    @property
    def ends_calls(self) -> bool:
        """Whether a turn can be ended behind any of its calls."""
        ...

    def prompt(self, conversation: Conversation) -> list[Piece]:
        """A whole prompt; a final assistant turn of text is the beginning of the answer."""
        ...

    def suffix(self, conversation: Conversation, start: int, last: str | None) -> list[Piece]:
        """What follows an answer, which is the message before `start`.

        `last` is the control token that the answer ended with, or None if it ended with none.
        Messages before `start` are looked at (for the names of calls), never rendered.
        """
        ...

    def begun(self, conversation: Conversation) -> list[Piece] | None:
        """What of the answer the prompt has as `conversation.start` asks for it: the beginning
        of a call, or nothing but closed thinking. None where the model begins by itself."""
        ...

    def unenforced(self, conversation: Conversation) -> frozenset[str]:
        """What `conversation.start` asks for in vain: `thinking`, `tool_choice`."""
        ...

    def answer(
        self, blocks: Sequence[Block], *, cut: bool = False, quiet: bool = False
    ) -> list[Piece]:
        """What the model would have sampled to say `blocks`, with its stop unless `cut`.

        `quiet`: behind a prompt that has closed thinking, which is then left out.
        """
        ...

    def reader(
        self,
        *,
        call: str,
        tools: Sequence[Tool],
        prefilled: bool = False,
        begun: Sequence[Piece] | None = None,
    ) -> Reader:
        """Reads an answer as it arrives.

        `call` names the interaction and makes the ids of tool calls; without `tools` markup of
        a call is text. `prefilled`: the prompt ends with the beginning of the answer's text.
        `begun` is what `begun` says of its conversation.
        """
        ...

    def parse(
        self,
        pieces: Iterable[Piece],
        *,
        call: str,
        tools: Sequence[Tool],
        prefilled: bool = False,
        begun: Sequence[Piece] | None = None,
    ) -> Parsed:
        """Content blocks of a whole answer (see `Codec.pieces`): its reader, fed and closed."""
        ...


class Template(ABC):
    """A family of turns; what a subclass must say is listed first.

    Args:
        codec: the tokenizer, which says what of the markup is control tokens.
    """

    renderer: str
    stops: tuple[str, ...]
    required: tuple[str, ...]
    """Control tokens without which the family cannot be used."""
    call: tuple[str, str]
    """Opens and closes a call."""
    inner: tuple[str, ...] = ()
    """More markup inside of a call."""
    section: tuple[str, str] | None = None
    """Stands around a row of calls."""
    think: tuple[str, str] | None = None
    thinks = False
    opens_thinking = False
    """Whether `generation` leaves thinking open."""
    ends_calls = True
    unthought: tuple[Piece, ...] = ()
    """What `said` begins with where nothing was thought, and `quiet` has in the prompt."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        names = (*self.call, *self.inner, *(self.section or ()), *(self.think or ()))
        self.grammar = Grammar(
            {name: pattern(codec, *self.spelling(name)) for name in names},
            self.read_call,
            call=self.call,
            section=self.section,
            think=self.think,
            stops=frozenset(self.stops),
        )

    def spelling(self, name: str) -> Sequence[Piece]:
        """The parts of a piece of markup; one control token, if the tokenizer has it."""
        return (Mark(name),)

    @abstractmethod
    def read_call(self, body: Body, tools: Mapping[str, Tool]) -> ReadCall:
        """A call between its marks.

        Raises:
            Unreadable: it is none.
        """

    @abstractmethod
    def opening(self, system: Sequence[str], tools: Sequence[Tool]) -> list[Piece]:
        """What comes before the first turn."""

    @abstractmethod
    def generation(self, before: Message | None) -> list[Piece]:
        """The open turn that the model continues; `before` is the turn before it."""

    def quiet(self, before: Message | None) -> list[Piece]:
        """The same in which the model does not think."""
        return self.generation(before)

    @abstractmethod
    def call_start(self, name: str, tools: Sequence[Tool]) -> list[Piece]:
        """The beginning of a call of a tool, or of any with an empty name, up to where the
        model's own tokens would have a boundary as well."""

    @abstractmethod
    def said(self, blocks: Sequence[Block]) -> list[Piece]:
        """What the model writes in the open turn to say `blocks`, without a stop."""

    @abstractmethod
    def joint(self, last: str | None) -> list[Piece]:
        """From the last token of an answer to the next turn; without a stop, its end too."""

    def prefill(self, text: str) -> list[Piece]:
        """The beginning of an answer of text, which is continued as it stands."""
        return self.said([Text(text)])

    def prompt(self, conversation: Conversation) -> list[Piece]:
        opening = self.opening(conversation.system, conversation.tools)
        return [*opening, *self.open_turns(conversation, 0)]

    def suffix(self, conversation: Conversation, start: int, last: str | None) -> list[Piece]:
        return [*self.joint(last), *self.open_turns(conversation, start)]

    def begun(self, conversation: Conversation) -> list[Piece] | None:
        return None if _is_filled(conversation) else self._begun(conversation)

    def unenforced(self, conversation: Conversation) -> frozenset[str]:
        start = conversation.start
        called = start.call is not None
        vain = {"tool_choice"} if called and _is_filled(conversation) else set[str]()
        if start.thinking and (called or not self.thinks):
            vain.add("thinking")
        return frozenset(vain)

    def answer(
        self, blocks: Sequence[Block], *, cut: bool = False, quiet: bool = False
    ) -> list[Piece]:
        if quiet:
            blocks = [block for block in blocks if not isinstance(block, Thinking)]
        pieces = self.said(blocks)
        if quiet:
            assert tuple(pieces[: len(self.unthought)]) == self.unthought
            del pieces[: len(self.unthought)]
        return [*pieces, *([] if cut else [Mark(self.stop(blocks))])]

    def stop(self, blocks: Sequence[Block]) -> str:
        """The stop token that the model draws after saying `blocks`."""
        del blocks
        return self.stops[0]

    def reader(
        self,
        *,
        call: str,
        tools: Sequence[Tool],
        prefilled: bool = False,
        begun: Sequence[Piece] | None = None,
    ) -> Reader:
        thinking = self.opens_thinking and not prefilled and begun is None
        reader = SectionReader(self.grammar, call=call, tools=tools, thinking=thinking)
        reader.feed(self.as_sampled(begun or ()))
        return reader

    def as_sampled(self, pieces: Iterable[Piece]) -> Iterable[Piece]:
        """The same as they come out of the tokenizer: what is no control token there is text."""
        for piece in pieces:
            known = isinstance(piece, str) or self.codec.mark(piece.token) is not None
            yield piece if known else spell([piece])

    def parse(
        self,
        pieces: Iterable[Piece],
        *,
        call: str,
        tools: Sequence[Tool],
        prefilled: bool = False,
        begun: Sequence[Piece] | None = None,
    ) -> Parsed:
        reader = self.reader(call=call, tools=tools, prefilled=prefilled, begun=begun)
        reader.feed(pieces)
        return reader.close()

    def open_turns(self, conversation: Conversation, start: int) -> list[Piece]:
        """The turns from `start`, and then the one that the model continues."""
        messages = conversation.messages
        calls = {
            block.id: block
            for message in messages
            for block in message.blocks
            if isinstance(block, ToolUse)
        }
        filled = len(messages) > start and messages[-1].role == "assistant"
        end = len(messages) - filled
        pieces: list[Piece] = []
        for index in range(start, end):
            before = messages[index - 1] if index else None
            pieces += self.turn(messages[index], before, calls)
        before = messages[end - 1] if end else None
        begun = None if filled else self._begun(conversation)
        if begun is not None:
            return [*pieces, *self.quiet(before), *begun]
        pieces += self.generation(before)
        return [*pieces, *self.prefill(joined_text(messages[-1].blocks))] if filled else pieces

    def _begun(self, conversation: Conversation) -> list[Piece] | None:
        start = conversation.start
        if start.call is not None:
            return self.call_start(start.call, conversation.tools)
        return [] if start.thinking is False else None

    @abstractmethod
    def turn(
        self, message: Message, before: Message | None, calls: Mapping[str, ToolUse]
    ) -> list[Piece]:
        """A whole turn, with its end."""


class RoleTurns(Template):
    """A family that writes each role in a way of its own."""

    @abstractmethod
    def user(self, text: str) -> list[Piece]:
        """A turn of the user."""

    @abstractmethod
    def system(self, text: str) -> list[Piece]:
        """A system turn between turns."""

    @abstractmethod
    def results(self, results: Sequence[tuple[ToolResult, ToolUse | None]]) -> list[Piece]:
        """Neighbouring results, each with its call if the conversation has it."""

    @override
    def turn(
        self, message: Message, before: Message | None, calls: Mapping[str, ToolUse]
    ) -> list[Piece]:
        if message.role == "assistant":
            return [*self.generation(before), *self.said(message.blocks), *self.joint(None)]
        if message.role == "system":
            return self.system(joined_text(message.blocks))
        pieces: list[Piece] = []
        results = [block for block in message.blocks if isinstance(block, ToolResult)]
        if results:
            pieces += self.results([(result, calls.get(result.call)) for result in results])
        if not results or any(isinstance(block, Text) for block in message.blocks):
            pieces += self.user(joined_text(message.blocks))
        return pieces


def _is_filled(conversation: Conversation) -> bool:
    """Whether the last turn is the beginning of the answer."""
    return bool(conversation.messages) and conversation.messages[-1].role == "assistant"


def joined_text(blocks: Sequence[Block]) -> str:
    """The texts of a turn, a line apart."""
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def thoughts(blocks: Sequence[Block]) -> str:
    """The thinking of a turn, a line apart."""
    return "\n".join(block.text for block in blocks if isinstance(block, Thinking))


def calls_of(blocks: Sequence[Block]) -> list[ToolUse]:
    """The calls of a turn."""
    return [block for block in blocks if isinstance(block, ToolUse)]


def ends_with_results(message: Message | None) -> bool:
    """Whether a turn is results of tools and nothing after them."""
    return (
        message is not None
        and bool(message.blocks)
        and all(isinstance(block, ToolResult) for block in message.blocks)
    )
