"""Interactions: one model call each, with its exact tokens.

States (invariant 2): `refused` was never sampled; `answered`; `superseded` is durable but
its client went away (a retry of the same body replays it); `lost` has an intent and no
record. Spans (invariant 3): `exact`, `branched` with a reason, `lost`.

On disk an interaction is an *intent* followed by an *outcome* in a trial's segment (see
`specs.evidence`). The prompt is its parent's prompt and output plus a suffix; the hash over
all prompt ids proves the reconstruction.
"""

from array import array
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from specs.base import Contract
from specs.ids import Digest, Id


class CallState(StrEnum):
    """How a model call ended."""

    REFUSED = "refused"
    ANSWERED = "answered"
    SUPERSEDED = "superseded"
    LOST = "lost"


class Delivery(StrEnum):
    """Whether an answer reached its harness."""

    SETTLED = "settled"
    ABORTED = "aborted"
    """There was no answer, or its client had gone and nobody came for it."""
    UNKNOWN = "unknown"


class BranchReason(StrEnum):
    """Why a call does not extend the call before it."""

    ROOT = "root"
    """The first call of a chain; not a break."""
    EDITED = "edited"
    """Earlier messages differ from what was answered."""
    REWOUND = "rewound"
    """The conversation goes on from an earlier turn."""
    TOOLS_CHANGED = "tools_changed"
    SYSTEM_CHANGED = "system_changed"
    COMPACTED = "compacted"
    TRUNCATED = "truncated"
    """The earlier answer was cut at max_tokens and cannot be continued as a turn."""
    SAMPLER_CHANGED = "sampler_changed"
    FORKED = "forked"
    """Another session or agent goes on from a turn."""
    PROXY_RESTART = "proxy_restart"


class LimitedBy(StrEnum):
    """What set the `max_tokens` of a call."""

    REQUEST = "request"
    PROFILE = "profile"
    TRIAL = "trial"
    """What was left of the trial's output tokens."""
    WINDOW = "window"
    """What the prompt left of the model's context."""


class SamplingUsed(Contract):
    """Parameters that the sampler really used."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    seed: int | None = None
    stop: tuple[int, ...]
    stop_sequences: tuple[str, ...] = ()
    """Texts at which sampling was stopped from outside."""
    limited_by: LimitedBy = LimitedBy.REQUEST


class Intent(Contract):
    """Durable before sampling. Arrays: `suffix` int32; `request` uint8 (zlib of the body)."""

    kind: Literal["intent"] = "intent"
    interaction: Id
    trial: Id
    fence: int
    sequence: int
    """Order of the trial's calls, from 0, without gaps."""
    at: str
    session: str = ""
    """The harness's own names for session and agent, where it sends them."""
    agent: str = ""
    parent: Id | None
    branch: BranchReason | None
    """Set exactly where the prompt does not extend a parent."""
    normalisations: tuple[str, ...] = ()
    prompt_tokens: int
    prompt_sha256: Digest
    """Over the little-endian int32 ids of the whole prompt."""
    sampler: Id
    sampling: SamplingUsed
    requested: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Sampling values as the harness asked for them."""
    request_digest: Digest
    dialect: str = "anthropic"
    """The API that the harness spoke: how to read `request`."""


class Answer(Contract):
    """The complete record of a call. Arrays: `output` int32; `logprobs` float32 or absent.

    `output` includes the stop token; the joint to the next turn belongs to the next prompt.
    With `stop_reason` `sequence` it ends with the token that completed `stop_sequence` in a
    text block, and `content` ends before that text. With `call` it was ended behind its first
    call, since only one was asked for.
    """

    kind: Literal["answer"] = "answer"
    interaction: Id
    at: str
    stop_reason: Literal["stop", "length", "sequence", "call"]
    stop_sequence: str | None = None
    provenance: Literal["sampled", "scripted", "upstream"]
    content: list[JsonValue]
    """The content blocks as answered, derived from the tokens for display and matching."""
    parse_error: str | None = None
    superseded: bool = False


class Superseded(Contract):
    """The client of an answered call went away, or threw the answer away and asked again."""

    kind: Literal["superseded"] = "superseded"
    interaction: Id
    at: str
    reason: Literal["client_gone", "empty_reply"] = "client_gone"


class Delivered(Contract):
    """A client was sent the whole answer and was there to the end.

    It is written without haste: a crash leaves `unknown` whether an answer arrived.
    """

    kind: Literal["delivered"] = "delivered"
    interaction: Id
    at: str


class Refusal(Contract):
    """A call that was refused before sampling. Array: `request` uint8 (zlib of the body)."""

    kind: Literal["refusal"] = "refusal"
    interaction: Id
    trial: Id
    sequence: int
    at: str
    code: str
    detail: str


class Failure(Contract):
    """A call that was never answered. It is `lost`, since sampling may have begun; with
    `sampled` false the backend refused it whole, and it is `refused` like any other."""

    kind: Literal["failure"] = "failure"
    interaction: Id
    at: str
    code: str
    detail: str
    sampled: bool = True
    """Whether anything may have been sampled."""


type AnyRecord = Intent | Answer | Superseded | Delivered | Refusal | Failure
Record = Annotated[
    Intent | Answer | Superseded | Delivered | Refusal | Failure, Field(discriminator="kind")
]


class Seal(Contract):
    """The end of a trial's evidence: what there is, and whether it is complete."""

    trial: Id
    run: Id
    fence: int
    interactions: int
    states: dict[CallState, int]
    object: Digest | None
    """The uploaded segment; None when the trial made no call."""
    size: int
    complete: bool
    """No call is `lost`."""
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Interaction:
    """An interaction read back whole: `prompt` int32 [p], `output` int32 [n], `logprobs`
    float32 [n] or None."""

    intent: Intent
    state: CallState
    answer: Answer | None
    prompt: "array[int]"
    output: "array[int]"
    logprobs: "array[float] | None"
    request: bytes
    delivery: Delivery = Delivery.UNKNOWN
    replaced: bool = False
    """The harness threw the answer away and asked again: it showed nothing."""

    @property
    def acted_upon(self) -> bool:
        """Whether the harness may have acted on the answer, as far as its own record says."""
        if self.replaced:
            return False
        return self.state is CallState.ANSWERED or self.delivery is Delivery.SETTLED

    @property
    def exact(self) -> bool:
        """Whether the prompt extends its parent's prompt and output."""
        return self.intent.branch is None

    @property
    def span(self) -> str:
        """`root`, `exact`, `branched(reason)` or `lost` (invariant 3)."""
        if self.answer is None:
            return "lost"
        branch = self.intent.branch
        if branch is BranchReason.ROOT:
            return "root"
        return "exact" if branch is None else f"branched({branch})"
