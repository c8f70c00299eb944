"""Records that a worker makes: groups, trials, samplers, updates, checkpoints.

Ids are minted by the record's owner before the effect they name, so a crash leaves an intent
and never an orphan (invariant 12).
"""

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from specs.assessment import Assessment
from specs.base import Contract
from specs.chat import RowOrigin
from specs.ids import Digest, Id, Name, VersionedName
from specs.interaction import Seal
from specs.model import Optimizer


class Batch(Contract):
    """A batch that has been started; bound to its sampler (invariant 7)."""

    batch: int
    sampler: Id
    tasks: tuple[Name, ...]
    settled: bool
    """Whether every group of it has settled and is judged."""


class Group(Contract):
    """A sampling group: one task × one setup × n attempts, all on one sampler snapshot."""

    id: Id
    batch: int
    index: int
    """Place within the batch."""
    task: Name
    task_digest: Digest
    sampler: Id
    size: int
    place: int | None = None
    """Place in the order in which the batch's groups settled, which is the order in which they
    are submitted to the trainer; None until it has settled."""
    judged: bool = False
    """Whether the verdicts on its trials are recorded."""


class TrialState(StrEnum):
    """How far a trial got."""

    OPEN = "open"
    SETTLED = "settled"
    ABANDONED = "abandoned"
    """Its worker died; another trial took the slot."""


class TrialOutcome(StrEnum):
    """How the work ended, apart from its reward."""

    COMPLETED = "completed"
    AGENT_FAILED = "agent_failed"
    """The harness ran and exited with an error."""
    AGENT_TIMEOUT = "agent_timeout"
    MISSING_OUTPUT = "missing_output"
    """A required output is not there."""
    LAUNCH_FAILED = "launch_failed"
    """Environment, files, setup or the start of the harness failed: no work was done."""
    INFRASTRUCTURE = "infrastructure"
    """Sandbox, proxy or platform failed under the work."""
    CANCELLED = "cancelled"


class TrialOpen(Contract):
    """A trial before it starts: one execution of a slot (run, batch, group, index)."""

    id: Id
    group: Id
    index: int
    """Place within the group: 0 … size-1."""


class Artifact(Contract):
    """A file of a trial, kept as an object."""

    path: str
    digest: Digest
    size: int
    truncated: bool = False


class TrialSettled(Contract):
    """What a finished trial leaves, committed as it ends."""

    trial: Id
    outcome: TrialOutcome
    detail: str = Field(default="", max_length=4096)
    exit_code: int | None = None
    missing_outputs: tuple[str, ...] = ()
    environment_version: str | None = None
    launch_plan: Digest | None = None
    """Digest of the canonical launch plan that ran."""
    seconds: dict[str, float] = Field(default_factory=dict[str, float])
    """Wall time by phase: environment, setup, agent, verifier, total."""
    artifacts: tuple[Artifact, ...] = ()
    seal: Seal | None = None
    """Evidence; None only when the proxy could not be reached, which makes it incomplete."""


class Trial(Contract):
    """A trial as it is read."""

    id: Id
    run: Id
    group: Id
    batch: int
    index: int
    task: Name
    sampler: Id
    fence: int
    state: TrialState
    counted: bool
    opened_at: str
    settled_at: str | None = None
    settled: TrialSettled | None = None
    assessment: Assessment | None = None
    eligible: bool | None = None
    """None where nothing learns from the run, or the batch has not been settled yet."""
    ineligible_reason: str | None = None
    advantage: float | None = None


class Eligible(Contract):
    """The verdict of learning on one counted trial."""

    trial: Id
    eligible: bool
    reason: str | None = None
    """Why not: see `runtime.learning.eligibility`."""
    advantage: float | None = None
    """Set for eligible trials of reinforcement learning; zero in a group without variance."""


class Contribution(Contract):
    """Which token spans of a trial, or of a row of a file, move an update, and with what weight."""

    trial: Id | None = None
    """None for a row of a file."""
    row: RowOrigin | None = None
    """Where it was read, if it is a row of a file."""
    group: Id | None = None
    interactions: tuple[Id, ...] = ()
    """In chain order, packed into one datum; none for a row."""
    datum: Digest
    """Digest over the datum's arrays."""
    tokens: int
    trained_tokens: int
    weight: float
    """Per-token advantage (reinforcement) or weight (supervised), before the credit of the call
    and without token terms; the plan says both."""
    reference: Digest | None = None
    """Log-probs of the reference model on the trial's sequences, of which the KL term is made."""


class UpdateState(StrEnum):
    """See invariant 8."""

    PREPARED = "prepared"
    UNRESOLVED = "unresolved"
    ACKNOWLEDGED = "acknowledged"
    SKIPPED = "skipped"
    FAILED = "failed"
    VOID = "void"


class UpdatePrepared(Contract):
    """An update before its first gradient is computed; its contributions follow."""

    id: Id
    batch: int
    trainer: Id
    incarnation: str
    """The compute process in which the gradients live and die."""
    from_state: str | None
    """Name of the trainer state it continues; None = fresh."""
    sampler: Id
    """The sampler that all of the batch's evidence came from."""
    loss: str
    learning_rate: float
    loss_config: dict[str, float] = Field(default_factory=dict[str, float])
    """Parameters of the loss that are not its defaults, in Tinker's words."""


class Update(Contract):
    """An update as it is read."""

    id: Id
    run: Id
    batch: int
    state: UpdateState
    trainer: Id | None
    incarnation: str | None
    from_state: str | None
    sampler: Id | None
    loss: str | None
    learning_rate: float | None
    loss_config: dict[str, float] = Field(default_factory=dict[str, float])
    contributions: tuple[Contribution, ...] = ()
    """In the order in which they were submitted; left out of a worker's `RunRecords`."""
    census: dict[str, int] = Field(default_factory=dict[str, int])
    """Groups and trials by what became of them; known once the batch has settled."""
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    """What was measured of it; `docs/training.md` lists the names."""
    state_digest: Digest | None = None
    sampler_after: Id | None = None
    reason: str | None = None
    resolution: Literal["applied", "not-applied", "abandon"] | None = None
    """What an operator decided about an unresolved update; the next claim acts on it."""
    at: str
    events: dict[str, str] = Field(default_factory=dict[str, str])
    """When it entered each state."""


class CheckpointContext(Contract):
    """Where a run stood when it saved a checkpoint, and what its state can be continued with."""

    plan: Digest
    backend: str
    base_digest: Digest
    optimizer: Optimizer
    steps: int
    """Optimizer steps behind the parameters, those of an earlier run included on `resume`."""
    batches: int
    """Batches of the run that were over, this one included: the next one's number."""
    examples: int | None = None
    """Of a supervised run: examples processed so far, over all epochs."""
    dataset: VersionedName | None = None
    dataset_digest: Digest | None = None
    file: Digest | None = None
    """Of a supervised run on a file."""


class Checkpoint(Contract):
    """A durable saved model with owner and training context; never a progress event."""

    id: Id
    run: Id
    update: Id
    batch: int
    sampler: Id
    base_model: str
    adapter: Digest
    adapter_size: int
    state: Digest | None
    """Trainer and optimizer state."""
    state_size: int | None
    lora: dict[str, JsonValue]
    profile: Digest
    parent: Id | None
    """The checkpoint that the run started from."""
    created_at: str
    final: bool = False
    """Saved after the plan's last batch. Where that batch was skipped, no checkpoint of the run
    is final, and the last one saved holds what the run ended with."""
    context: CheckpointContext | None = None
    """None in records of programs that did not write it."""
    state_expires_at: str | None = None
    """When trainer state may be forgotten; None = never."""
    state_deleted_at: str | None = None
    deleted_at: str | None = None
    """Its weights and state are gone; the record stays, for what was made from it."""


class LogPiece(Contract):
    """A bounded piece of a log."""

    source: Literal["worker", "setup", "harness", "verifier"]
    trial: Id | None = None
    text: str = Field(max_length=65536)


class LogRecord(LogPiece):
    """A stored piece with its place."""

    seq: int
    at: str
