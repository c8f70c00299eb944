"""Records of a construction: the steps that move it, and the construction as it is read.

A record says what somebody did; the gateway checks it against the plan and against what it has
counted itself, and keeps it unchanged. The digests of plan, probes and review chain: a review
names the plan and the probes that it looked at, an approval names these and the review.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from specs.base import Contract
from specs.construction import (
    ConstructionBudget,
    ConstructionPlan,
    ConstructionState,
    Label,
    Method,
    Person,
    ProbeAllowance,
    Words,
)
from specs.ids import Digest, Id, Name, VersionedName
from specs.run import RunConstruction, RunState


class RowsFile(Contract):
    """A file of rows by its digest."""

    name: Words
    digest: Digest
    rows: int = Field(ge=1)


class _Record(Contract):
    note: str = Field(default="", max_length=20_000)


class Propose(_Record):
    """The plan is complete; from now on the probe's allowance may be spent."""

    kind: Literal["propose"] = "propose"


class Probe(_Record):
    """What a small trial of the plan gave. More than one is allowed, within the allowance."""

    kind: Literal["probe"] = "probe"
    runs: tuple[Id, ...] = ()
    """Admitted under the plan; what they spent is counted by the gateway."""
    files: tuple[RowsFile, ...] = ()
    tokens: int = Field(default=0, ge=0)
    """Spent elsewhere, such as on a teacher."""
    seconds: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not self.runs and not self.files:
            raise ValueError("a probe names its runs or its files of rows")
        return self


class Coverage(Contract):
    """How far the probe answers an expected query."""

    query: Label
    verdict: Literal["covered", "partial", "missing"]
    note: str = Field(default="", max_length=4000)


class Review(_Record):
    """What a reviewer found who looked at plan and probe with fresh eyes."""

    kind: Literal["review"] = "review"
    subject: Digest
    """`review_subject` of the construction: the plan and the probes that were looked at."""
    reviewer: Person
    relevant: bool
    """Whether the rows or attempts are what the deployed model will meet."""
    coverage: tuple[Coverage, ...]
    """Of every expected query."""
    findings: tuple[Words, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every named query is covered."""
        return all(one.verdict == "covered" for one in self.coverage)


class Bulk(_Record):
    """Data that was made or chosen at full size."""

    kind: Literal["bulk"] = "bulk"
    datasets: tuple[VersionedName, ...] = ()
    files: tuple[RowsFile, ...] = ()
    runs: tuple[Id, ...] = ()
    tokens: int = Field(default=0, ge=0)
    """Spent elsewhere, such as on a teacher."""
    seconds: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not (self.runs or self.files or self.datasets):
            raise ValueError("bulk data names datasets, files of rows or runs")
        return self


class Training(_Record):
    """Training runs of the plan's method."""

    kind: Literal["training"] = "training"
    runs: tuple[Id, ...] = Field(min_length=1)


class Outcome(_Record):
    """What came of it, compared with the baseline on the held-out dataset."""

    kind: Literal["outcome"] = "outcome"
    result: Literal["checkpoint", "profile", "baseline"]
    """`profile`: a published profile without a weight update; `baseline`: nothing was better."""
    checkpoint: Id | None = None
    profile: VersionedName | None = None
    comparison: Id | None = None

    @model_validator(mode="after")
    def _names_its_result(self) -> Self:
        named = {"checkpoint": self.checkpoint, "profile": self.profile}
        for what, value in named.items():
            if (self.result == what) != (value is not None):
                needs = "needs a" if value is None else "has no"
                raise ValueError(f"the result {self.result} {needs} {what}")
        if self.result == "baseline" and not self.note:
            raise ValueError("say in the note why the baseline stays")
        if self.result != "baseline" and self.comparison is None:
            raise ValueError(f"a {self.result} is compared with the baseline; name the comparison")
        return self


Record = Annotated[
    Propose | Probe | Review | Bulk | Training | Outcome, Field(discriminator="kind")
]
RECORDS: Mapping[str, type[Propose | Probe | Review | Bulk | Training | Outcome]] = {
    "propose": Propose,
    "probe": Probe,
    "review": Review,
    "bulk": Bulk,
    "training": Training,
    "outcome": Outcome,
}
type RecordKind = Literal["propose", "probe", "review", "bulk", "training", "outcome"]


class Approver(Contract):
    """Who approves. A policy is the gateway's own rules, checked by it."""

    kind: Literal["person", "researcher", "policy"]
    name: Person


class Approval(Contract):
    """`POST /v1/constructions/{construction}/approve`."""

    approver: Approver
    subject: Digest
    """`approval_subject` of the construction: the plan, the probes and the review."""
    note: str = Field(default="", max_length=20_000)


class ApprovalRules(Contract):
    """What the gateway approves as a policy, and what it lets anybody probe (`[approval]`)."""

    policy: Person = "small"
    """The name that an approver of kind `policy` gives."""
    max_trial_slots: int = Field(default=256, ge=0)
    max_updates: int = Field(default=128, ge=0)
    max_rows: int = Field(default=5000, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0)
    max_probe_trial_slots: int = Field(default=64, ge=0)
    """Of any plan, whoever will approve it."""
    max_probe_rows: int = Field(default=500, ge=0)


class ConstructionSubmission(Contract):
    """`POST /v1/constructions`: a draft; the same again is the same construction."""

    id: Id
    plan: ConstructionPlan


class ConstructionRevision(Contract):
    """`POST /v1/constructions/{construction}/revise`: the next version, in `draft`."""

    replaces: int = Field(ge=1)
    """The version that was read."""
    plan: ConstructionPlan
    note: str = Field(default="", max_length=20_000)


class RecordRequest(Contract):
    """`POST /v1/constructions/{construction}/records`."""

    record: Record


class Spend(Contract):
    """What was spent, or is set aside for runs that have not ended."""

    trial_slots: int = 0
    updates: int = 0
    rows: int = 0
    tokens: int = 0
    seconds: float = 0.0


class SpendView(Contract):
    """Spend beside what is allowed."""

    spent: Spend
    allowed: ConstructionBudget | ProbeAllowance | None


class ConstructionRun(Contract):
    """A run that was admitted under a construction."""

    run: Id
    kind: str
    state: RunState
    construction: RunConstruction
    planned_slots: int
    spend: Spend


class ConstructionStep(Contract):
    """One step, as it was recorded. Steps are only ever added."""

    seq: int
    version: int
    at: str
    kind: str
    state: ConstructionState
    """After it."""
    by: str
    """Whose credential recorded it."""
    digest: Digest
    """Of the record."""
    record: dict[str, JsonValue]
    found: dict[str, JsonValue]
    """What the gateway looked up and counted."""


class Construction(Contract):
    """A construction as it is read."""

    id: Id
    name: Name
    version: int
    state: ConstructionState
    created_at: str
    updated_at: str
    plan: ConstructionPlan
    plan_digest: Digest
    missing: list[str]
    """Pointers of what a proposal still needs."""
    probes: list[Digest]
    """Probe records of this version."""
    review: Digest | None
    """The review of these probes."""
    review_subject: Digest | None
    """What a review names: the plan and its probes."""
    approval_subject: Digest | None
    """What an approval names: the plan, its probes and their review."""
    approver: Approver | None
    """Of this version."""
    probe_spend: SpendView
    total_spend: SpendView
    runs: list[ConstructionRun]
    steps: list[ConstructionStep]
    next: str


class ConstructionRow(Contract):
    """A construction in a list."""

    id: Id
    name: Name
    version: int
    state: ConstructionState
    method: Method | None
    created_at: str
    updated_at: str


class ConstructionPage(Contract):
    items: list[ConstructionRow]
    next: str | None = None
