"""Runs: what is submitted, what is pinned, and what is read back."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from specs.base import Contract
from specs.dataset import TaskEntry
from specs.errors import Problem
from specs.grant import StartedBy
from specs.ids import Digest, Id, VersionedName
from specs.plans import Plan

SCHEMA = "practicum.run/v1"


class RunState(StrEnum):
    """States of a run; the last three are terminal."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


class Submission(Contract):
    """Body of `POST /v1/runs`; the header `Idempotency-Key` names the request.

    `actor` is a whole profile document, or `org/name@version` of a published one. Whether
    this is `run start` or `train start` follows from the plan's kind.
    """

    dataset: VersionedName | None = None
    """Absent for a supervised plan: its tasks are those of the source run."""
    actor: dict[str, JsonValue] | VersionedName
    plan: dict[str, JsonValue]
    judge: dict[str, JsonValue] | str | None = None
    construction: Id | None = None
    """The construction whose allowance or budget the run spends; it is checked at admission."""


class RunConstruction(Contract):
    """Under which version of a construction plan a run was admitted, and as what."""

    id: Id
    version: int
    use: Literal["probe", "work"]
    """`probe` before the approval of that version, within its small allowance."""


class SamplerRef(Contract):
    """A frozen inference state of the policy: base model and adapter, never a live handle."""

    id: Id
    backend: str
    base_model: str
    base_digest: Digest
    tokenizer_digest: Digest
    renderer: str
    """Name and version of the proxy's renderer, such as `chatml/1`."""
    adapter: Digest | None = None


class RunSpec(Contract):
    """The pinned specification: all that the run needs, by digest. Immutable after admission."""

    schema_: Literal["practicum.run/v1"] = Field(default=SCHEMA, alias="schema")
    id: Id
    dataset: VersionedName | None
    dataset_digest: Digest | None
    tasks: tuple[TaskEntry, ...]
    """The selected tasks in the dataset's order."""
    actor_name: str
    actor: Digest
    """Digest of the canonical profile, which is stored as an object."""
    plan: Plan
    plan_digest: Digest
    sampler: SamplerRef
    """What the actor's model resolved to: S₀ of the first batch."""
    initial_checkpoint: Id | None = None
    initial_state: Digest | None = None
    """Trainer state to resume from, where the plan says `resume`."""
    reference: SamplerRef | None = None
    """What `kl.reference` resolved to, where the plan has a KL penalty."""
    fingerprints: dict[str, str] = Field(default_factory=dict[str, str])
    """Versions that the result depends on: practicum, renderer, harbor, engine."""


class Admission(Contract):
    """What `--dry-run` shows and what a started run was admitted with; starts nothing itself."""

    kind: Literal["evaluation", "training", "supervised"]
    planned_slots: int
    batches: int
    """Optimizer boundaries at most; 0 for an evaluation."""
    distinct_tasks: int
    optimizer_initialization: Literal["fresh", "resume"] | None
    resources: dict[str, JsonValue]
    """Effective values after plan > task > default."""
    overrides: list[str]
    """Each effective value that replaces a task's or profile's own, in words."""
    sampler: SamplerRef
    actor: Digest
    plan: dict[str, JsonValue]
    """The plan with its kind and every default filled in."""
    construction: RunConstruction | None = None


class Run(Contract):
    """A run as it is read."""

    id: Id
    kind: Literal["evaluation", "training", "supervised"]
    state: RunState
    reason: Problem | None = None
    """Why it is blocked or failed, and what to do."""
    created_at: str
    started_at: str | None = None
    ended_at: str | None = None
    dataset: str | None
    actor_name: str
    model: str
    claims: int = 0
    """How often a worker has claimed it; more than one means that it was recovered."""
    last_event: int
    started_by: StartedBy | None = None
    """The grant that started it; None: an operator."""
    construction: RunConstruction | None = None
    spec: RunSpec


class BudgetUse(Contract):
    """One budget of a run and what was spent of it."""

    name: str
    """Its place in the plan's limits: `run.max_tokens`, `update.max_sec`, …"""
    used: float
    """Of an update's budget: by the batch that is under way."""
    limit: float
    extended: bool
    """Whether an operator has raised it since admission."""


class RunResult(Contract):
    """Counts that must not be mixed up, and the scores."""

    run: Id
    kind: Literal["evaluation", "training", "supervised"]
    state: RunState
    planned_slots: int
    trials_started: int
    """Every execution, abandoned ones included."""
    trials_settled: int
    """Counted trials: one per slot."""
    trials_scored: int
    trials_eligible: int
    trials_abandoned: int
    launch_failed: int
    distinct_tasks: int
    batches: int
    updates: dict[str, int]
    """By state: acknowledged, skipped, unresolved, failed, void."""
    checkpoints: list[Id]
    reward_mean: float | None
    """Over scored counted trials."""
    success: float | None
    """Mean over tasks of the mean reward of their scored trials."""
    by_task: dict[str, list[float | None]]
    """Rewards of counted trials in slot order; None = no reward."""
    by_family: dict[str, float]
    environment_versions: list[str]
    prompt_tokens: int
    output_tokens: int
    seconds: float | None
    budgets: list[BudgetUse] = Field(default_factory=list[BudgetUse])
    """Those that the plan sets."""
