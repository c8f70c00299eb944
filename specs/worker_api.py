"""The worker protocol: claims, fenced writes, credentials, evidence.

A worker claims a run and writes under the claim's fence. All that it records goes through
one endpoint, as a list of writes that is applied in one transaction together with the
events they cause. `sequence` counts the claim's write requests from 1: repeating a request
with the same sequence changes nothing and returns what it returned (invariant 10).
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from specs.assessment import Assessment
from specs.base import Contract
from specs.errors import Problem
from specs.grant import LONGEST_TOKEN_SEC
from specs.ids import Digest, Id, Name
from specs.interaction import Seal
from specs.plans import Limits
from specs.records import (
    Batch,
    Checkpoint,
    Contribution,
    Eligible,
    Group,
    LogPiece,
    Trial,
    TrialOpen,
    TrialSettled,
    Update,
    UpdatePrepared,
)
from specs.run import RunSpec, SamplerRef


class ClaimRequest(Contract):
    """`POST /v1/worker/claims`: 200 with a `Claim`, or 204 when nothing is queued."""

    worker: Id
    lease_sec: float = Field(gt=0, le=3600)
    delegating: bool | None = None
    """Only runs whose trials may ask the gateway for runs of their own (true), only others
    (false), or any. Whoever waits for another must not hold the place that the other needs."""


class Claim(Contract):
    """Ownership of a run until `lease_sec` after the last heartbeat."""

    id: Id
    run: Id
    fence: int
    lease_sec: float
    spec: RunSpec
    cancelling: bool
    """Cancellation was asked for: settle what is open and complete as cancelled."""


class Fence(Contract):
    """Proof of ownership that every write carries."""

    claim: Id
    fence: int


class Heartbeat(Contract):
    """`POST /v1/worker/runs/{run}/heartbeat`."""

    claim: Id
    fence: int


class HeartbeatReply(Contract):
    """Answer to a heartbeat; a lost claim is `stale_fence` instead."""

    cancelling: bool


class Usage(Contract):
    """What was spent before this claim, and what may be."""

    tokens: int = 0
    """Prompt and output tokens of every sealed trial, abandoned ones included."""
    seconds: float = 0.0
    """During which earlier claims had the run."""
    batch: int | None = None
    """The batch last begun, unless its update is over."""
    batch_tokens: int = 0
    batch_seconds: float = 0.0
    limits: Limits = Limits()
    """The plan's, with what an operator has added to them."""


class RunRecords(Contract):
    """`GET /v1/worker/runs/{run}/records`: all that is recorded, to continue after a crash."""

    batches: list[Batch]
    groups: list[Group]
    trials: list[Trial]
    samplers: list[SamplerRef]
    updates: list[Update]
    checkpoints: list[Checkpoint]
    usage: Usage = Usage()


class BatchStarted(Contract):
    """Write: a batch begins on a sampler."""

    type: Literal["batch.started"] = "batch.started"
    batch: int
    sampler: Id
    tasks: tuple[Name, ...]


class BatchSettled(Contract):
    """Write: every group of the batch settled, and where the run learns, is judged."""

    type: Literal["batch.settled"] = "batch.settled"
    batch: int
    census: dict[str, int] = Field(default_factory=dict[str, int])


class GroupOpened(Contract):
    """Write: a sampling group."""

    type: Literal["group.opened"] = "group.opened"
    group: Group


class GroupSettled(Contract):
    """Write: every slot of the group has its counted trial.

    `place` counts the batch's groups in the order in which they settle, from 0; a number out
    of turn is refused, so the order is durable with the group's last trial.
    """

    type: Literal["group.settled"] = "group.settled"
    group: Id
    place: int = Field(ge=0)
    census: dict[str, int] = Field(default_factory=dict[str, int])


class GroupJudged(Contract):
    """Write: the verdict on each counted trial of a settled group (invariant 5)."""

    type: Literal["group.judged"] = "group.judged"
    group: Id
    verdicts: tuple[Eligible, ...]
    census: dict[str, int] = Field(default_factory=dict[str, int])


class TrialOpened(Contract):
    """Write: a trial takes a slot; an open trial of the same slot becomes abandoned."""

    type: Literal["trial.opened"] = "trial.opened"
    trial: TrialOpen


class TrialSettledWrite(Contract):
    """Write: a trial ended; it becomes the counted trial of its slot."""

    type: Literal["trial.settled"] = "trial.settled"
    settled: TrialSettled
    assessment: Assessment


class SamplerSaved(Contract):
    """Write: a sampler; its adapter must be an uploaded object."""

    type: Literal["sampler.saved"] = "sampler.saved"
    sampler: SamplerRef


class UpdatePreparedWrite(Contract):
    """Write: `prepared`."""

    type: Literal["update.prepared"] = "update.prepared"
    update: UpdatePrepared


class UpdateContributed(Contract):
    """Write: these datums are about to be submitted to the trainer of a prepared update."""

    type: Literal["update.contributed"] = "update.contributed"
    update: Id
    contributions: tuple[Contribution, ...] = Field(min_length=1)


class UpdateAccumulated(Contract):
    """Write: the gradient of what was submitted of a group is in the trainer."""

    type: Literal["update.accumulated"] = "update.accumulated"
    update: Id
    group: Id | None
    datums: int
    trained_tokens: int
    seconds: float
    """From submission to gradient."""


class UpdateUnresolved(Contract):
    """Write: `unresolved`, before the optimizer step is enqueued; metrics known so far."""

    type: Literal["update.unresolved"] = "update.unresolved"
    update: Id
    metrics: dict[str, float]
    census: dict[str, int] = Field(default_factory=dict[str, int])


class UpdateAcknowledged(Contract):
    """Write: `acknowledged`; trainer state is saved under the update's id."""

    type: Literal["update.acknowledged"] = "update.acknowledged"
    update: Id
    metrics: dict[str, float]
    state_digest: Digest
    sampler_after: Id


class UpdateMeasured(Contract):
    """Write: measures of an acknowledged update that are taken after it, such as a validation."""

    type: Literal["update.measured"] = "update.measured"
    update: Id
    metrics: dict[str, float] = Field(min_length=1)


class UpdateEnded(Contract):
    """Write: `failed` or `void`, with the reason."""

    type: Literal["update.failed", "update.void"]
    update: Id
    reason: str
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    """What had been measured of it by then."""


class UpdateSkipped(Contract):
    """Write: a batch without learnable trials; the next batch stays on the same sampler."""

    type: Literal["update.skipped"] = "update.skipped"
    update: Id
    batch: int
    sampler: Id
    census: dict[str, int]
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    reason: str


class CheckpointSaved(Contract):
    """Write: a checkpoint; its objects must be uploaded."""

    type: Literal["checkpoint.saved"] = "checkpoint.saved"
    checkpoint: Checkpoint


class ComputeWaiting(Contract):
    """Write: a training service keeps an operation waiting, for another reason than before;
    `active` says that it no longer does."""

    type: Literal["compute.waiting"] = "compute.waiting"
    operation: str = Field(max_length=64)
    trainer: str | None = None
    state: Literal["active", "slow", "rate_limited", "no_capacity", "paused"]
    reason: str | None = None
    """The service's own words."""
    seconds: float = Field(ge=0)
    """How long the operation had been under way when this was seen."""


class LogWritten(Contract):
    """Write: a piece of a log; causes no event."""

    type: Literal["log.written"] = "log.written"
    piece: LogPiece


Write = Annotated[
    BatchStarted
    | BatchSettled
    | GroupOpened
    | GroupSettled
    | GroupJudged
    | TrialOpened
    | TrialSettledWrite
    | SamplerSaved
    | UpdatePreparedWrite
    | UpdateContributed
    | UpdateAccumulated
    | UpdateUnresolved
    | UpdateAcknowledged
    | UpdateMeasured
    | UpdateEnded
    | UpdateSkipped
    | CheckpointSaved
    | ComputeWaiting
    | LogWritten,
    Field(discriminator="type"),
]


class WriteRequest(Contract):
    """`POST /v1/worker/runs/{run}/writes`: all of it, or nothing."""

    claim: Id
    fence: int
    sequence: int = Field(ge=1)
    writes: tuple[Write, ...] = Field(min_length=1, max_length=1024)


class WriteReply(Contract):
    """The run's last event after the writes."""

    last_event: int


class Completion(Contract):
    """`POST /v1/worker/runs/{run}/complete`: ends the claim.

    `blocked` leaves the run waiting for a named operator action (`reason.next`); `released`
    gives the claim up so that any worker may continue.
    """

    claim: Id
    fence: int
    sequence: int = Field(ge=1)
    outcome: Literal["completed", "failed", "cancelled", "blocked", "released"]
    reason: Problem | None = None
    last_event: int
    """The last event the worker knows of; another boundary is refused."""


class TrialTokenRequest(Contract):
    """`POST /v1/worker/runs/{run}/trials/{trial}/token`."""

    claim: Id
    fence: int
    sampler: Id
    task: Name
    expires_in_sec: float = Field(gt=0, le=LONGEST_TOKEN_SEC)
    """Until the trial's deadline; the hard end of the credential."""
    sampling: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The profile's sampling, which beats the request's."""
    max_calls: int | None = None
    max_output_tokens: int | None = None
    seed: int | None = None


class TrialToken(Contract):
    """A credential for one trial's model calls."""

    token: str
    expires_at: float
    """Unix seconds."""


class TrialClaims(Contract):
    """Claims of a trial token (EdDSA JWT, audience `practicum-proxy`).

    The token of a session has the session's id for run and trial, and fence 1.
    """

    iss: Literal["practicum"]
    aud: Literal["practicum-proxy"]
    org: str
    run: Id
    trial: Id
    fence: int
    sampler: Id
    model: str
    task: Name
    sampling: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    max_calls: int | None = None
    max_output_tokens: int | None = None
    seed: int | None = None
    iat: float
    exp: float
    jti: str


class RenewalRequest(Contract):
    """`POST /v1/proxy/renewals`: the proxy's active trials, every third of a lease."""

    trials: dict[Id, int]
    """Fence of each trial."""


class RenewalReply(Contract):
    """Which of them may go on; the others are answered 403 from now on."""

    active: list[Id]
    lease_sec: float


class EvidenceCommit(Contract):
    """`POST /v1/proxy/evidence`: the sealed evidence of a trial, its object uploaded before.

    Evidence of a superseded fence is stored and never counted. Repeating it is harmless.
    """

    seal: Seal


class SessionCommit(Contract):
    """`POST /v1/proxy/sessions`: what a session said, sealed; its object uploaded before.

    It is kept with the session and is no evidence of any trial. Repeating it is harmless.
    """

    seal: Seal


class SealRequest(Contract):
    """`POST /internal/trials/{trial}/seal` of the proxy, with the worker's key.

    No call of this trial and fence is accepted afterwards. The reply is the `Seal`; repeating
    it returns the same.
    """

    run: Id
    fence: int


class UploadRequest(Contract):
    """`POST /v1/uploads`: permission to create one object."""

    digest: Digest
    size: int = Field(ge=0, le=5 << 30)


class UploadGrant(Contract):
    """How to send the bytes: method, URL (path at the gateway, or absolute) and headers.

    `present` means that the object is there already and nothing need be sent.
    """

    present: bool
    method: Literal["PUT"] = "PUT"
    url: str
    headers: dict[str, str] = Field(default_factory=dict[str, str])
