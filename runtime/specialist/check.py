"""Where training rows do not fit the deployed model.

A row teaches the model to work under the conditions that it shows. So what the row tells the
model has to be what the deployment tells it (instructions, tools), what the model answers has
to be what is expected of it (output), and nothing may be named that it will not have. Answers
of held-out tasks and turns without any content of their own are found as well.

Pure: rows in, findings out, in the order of the rows. A turn of the assistant with weight 0 is
context: it may look as it likes, and still names nothing that is withheld.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import JsonValue

from runtime.specialist import leaks, mentions
from runtime.specialist.answers import Answers, is_wrapper
from runtime.specialist.findings import PARTS, Cause, Finding, Variant
from runtime.specialist.leaks import HeldOutTask
from runtime.specialist.reach import Reach
from runtime.specialist.recorded import RecordedCall
from runtime.specialist.render import instructions_of, schema_error, tool_documents, tools_of
from specs import canonical
from specs.chat import Chat, ChatMessage, Row, ToolCall
from specs.errors import PracticumError
from specs.model_spec import ModelSpec

type Found = tuple[Cause, int | None, str]
"""Cause, index of the message, what exactly."""


@dataclass
class Check:
    """One comparison; rows go through `findings`, and what they held is counted on the way."""

    spec: ModelSpec
    held_out: tuple[HeldOutTask, ...] = ()
    rows: int = 0
    _variants: dict[tuple[str, str], list[int]] = field(
        default_factory=dict[tuple[str, str], list[int]]
    )

    def __post_init__(self) -> None:
        self._instructions = instructions_of(self.spec)
        self._tools = tool_documents(self.spec)
        self._schemas = {tool.name: tool.input_schema for tool in tools_of(self.spec)}
        self._answers = Answers(self.spec.output)
        self._reach = Reach(self.spec)

    def findings(self, rows: Iterable[Row]) -> Iterator[Finding]:
        """Everything that is wrong with some rows."""
        for row in rows:
            self.rows += 1
            for cause, message, detail in self._row(row):
                yield Finding(
                    row=row.origin.line,
                    id=row.origin.id,
                    message=message,
                    part=PARTS[cause],
                    cause=cause,
                    detail=detail,
                )

    def call(self, recorded: RecordedCall, place: int, *, last: bool) -> Iterator[Found]:
        """What is wrong with a model call as it was recorded; `place` counts calls.

        `last`: the trial ended with it. Without an answer only what the model was told is
        compared.
        """
        self.rows += 1
        yield from self._told(recorded.instructions, recorded.tools, place)
        answer = recorded.answer
        if answer is not None:
            for name in self._reach.withheld_in(recorded.given):
                yield Cause.WITHHELD_NAMED, None, f"was shown {name}"
            yield from self._withheld(0, answer, text_of(answer))
            yield from self._target(0, answer, text_of(answer), [recorded.given], last=last)

    @property
    def variants(self) -> list[Variant]:
        """What the rows carried as instructions and tools, the most frequent first."""
        return sorted(
            (
                Variant(part=part, digest=digest, rows=count, first_row=first)
                for (part, digest), (count, first) in self._variants.items()
            ),
            key=lambda one: (one.part, -one.rows, one.first_row),
        )

    def _row(self, row: Row) -> Iterator[Found]:
        chat = row.chat
        system = [m for m in chat.messages if m.role in ("system", "developer")]
        told = "\n\n".join(map(text_of, system))
        yield from self._told(told, _row_tools(chat), row.origin.line)
        given: list[str] = []
        for index, message in enumerate(chat.messages):
            text = text_of(message)
            yield from self._withheld(index, message, text)
            if message.role == "assistant" and message.weight != 0:
                last = index == len(chat.messages) - 1
                yield from self._target(index, message, text, given, last=last)
            elif message.role == "user":
                yield from self._asked(index, text)
            given.append(text)
        yield from self._leaks(chat)

    def _told(self, text: str, tools: list[JsonValue], place: int) -> Iterator[Found]:
        """Instructions and tools, as the model is shown them."""
        self._count("instructions", canonical.digest(text), place)
        if text != self._instructions:
            yield Cause.INSTRUCTIONS_DIFFER, None, _first_difference(text, self._instructions)
        self._count("tools", canonical.digest(tools), place)
        if tools != self._tools:
            yield Cause.TOOLS_DIFFER, None, _tool_difference(tools, self._tools)

    def _withheld(self, index: int, message: ChatMessage, text: str) -> Iterator[Found]:
        spoken = "\n".join((text, message.reasoning_content or "", *_call_texts(message)))
        for name in self._reach.withheld_in(spoken):
            yield Cause.WITHHELD_NAMED, index, f"names {name}, which the deployed model lacks"

    def _asked(self, index: int, text: str) -> Iterator[Found]:
        if is_wrapper(text):
            yield Cause.WRAPPER_ONLY, index, "has markup and imports, and nothing that they wrap"
        for path in self._reach.missing_absolute(text):
            yield Cause.FILE_UNAVAILABLE, index, f"names {path}, which no resource covers"
        for task in leaks.told(text, self.held_out):
            yield Cause.HELD_OUT_TASK, index, f"is the held-out task {task.name}"

    def _target(
        self, index: int, message: ChatMessage, text: str, given: list[str], *, last: bool
    ) -> Iterator[Found]:
        """A turn that is learned."""
        calls = message.tool_calls or ()
        for call in calls:
            yield from self._call(index, call)
        if not text.strip() and not calls:
            yield Cause.ANSWER_EMPTY, index, "is a turn without text or calls"
        elif not calls:
            for cause, detail in self._answers.faults(text, last=last):
                yield cause, index, detail
        spoken = f"{message.reasoning_content or ''}\n{text}"
        for name in mentions.tools(spoken):
            if name not in self._schemas:
                yield Cause.TOOL_UNKNOWN, index, f"names the tool {name}, which is not deployed"
        for path in self._reach.missing(spoken, "\n".join(given), acting=self._answers.acting):
            yield Cause.FILE_UNAVAILABLE, index, f"names {path}, which no resource covers"
        if self._answers.acting:
            yield from self._hosts(index, text)

    def _call(self, index: int, call: ToolCall) -> Iterator[Found]:
        name = call.function.name
        if name not in self._schemas:
            yield Cause.TOOL_UNKNOWN, index, f"calls {name}, which is not deployed"
            return
        try:
            arguments = arguments_of(call)
        except PracticumError as error:
            yield Cause.ARGUMENTS_INVALID, index, f"calls {name}: {error.problem.detail}"
            return
        fault = schema_error(self._schemas[name], arguments)
        if fault is not None:
            yield Cause.ARGUMENTS_INVALID, index, f"calls {name}: {fault}"
        text = "\n".join(_strings(arguments))
        for path in self._reach.missing_absolute(text):
            yield Cause.FILE_UNAVAILABLE, index, f"calls {name} with {path}, out of reach"
        yield from self._hosts(index, text)

    def _hosts(self, index: int, text: str) -> Iterator[Found]:
        for host in mentions.hosts(text):
            if not self._reach.host(host):
                yield Cause.HOST_UNREACHABLE, index, f"goes to {host}, out of the network's reach"

    def _leaks(self, chat: Chat) -> Iterator[Found]:
        if not self.held_out:
            return
        lines: list[str] = []
        for message in chat.messages:
            if message.role == "assistant" and message.weight != 0:
                for text in (text_of(message), *_call_texts(message)):
                    lines += text.splitlines()
        for task in leaks.answered(lines, self.held_out):
            yield Cause.HELD_OUT_ANSWER, None, f"holds the answer of the held-out task {task.name}"

    def _count(self, part: str, digest: str, line: int) -> None:
        self._variants.setdefault((part, digest), [0, line])[0] += 1


def text_of(message: ChatMessage) -> str:
    """The text of a message, its parts joined."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def arguments_of(call: ToolCall) -> JsonValue:
    """The arguments of a call as JSON.

    Raises:
        InvalidInput: text that is no JSON.
    """
    given = call.function.arguments
    return canonical.loads(given, what="call's arguments") if isinstance(given, str) else given


def _call_texts(message: ChatMessage) -> Iterator[str]:
    for call in message.tool_calls or ():
        yield call.function.name
        try:
            yield from _strings(arguments_of(call))
        except PracticumError:
            yield str(call.function.arguments)  # what `_call` finds unreadable is still searched


def _strings(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)


def _row_tools(chat: Chat) -> list[JsonValue]:
    """The tools of a row in the form in which a specification's are digested."""
    found: list[JsonValue] = []
    for tool in chat.tools or ():
        function = tool.function
        document: dict[str, JsonValue] = {
            "name": function.name,
            "description": function.description or "",
            "input_schema": function.parameters or {},
        }
        found.append({**document, "strict": True} if function.strict else document)
    return found


def _first_difference(row: str, spec: str) -> str:
    if not row:
        return "has no instructions"
    left, right = row.split("\n"), spec.split("\n")
    for number, (ours, theirs) in enumerate(zip(left, right, strict=False), start=1):
        if ours != theirs:
            return f"line {number} is {_clip(ours)}, and deployed {_clip(theirs)}"
    if len(left) > len(right):
        return f"line {len(right) + 1} is {_clip(left[len(right)])}, and deployed there is none"
    return f"line {len(left) + 1} is missing; deployed it is {_clip(right[len(left)])}"


def _tool_difference(row: list[JsonValue], spec: list[JsonValue]) -> str:
    ours, theirs = _by_name(row), _by_name(spec)
    if extra := [name for name in ours if name not in theirs]:
        return f"has the tool {extra[0]}, which is not deployed"
    if missing := [name for name in theirs if name not in ours]:
        return f"lacks the tool {missing[0]}"
    for name, tool in ours.items():
        for key in sorted({*tool, *theirs[name]}):
            if tool.get(key) != theirs[name].get(key):
                return f"has another {key} of the tool {name}"
    return "has the tools in another order, or one of them twice"


def _by_name(tools: list[JsonValue]) -> dict[str, dict[str, JsonValue]]:
    return {str(tool["name"]): tool for tool in tools if isinstance(tool, dict)}


def _clip(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
