"""What the proxy asks of a dialect: read a request into normal form, write what is sent back.

A dialect is pure: it neither waits nor keeps state between calls. `Events` is the one stateful
part, one instance per client that is sent events. The rule of invariant 2 is in its shape:
`delta` carries what may leave while sampling, `end` all that may leave only once the answer
is durable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from runtime.formats.conversation import Conversation
from runtime.formats.families import Delta
from specs.errors import PracticumError
from specs.interaction import Answer, Intent


@dataclass(frozen=True, slots=True)
class Request:
    """A request in normal form, with the sampling that it asks for (None where it is silent)."""

    conversation: Conversation
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    stop_sequences: tuple[str, ...]
    stream: bool
    calls_allowed: bool
    """False with `tool_choice: none`: markup of a call is then text."""
    requested: Mapping[str, JsonValue]
    normalisations: tuple[str, ...]
    digest: str
    """Over what makes two requests the same call: all but `stream`, `metadata` and caching."""
    seed: int | None = None
    one_call: bool = False
    """Whether the answer may hold one call at most."""
    logprobs: bool = False
    """Whether the answer is to show the log-probabilities of its tokens."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of an answer before it is sampled."""

    intent: Intent
    model: str
    """The name that the harness is answered under."""
    asked: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """`Request.requested` of the client that is answered."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A sampled token: the bytes that it stands for and its recorded log-probability."""

    data: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is durable."""

    answer: Answer
    output_tokens: int
    scored: Sequence[Scored] | None = None
    """Every output token, where the client asked for log-probabilities and there are any."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error as a whole response."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, JsonValue]


def signature(interaction: str, block: int) -> str:
    """What a thinking block is signed with: an opaque name of ours, known before it ends."""
    return f"{interaction[4:]}{block:02x}"


class Events(Protocol):
    """The events of one answer for one client, in order."""

    def begin(self) -> bytes:
        """What leaves when the intent is durable."""
        ...

    def ping(self) -> bytes:
        """What keeps the connection while nothing else leaves; may be empty."""
        ...

    def delta(self, delta: Delta) -> bytes:
        """What may leave while sampling: text and thinking, never the end of the last block."""
        ...

    def end(self, whole: Whole) -> bytes:
        """All that is left of a durable answer.

        Raises:
            Internal: what was sent is not the beginning of the answer; cut the connection.
        """
        ...

    def fail(self, error: PracticumError, request_id: str) -> bytes | None:
        """The event of a call that failed; None if only cutting the connection makes the
        harness repeat its request."""
        ...


class Dialect(Protocol):
    """One API that harnesses speak."""

    @property
    def name(self) -> str:
        """How interactions record it."""
        ...

    def read(self, data: bytes) -> Request:
        """A request for an answer.

        Raises:
            InvalidInput: naming the field in the dialect's words.
        """
        ...

    def read_count(self, data: bytes) -> Conversation:
        """A request to count a prompt's tokens; errors as `read`."""
        ...

    def message(self, head: Head, whole: Whole) -> dict[str, JsonValue]:
        """A whole answer."""
        ...

    def events(self, head: Head) -> Events:
        """The same answer as events."""
        ...

    def error(self, error: PracticumError, request_id: str) -> ErrorReply:
        """An error, in the shape and with the status that make a harness do the right thing."""
        ...

    def count(self, tokens: int) -> dict[str, JsonValue]:
        """The answer to `read_count`."""
        ...

    def models(self, model: str) -> dict[str, JsonValue]:
        """The list of models, which holds the trial's own."""
        ...

    def model(self, model: str) -> dict[str, JsonValue]:
        """One model of the list."""
        ...
