"""Chat rows become tokens, and spans that say which of them are targets.

A row is rendered exactly as the proxy would have rendered and extended the same conversation:
the prompt up to an answer, the answer as the model would have sampled it (its stop token
included), the suffix up to the next answer. So a trained model meets in its harness the very
tokens that it was trained on, and a target is never re-tokenised across a turn's edge.

Targets are the tokens of assistant turns and no others: not the role that opens the turn, not
the joint after its stop token. `weight: 0` and `train_on` take turns out.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from pydantic import JsonValue

from runtime.formats.codec import Codec, Mark
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
from runtime.formats.families import Family
from specs import canonical
from specs.chat import Chat, ChatMessage, File, Row, RowOrigin
from specs.errors import InvalidInput

type TrainOn = Literal["all_assistant", "last_assistant"]


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens `start` to `end` of an example, all targets or all context."""

    start: int
    end: int
    target: bool


@dataclass(frozen=True, slots=True)
class Example:
    """A rendered row: its ids, and spans that cover them in order."""

    origin: RowOrigin
    ids: "array[int]"
    spans: tuple[Span, ...]
    notes: tuple[str, ...]
    """What of the row the family does not render."""

    @property
    def targets(self) -> int:
        """How many tokens are targets."""
        return sum(span.end - span.start for span in self.spans if span.target)


def conversation_of(file: File, row: Row) -> Conversation:
    """A row as a conversation that a model is to go on with, whoever spoke last.

    Raises:
        InvalidInput: naming the line.
    """
    turns = _Turns(file, row.origin.line)
    for index, message in enumerate(row.chat.messages):
        turns.add(message, f"/messages/{index}")
    return turns.conversation(_tools(row.chat))


class Renderer:
    """Renders rows for one model.

    Args:
        family: of the model.
        codec: its tokenizer.
        train_on: which assistant turns are targets.
    """

    def __init__(self, family: Family, codec: Codec, train_on: TrainOn) -> None:
        self.family = family
        self.codec = codec
        self._train_on = train_on

    def render(self, file: File, row: Row) -> Example:
        """The example of a row.

        Raises:
            InvalidInput: naming the line: it is no conversation, or has no target.
        """
        turns = _Turns(file, row.origin.line)
        for index, message in enumerate(row.chat.messages):
            turns.add(message, f"/messages/{index}")
        conversation, weights = turns.finish(_tools(row.chat))
        last = max(weights)
        wanted = {
            index
            for index, weight in weights.items()
            if weight and (self._train_on == "all_assistant" or index == last)
        }
        if not wanted:
            raise file.refusal(row.origin.line, "has no target: every weight is 0")
        notes = set(turns.notes)
        if not self.family.thinks and _thinks(conversation):
            notes.add("dropped:reasoning_content")
        ids, spans = self._tokens(conversation, sorted(weights), wanted)
        return Example(row.origin, ids, tuple(spans), tuple(sorted(notes)))

    def _tokens(
        self, conversation: Conversation, answers: Sequence[int], wanted: set[int]
    ) -> tuple["array[int]", list[Span]]:
        ids = array("i")
        spans: list[Span] = []

        def extend(more: "array[int]", target: bool) -> None:
            if more:
                spans.append(Span(len(ids), len(ids) + len(more), target))
                ids.extend(more)

        start, stop = 0, None
        for answer in answers:
            before = Conversation(
                conversation.system, conversation.tools, conversation.messages[:answer]
            )
            pieces = (
                self.family.prompt(before)
                if start == 0
                else self.family.suffix(before, start, stop)
            )
            extend(self.codec.encode(pieces), False)
            said = self.family.answer(conversation.messages[answer].blocks)
            extend(self.codec.encode(said), answer in wanted)
            stop = said[-1].token if said and isinstance(said[-1], Mark) else None
            start = answer + 1
        return ids, spans


@dataclass
class _Turns:
    """Collects the messages of one row in normal form."""

    file: File
    line: int
    system: list[str] = field(default_factory=list[str])
    messages: list[Message] = field(default_factory=list[Message])
    weights: dict[int, bool] = field(default_factory=dict[int, bool])
    """Of each assistant turn, by its place."""
    notes: set[str] = field(default_factory=set[str])
    _calls: list[str] = field(default_factory=list[str])
    _results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])

    def add(self, message: ChatMessage, pointer: str) -> None:
        """Take in the next message."""
        self._check_fields(message, pointer)
        if message.name is not None:
            self.notes.add("ignored:messages.name")
        if message.role == "tool":
            self._result(message, pointer)
            return
        self._flush()
        text = _text(message)
        match message.role:
            case "assistant":
                self._answer(message, text, pointer)
            case "user":
                if text is None:
                    self._refuse("a message of the user needs content", f"{pointer}/content")
                self.messages.append(Message("user", (Text(text),)))
            case _:
                if text is None:
                    self._refuse("a system message needs content", f"{pointer}/content")
                if self.messages:
                    self.messages.append(Message("system", (Text(text),)))
                else:
                    self.system.append(text)

    def finish(self, tools: tuple[Tool, ...]) -> tuple[Conversation, dict[int, bool]]:
        """The whole conversation, which ends with an assistant turn."""
        conversation = self.conversation(tools)
        if self.messages[-1].role != "assistant":
            self._refuse("the conversation does not end with a message of the assistant")
        return conversation, self.weights

    def conversation(self, tools: tuple[Tool, ...]) -> Conversation:
        """What was taken in so far."""
        self._flush()
        if not self.messages:
            self._refuse("the conversation has no turn")
        return Conversation(tuple(self.system), tools, tuple(self.messages))

    def _answer(self, message: ChatMessage, text: str | None, pointer: str) -> None:
        if self.messages and self.messages[-1].role == "assistant":
            self._refuse("two messages of the assistant follow one another", pointer)
        thought = message.reasoning_content
        blocks: list[Block] = [Thinking(thought)] if thought else []
        blocks += [Text(text)] if text else []
        calls = message.tool_calls or ()
        for index, call in enumerate(calls):
            given = call.function.arguments
            place = f"{pointer}/tool_calls/{index}/function/arguments"
            values = self._arguments(given, place) if isinstance(given, str) else given
            blocks.append(ToolUse(call.id, call.function.name, values))
        if not any(isinstance(block, Text | ToolUse) for block in blocks):
            self._refuse("a message of the assistant says nothing", pointer)
        self._calls = [call.id for call in calls]
        if len(set(self._calls)) < len(self._calls):
            self._refuse("two calls have one id", f"{pointer}/tool_calls")
        self.weights[len(self.messages)] = message.weight != 0
        self.messages.append(Message("assistant", tuple(blocks)))

    def _arguments(self, text: str, pointer: str) -> dict[str, JsonValue]:
        try:
            value = canonical.loads(text, what="call", big_integers=True)
        except InvalidInput as error:
            self._refuse(f"the arguments of a call are no JSON ({error})", pointer)
        if not isinstance(value, dict):
            self._refuse("the arguments of a call are no JSON object", pointer)
        return value

    def _result(self, message: ChatMessage, pointer: str) -> None:
        call, text = message.tool_call_id, _text(message)
        if call is None or text is None:
            self._refuse("a message of a tool needs tool_call_id and content", pointer)
        if call not in self._calls:
            self._refuse(f"no call before it has the id {call!r}", f"{pointer}/tool_call_id")
        if call in self._results:
            self._refuse(f"the call {call!r} has two results", f"{pointer}/tool_call_id")
        self._results[call] = ToolResult(call, text)

    def _flush(self) -> None:
        """Neighbouring results are one turn, in the order of their calls."""
        if self._results:
            order = sorted(self._results.values(), key=lambda one: self._calls.index(one.call))
            self.messages.append(Message("user", tuple(order)))
            self._results = {}

    def _check_fields(self, message: ChatMessage, pointer: str) -> None:
        allowed = {"role", "content", "name"}
        if message.role == "assistant":
            allowed |= {"reasoning_content", "tool_calls", "weight"}
        if message.role == "tool":
            allowed |= {"tool_call_id"}
        for name in ChatMessage.model_fields:
            if name not in allowed and getattr(message, name) is not None:
                self._refuse(f"a message of role {message.role} has {name}", f"{pointer}/{name}")

    def _refuse(self, cause: str, pointer: str = "/messages") -> NoReturn:
        raise self.file.refusal(self.line, f"cannot be used: {cause}", pointer)


def _text(message: ChatMessage) -> str | None:
    content = message.content
    if content is None or isinstance(content, str):
        return content
    return "\n".join(part.text for part in content)


def _tools(chat: Chat) -> tuple[Tool, ...]:
    empty: dict[str, JsonValue] = {"type": "object", "properties": {}}
    return tuple(
        Tool(
            tool.function.name,
            tool.function.description or "",
            empty if tool.function.parameters is None else tool.function.parameters,
        )
        for tool in chat.tools or ()
    )


def _thinks(conversation: Conversation) -> bool:
    return any(isinstance(b, Thinking) for m in conversation.messages for b in m.blocks)
