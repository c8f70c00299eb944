"""The construction plan: how a better model or profile is to be made, and the records of making it.

A plan is a versioned document. What happened under it is told by records, each of which moves
its state, in this order and no other:

    draft → proposed → probed → reviewed → approved → executing → training → finished

A probe within a small allowance is the one spend before approval. A review names the plan and
the probes that it looked at, an approval these and the review, each by digest; a revision is a
new version in `draft`, for which no earlier approval counts.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from specs import canonical
from specs.base import Contract
from specs.ids import Digest, Name, VersionedName

SCHEMA = "practicum.construction-plan/v1"
PROBE_SHARE = 0.25
"""A probe's allowance is at most this part of each budget."""

type Method = Literal["none", "supervised", "grpo"]
"""What changes the model: nothing (a profile is built), rows to imitate, rewarded attempts."""

METHOD_RUNS: Mapping[str, str] = {"supervised": "supervised", "grpo": "training"}
"""The kind of run by which a method changes weights."""

Words = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")]
Person = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def content(value: Contract) -> bytes:
    """Canonical bytes of a plan or record with its defaults filled in: what is left out and what
    is given as it would be anyway have one digest."""
    return canonical.canonical_bytes(value.model_dump(mode="json"))


class DeploymentTool(Contract):
    """A tool that the deployed model will have."""

    name: Label
    purpose: str = Field(default="", max_length=4000)


class ExpectedQuery(Contract):
    """Something that the deployed model will be asked."""

    id: Label
    text: Words
    good_answer: str = Field(default="", max_length=4000)
    """What makes an answer useful."""


class DataSource(Contract):
    """Where rows or tasks come from."""

    kind: Literal["dataset", "file", "run", "generated", "documents"]
    reference: Words
    """`org/name@version`, a path, a run, or what generates it from what."""
    purpose: str = Field(default="", max_length=4000)


class ModelSpecLink(Contract):
    """The model specification that the plan serves."""

    digest: Digest
    name: str | None = Field(default=None, max_length=200)


class PlannedAssessment(Contract):
    """How the outcome will be judged, fixed before anything is made."""

    dataset: VersionedName
    """Held out: no source of the plan."""
    attempts: int = Field(ge=1, le=1024)
    """Of each task, at least, on both sides."""
    baseline: Words
    """The model that it is compared with: a base model or a checkpoint."""
    success: Words
    """What would count as better."""


class ProbeAllowance(Contract):
    """What may be spent before approval; None bounds nothing."""

    trial_slots: int = Field(default=0, ge=0)
    rows: int = Field(default=0, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0)


class ConstructionBudget(Contract):
    """What may be spent in all, the probe included; None bounds nothing.

    Trial slots and updates are counted by the gateway from the runs that were admitted under the
    plan. Where `tokens` or `seconds` is bounded, each such run sets `limits.run` accordingly.
    """

    trial_slots: int = Field(ge=0)
    updates: int = Field(default=0, ge=0)
    """Optimizer steps."""
    rows: int = Field(default=0, ge=0)
    """Rows of generated data."""
    tokens: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0)
    probe: ProbeAllowance

    @model_validator(mode="after")
    def _probe_is_small(self) -> Self:
        for field in ProbeAllowance.model_fields:
            whole, part = getattr(self, field), getattr(self.probe, field)
            if whole is not None and (part is None or part > whole * PROBE_SHARE):
                raise ValueError(f"probe.{field} is at most a quarter of {field}; it is {part}")
        return self


class ConstructionPlan(Contract):
    """`practicum.construction-plan/v1`. A draft may lack parts; a proposal may not."""

    schema_: Literal["practicum.construction-plan/v1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    goal: Words
    model_spec: ModelSpecLink | None = None
    model: str | None = Field(default=None, max_length=128)
    """What it starts from: a base model or a checkpoint."""
    tools: tuple[DeploymentTool, ...] | None = None
    """Of the deployed model; empty says that it has none."""
    queries: tuple[ExpectedQuery, ...] = ()
    sources: tuple[DataSource, ...] = ()
    method: Method | None = None
    reason: str = Field(default="", max_length=4000)
    """Why this method, and what stays in instructions or tools."""
    assessment: PlannedAssessment | None = None
    budget: ConstructionBudget | None = None
    notes: str = Field(default="", max_length=20_000)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for what, names in (
            ("query", [query.id for query in self.queries]),
            ("tool", [tool.name for tool in self.tools or ()]),
        ):
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise ValueError(f"the {what} {sorted(twice)[0]!r} is there twice")
        held_out = None if self.assessment is None else self.assessment.dataset
        if any(held_out == source.reference for source in self.sources):
            raise ValueError(f"the held-out dataset {held_out} is also a source")
        if self.budget is not None and self.method is not None:
            if self.method == "none" and self.budget.updates:
                raise ValueError("method none makes no updates; set budget.updates to 0")
            if self.method != "none" and not self.budget.updates:
                raise ValueError(f"method {self.method} needs budget.updates")
        return self

    @property
    def missing(self) -> list[str]:
        """Pointers of what a proposal still needs."""
        lacking = {
            "/model_spec": self.model_spec is None,
            "/model": not self.model,
            "/tools": self.tools is None,
            "/queries": not self.queries,
            "/sources": not self.sources and self.method != "none",
            "/method": self.method is None,
            "/reason": not self.reason,
            "/assessment": self.assessment is None,
            "/budget": self.budget is None,
        }
        return [pointer for pointer, lacks in lacking.items() if lacks]


class ConstructionState(StrEnum):
    """States of a construction, in order; `finished` is terminal."""

    DRAFT = "draft"
    PROPOSED = "proposed"
    PROBED = "probed"
    REVIEWED = "reviewed"
    APPROVED = "approved"
    EXECUTING = "executing"
    TRAINING = "training"
    FINISHED = "finished"


_S = ConstructionState
PROBING = frozenset({_S.PROPOSED, _S.PROBED, _S.REVIEWED})
"""Runs are admitted within the probe's allowance."""
WORKING = frozenset({_S.APPROVED, _S.EXECUTING, _S.TRAINING})
"""Runs are admitted within the budget, training runs included."""

TRANSITIONS: Mapping[str, tuple[frozenset[ConstructionState], ConstructionState]] = {
    "revise": (frozenset(_S) - {_S.FINISHED}, _S.DRAFT),
    "propose": (frozenset({_S.DRAFT}), _S.PROPOSED),
    "probe": (PROBING, _S.PROBED),
    "review": (frozenset({_S.PROBED, _S.REVIEWED}), _S.REVIEWED),
    "approve": (frozenset({_S.REVIEWED}), _S.APPROVED),
    "bulk": (WORKING, _S.EXECUTING),
    "training": (WORKING, _S.TRAINING),
    "outcome": (WORKING, _S.FINISHED),
}
"""Kind of step → the states that it may be taken in, and the state after it."""
