"""What an episode is judged by: records, the rows that were trained on, the journal, the evidence.

Everything that can be missing is optional here, so that the checks can say what is missing. A
value of `Facts` is plain data: the checks are functions of it and read nothing.
"""

from datetime import datetime

from pydantic import Field

from runtime.specialist.findings import Finding
from specs.base import Contract
from specs.comparison import ComparisonRecord
from specs.construction_records import Construction
from specs.episode import Episode
from specs.ids import Digest, Id
from specs.journal import JournalEntry
from specs.plans import SupervisedPlan
from specs.records import Checkpoint
from specs.run import Run
from specs.sources import FileSource


class SubAgent(Contract):
    """An agent that the main agent started, as its own calls show it."""

    name: str
    """The harness's own name of it."""
    kind: str | None
    """What the main agent asked for; None where no such request is found."""
    began: str
    ended: str
    looked_at: str
    """The inputs of its tool calls, one after the other."""


class TrainedRows(Contract):
    """A file that a run learned from."""

    digest: Digest
    runs: tuple[Id, ...]
    readable: bool
    findings: tuple[Finding, ...] = ()
    """Against the model specification and the held-out tasks."""


class JournalFacts(Contract):
    """A journal, read whole."""

    entries: tuple[JournalEntry, ...]
    problems: tuple[str, ...]


class Facts(Contract):
    """One episode."""

    episode: Episode
    began: str
    """When the trial or session was opened: whatever is older was not made in it."""
    problems: tuple[str, ...] = ()
    """What could not be read at all."""
    construction: Construction | None = None
    runs: dict[Id, Run] = Field(default_factory=dict[str, Run])
    """Runs of the construction, of the comparison, and others that the agent started."""
    own: tuple[Id, ...] | None = None
    """Runs that the agent's own grant started; None where it had an operator's credential."""
    checkpoint: Checkpoint | None = None
    comparison: ComparisonRecord | None = None
    held_out: dict[str, Digest] = Field(default_factory=dict[str, str])
    """Tasks of the held-out dataset."""
    held_out_digest: Digest | None = None
    spec_digest: Digest | None = None
    """Of the sealed model specification that was left."""
    rows: tuple[TrainedRows, ...] = ()
    journal: JournalFacts | None = None
    sub_agents: tuple[SubAgent, ...] = ()


def trained_file(run: Run) -> FileSource | None:
    """The file that a run learns from, if it learns from one."""
    plan = run.spec.plan
    source = plan.source if isinstance(plan, SupervisedPlan) else None
    return source if isinstance(source, FileSource) else None


def moment(text: str) -> datetime:
    """A recorded time."""
    return datetime.fromisoformat(text)
