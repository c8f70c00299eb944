"""Episodes: assignments of a training agent, and what is found of its work.

An episode is the author's side: what is held out, what the result is compared with, who may
approve, what may be spent. The agent leaves an *outcome* that names its records and says nothing
of them; whether the workflow was kept is derived from the records alone. The checkpoint's quality
is reported apart and is no part of the reward: a careful negative result is a good episode.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.base import Contract
from specs.comparison import Interval, Verdict
from specs.ids import Id, Name, VersionedName
from specs.journal import EntryKind

SCHEMA = "practicum.episode/v1"

type CheckId = Literal[
    "outcome",
    "approval",
    "probe",
    "review",
    "data",
    "held_out",
    "training",
    "checkpoint",
    "evaluation",
    "journal",
    "budget",
]

PROMISES: dict[CheckId, str] = {
    "outcome": "the outcome names records that exist and were made in this episode",
    "approval": "the present version of the plan was approved by somebody who may",
    "probe": "a probe within its allowance came before approval, and bulk data after it",
    "review": "a sub-agent looked at the probe before its review was recorded",
    "data": "the very rows that were trained on fit the model specification",
    "held_out": "nothing that was trained on is held out",
    "training": "the approved method ran to its end under the construction",
    "checkpoint": "the checkpoint exists and comes from that run and from the baseline",
    "evaluation": "a recorded comparison sets it against the baseline on the held-out tasks",
    "journal": "an undamaged journal tells of the decisions, and links runs and checkpoint",
    "budget": "all spending was under the construction and within its budgets",
}

Path = Annotated[str, StringConstraints(max_length=1024, pattern=r"^[^\x00]+$")]


class EpisodeBudget(Contract):
    """What the whole episode may spend; None bounds nothing."""

    trial_slots: int = Field(ge=0)
    updates: int = Field(ge=0)
    rows: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, ge=0)


class Episode(Contract):
    """`practicum.episode/v1`."""

    schema_: Literal["practicum.episode/v1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    held_out: VersionedName
    attempts: int = Field(ge=1)
    """At each held-out task, on both sides of the comparison."""
    baseline: str = Field(min_length=1, max_length=128)
    """The model that the result starts from and is compared with."""
    approvers: tuple[Literal["person", "researcher", "policy"], ...] = ("policy",)
    reviewer: str | None = Field(default=None, max_length=128)
    """Kind of the sub-agent that reviews, as the harness names it; None: any."""
    journal: tuple[EntryKind, ...] = ("decision", "change", "comparison")
    """Kinds of entry that there must be."""
    budget: EpisodeBudget


class EpisodeOutcome(Contract):
    """What the agent leaves: names of its records, paths of files below this file's folder."""

    schema_: Literal["practicum.episode-outcome/v1"] = Field(
        default="practicum.episode-outcome/v1", alias="schema"
    )
    construction: Id
    model_spec: Path
    journal: Path


class EpisodeCheck(Contract):
    """One promise of the workflow."""

    id: CheckId
    ok: bool
    promise: str
    causes: tuple[str, ...] = ()
    """Why it does not hold."""


class EpisodeQuality(Contract):
    """How good the result is; no part of the reward."""

    comparison: Id
    baseline: float | None
    candidate: float | None
    difference: Interval | None
    """Candidate minus baseline, paired by task."""
    verdict: Verdict
    caveats: tuple[str, ...]


class EpisodeReport(Contract):
    """What was found. `reward` is 1 where every check holds."""

    episode: Name
    ok: bool
    reward: Literal[0, 1]
    reasons: tuple[str, ...]
    """Each cause with its check."""
    checks: tuple[EpisodeCheck, ...]
    construction: Id | None
    result: Literal["checkpoint", "profile", "baseline"] | None
    checkpoint: Id | None
    quality: EpisodeQuality | None
