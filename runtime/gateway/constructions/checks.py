"""What each record must satisfy. A check returns what it found, which is kept with the record.

Runs that a record names were admitted under the construction, so their spend is counted here
and never taken from a record.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue
from sqlalchemy import Connection

from runtime.gateway import lookup, published, resolution, views
from runtime.gateway.constructions import spending
from runtime.gateway.constructions.history import History
from runtime.gateway.lookup import AnyRow
from runtime.gateway.refusals import conflict, invalid
from runtime.storage.tables import checkpoints, comparisons, runs
from specs.comparison import Comparison, Side
from specs.construction import (
    METHOD_RUNS,
    ConstructionBudget,
    PlannedAssessment,
    ProbeAllowance,
)
from specs.construction_records import (
    ApprovalRules,
    Bulk,
    Outcome,
    Probe,
    Propose,
    Record,
    Review,
    RowsFile,
    Spend,
    Training,
)
from specs.errors import Conflict, ErrorCode, ErrorObject, InvalidInput
from specs.ids import Prefix
from specs.plans import EvaluationPlan, SupervisedPlan
from specs.run import RunState
from specs.sources import FileSource

type Found = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Case:
    """A record's construction, and what it is judged by."""

    connection: Connection
    org: str
    history: History
    rules: ApprovalRules

    @property
    def budget(self) -> ConstructionBudget:
        budget = self.history.plan.budget
        assert budget is not None  # a plan without one is not proposed
        return budget

    @property
    def assessment(self) -> PlannedAssessment:
        assessment = self.history.plan.assessment
        assert assessment is not None
        return assessment

    def wrong(self, detail: str, pointer: str, next: str) -> InvalidInput:
        """A refusal of the record at a pointer."""
        return invalid(detail, "construction", pointer, name=self.history.id, next=next)

    def run(self, run: str) -> AnyRow:
        """A run that was admitted under the construction.

        Raises:
            Conflict: it is another's, or nobody's.
        """
        row = lookup.by_id(self.connection, runs, self.org, run, Prefix.RUN)
        if row.construction_id != self.history.id:
            raise conflict(
                f"The run was not admitted under construction {self.history.id}.",
                "run",
                run,
                next=f"Start runs of a construction with --construction {self.history.id}",
            )
        return row

    def digests(self, kind: published.Kind, references: Iterable[str]) -> dict[str, str]:
        """Digests of published documents by reference."""
        found: dict[str, str] = {}
        for reference in references:
            name, _, version = reference.partition("@")
            _, found[reference] = published.read(self.connection, self.org, kind, name, version)
        return found


def check(case: Case, record: Record) -> Found:
    """What is found of a record; raises what `docs/construction.md` lists for its kind."""
    match record:
        case Propose():
            return _propose(case)
        case Probe():
            return _probe(case, record)
        case Review():
            return _review(case, record)
        case Bulk():
            return _bulk(case, record)
        case Training():
            return _training(case, record)
        case Outcome():
            return _outcome(case, record)


def _propose(case: Case) -> Found:
    plan = case.history.plan
    if plan.missing:
        raise case.wrong(
            f"The plan cannot be proposed yet: it lacks {', '.join(plan.missing)}.",
            plan.missing[0],
            f"Complete it: practicum construction revise {case.history.id} @plan.json",
        )
    for field in ("trial_slots", "rows"):
        allowed, asked = (
            getattr(case.rules, f"max_probe_{field}"),
            getattr(case.budget.probe, field),
        )
        if asked > allowed:
            raise Conflict(
                f"A probe of {asked} {field} is more than this gateway lets anybody spend before"
                f" approval: {allowed}.",
                code=ErrorCode.CONSTRUCTION_OVER_BUDGET,
                object=ErrorObject(
                    type="construction", id=case.history.id, pointer=f"/budget/probe/{field}"
                ),
                next="Plan a smaller probe, or let an operator change [approval] in config.toml.",
            )
    for name in (plan.model or "", case.assessment.baseline):
        resolution.named(case.connection, case.org, name, plan.name)
    return dict(case.digests("dataset", [case.assessment.dataset]))


def _probe(case: Case, record: Probe) -> Found:
    states: Found = {}
    for run in record.runs:
        row = case.run(run)
        if not RunState(row.state).terminal:
            raise conflict(
                f"The run is {row.state}: a probe is told when it has ended.",
                "run",
                run,
                next=f"practicum run wait {run}",
            )
        states[run] = row.state
    spend = _spend(case, record, case.budget.probe, "this probe", probing=True)
    return {"runs": states, "probe_spend": spend.model_dump(mode="json")}


def _spend(
    case: Case,
    record: Probe | Bulk,
    allowed: ConstructionBudget | ProbeAllowance,
    what: str,
    *,
    probing: bool,
) -> Spend:
    """What is spent with a record, which must be within what is allowed."""
    files = _new(case, record.files, ("probe",) if probing else ("probe", "bulk"))
    found = spending.of_runs(case.connection, case.history.id)
    before = spending.total(case.history, found, probing=probing)
    declared = spending.declared([record.model_copy(update={"files": files})])
    spend = spending.add([before, declared])
    spending.require_within(case.history, spend, allowed, what)
    return spend


def _review(case: Case, record: Review) -> Found:
    if record.subject != case.history.review_subject:
        raise conflict(
            "The review is of another version of the plan, or of other probes.",
            "construction",
            case.history.id,
            next="Look again, and name the review_subject of: practicum construction show"
            f" {case.history.id}",
        )
    expected = [query.id for query in case.history.plan.queries]
    named = [one.query for one in record.coverage]
    problems = {
        "does not say how far it is covered": set(expected) - set(named),
        "is not among the plan's": set(named) - set(expected),
        "is named twice": {one for one in named if named.count(one) > 1},
    }
    for cause, queries in problems.items():
        if queries:
            raise case.wrong(
                f"Coverage of expected queries: {', '.join(sorted(queries))} {cause}.",
                "/coverage",
                "Judge every expected query once: covered, partial or missing.",
            )
    return {"relevant": record.relevant, "complete": record.complete}


def _bulk(case: Case, record: Bulk) -> Found:
    if case.assessment.dataset in record.datasets:
        raise case.wrong(
            f"{case.assessment.dataset} is held out for the assessment.",
            "/datasets",
            "Use other tasks, or revise the plan.",
        )
    states: Found = {run: case.run(run).state for run in record.runs}
    spend = _spend(case, record, case.budget, "this data", probing=False)
    datasets = case.digests("dataset", record.datasets)
    return {"datasets": dict(datasets), "runs": states, "spend": spend.model_dump(mode="json")}


def _training(case: Case, record: Training) -> Found:
    method = case.history.plan.method
    states: Found = {}
    for run in record.runs:
        row = case.run(run)
        if row.kind != METHOD_RUNS.get(method or ""):
            raise conflict(
                f"The method of the plan is {method}; this is a run of kind {row.kind}.",
                "run",
                run,
                next="Record the runs that train by the approved method.",
            )
        _require_recorded(case, row)
        states[run] = row.state
    return {"runs": states}


def _require_recorded(case: Case, row: AnyRow) -> None:
    """Rows that a run learns from were recorded as bulk data."""
    plan = views.pinned(row.spec).plan
    source = plan.source if isinstance(plan, SupervisedPlan) else None
    if not isinstance(source, FileSource):
        return
    if source.digest not in {file.digest for file in _files(case, ("bulk",))}:
        raise conflict(
            f"It learns from {source.file} ({source.digest}), which no bulk record names.",
            "run",
            row.id,
            next="Record the file: practicum construction record"
            f" {case.history.id} bulk --files {source.file}",
        )


def _outcome(case: Case, record: Outcome) -> Found:
    if record.comparison is None:
        return {}
    row = lookup.by_id(case.connection, comparisons, case.org, record.comparison, Prefix.COMPARISON)
    compared = Comparison.model_validate_json(row.document)
    for side in (compared.baseline, compared.candidate):
        _require_planned(case, side)
    if compared.baseline.model != case.assessment.baseline:
        raise case.wrong(
            f"The comparison's baseline is {compared.baseline.model}; the plan's is"
            f" {case.assessment.baseline}.",
            "/comparison",
            "Compare with an evaluation of the planned baseline.",
        )
    if record.checkpoint is not None:
        _require_made_here(case, record.checkpoint, compared.candidate)
    if record.profile is not None:
        (digest,) = case.digests("profile", [record.profile]).values()
        if compared.candidate.actor != digest:
            raise case.wrong(
                f"The comparison's candidate is not {record.profile}.",
                "/comparison",
                "Compare an evaluation of the published profile with the baseline.",
            )
    return {"verdict": compared.verdict, "comparison_digest": row.digest}


def _require_planned(case: Case, side: Side) -> None:
    """A side was assessed as the plan says: held-out dataset, and attempts of each task."""
    row = lookup.by_id(case.connection, runs, case.org, side.run, Prefix.RUN)
    plan = views.pinned(row.spec).plan
    attempts = plan.trials_per_task if isinstance(plan, EvaluationPlan) else 0
    if row.dataset != case.assessment.dataset or attempts < case.assessment.attempts:
        raise conflict(
            f"It is {attempts} attempts at {row.dataset}; the plan's assessment is"
            f" {case.assessment.attempts} at {case.assessment.dataset}.",
            "run",
            side.run,
            next="Evaluate as planned, and compare these runs.",
        )


def _require_made_here(case: Case, checkpoint: str, candidate: Side) -> None:
    row = lookup.by_id(case.connection, checkpoints, case.org, checkpoint, Prefix.CHECKPOINT)
    case.run(row.run_id)
    if candidate.model != checkpoint:
        raise case.wrong(
            f"The comparison's candidate is {candidate.model}, not the checkpoint.",
            "/comparison",
            f"Evaluate {checkpoint}, and compare that with the baseline.",
        )


def _files(case: Case, kinds: tuple[str, ...]) -> list[RowsFile]:
    """Files that records of these kinds have named."""
    return [
        file
        for step in case.history.steps
        if step.kind in kinds
        for file in spending.record_of(step).files
    ]


def _new(case: Case, files: tuple[RowsFile, ...], kinds: tuple[str, ...]) -> tuple[RowsFile, ...]:
    """Those that were not counted before."""
    counted = {file.digest for file in _files(case, kinds)}
    return tuple(file for file in files if file.digest not in counted)
