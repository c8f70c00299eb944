"""Events of a run: gap-free sequence, closed set of types, written with the row they tell of."""

from enum import StrEnum

from pydantic import Field, JsonValue

from specs.base import Contract
from specs.ids import Id


class EventType(StrEnum):
    """Every event type; documented in `docs/events.md`."""

    RUN_ADMITTED = "run.admitted"
    RUN_CLAIMED = "run.claimed"
    RUN_CANCELLING = "run.cancelling"
    RUN_BLOCKED = "run.blocked"
    RUN_UNBLOCKED = "run.unblocked"
    RUN_EXTENDED = "run.extended"
    RUN_COMPLETED = "run.completed"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    BATCH_STARTED = "batch.started"
    BATCH_SETTLED = "batch.settled"
    GROUP_OPENED = "group.opened"
    GROUP_SETTLED = "group.settled"
    GROUP_JUDGED = "group.judged"
    TRIAL_OPENED = "trial.opened"
    TRIAL_SETTLED = "trial.settled"
    TRIAL_ABANDONED = "trial.abandoned"
    EVIDENCE_SEALED = "evidence.sealed"
    SAMPLER_SAVED = "sampler.saved"
    UPDATE_PREPARED = "update.prepared"
    UPDATE_CONTRIBUTED = "update.contributed"
    UPDATE_ACCUMULATED = "update.accumulated"
    UPDATE_UNRESOLVED = "update.unresolved"
    UPDATE_ACKNOWLEDGED = "update.acknowledged"
    UPDATE_MEASURED = "update.measured"
    UPDATE_FAILED = "update.failed"
    UPDATE_SKIPPED = "update.skipped"
    UPDATE_VOID = "update.void"
    CHECKPOINT_SAVED = "checkpoint.saved"
    COMPUTE_WAITING = "compute.waiting"

    @property
    def ends_stream(self) -> bool:
        """Whether no event follows."""
        return self in (EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)


class Event(Contract):
    """One event; `seq` starts at 1 and has no gaps within a run."""

    run: Id
    seq: int
    at: str
    type: EventType
    data: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class EventPage(Contract):
    """Events after a cursor; repeat with `after=next` until `terminal`."""

    events: list[Event]
    next: int
    terminal: bool
    """Whether the run has ended and this page holds its last event."""
