"""What is spent under a construction, counted by the gateway, and what may still be.

A run that has not ended counts what it was admitted with; one that has ended counts what it
used: slots that a trial was opened in, steps that were or may have been applied, tokens that
were sealed, seconds with a worker. Rows, and what a record says was spent elsewhere, are added.
Spend of earlier versions stays spent.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import usage
from runtime.gateway.constructions.history import History, locked
from runtime.gateway.constructions.wording import next_step
from runtime.gateway.context import Caller
from runtime.gateway.lookup import AnyRow
from runtime.storage.tables import runs, trials, updates
from specs.construction import (
    METHOD_RUNS,
    PROBING,
    WORKING,
    ConstructionBudget,
    ConstructionState,
    ProbeAllowance,
)
from specs.construction_records import Bulk, ConstructionStep, Probe, Spend
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.plans import EvaluationPlan, Limits, SupervisedPlan, TrainingPlan
from specs.records import UpdateState
from specs.run import Admission, RunConstruction, RunState

type Use = Literal["probe", "work"]
_APPLIED = (UpdateState.ACKNOWLEDGED, UpdateState.UNRESOLVED)


@dataclass(frozen=True, slots=True)
class Spent:
    """A run under a construction, and what it counts."""

    run: AnyRow
    spend: Spend


def of_runs(connection: Connection, construction: str) -> list[Spent]:
    """The runs that were admitted under a construction, oldest first."""
    query = sa.select(runs).where(runs.c.construction_id == construction).order_by(runs.c.id)
    return [Spent(run, _of_run(connection, run)) for run in connection.execute(query).all()]


def _of_run(connection: Connection, run: AnyRow) -> Spend:
    """What one run has spent, or may still spend."""
    used = usage.usage(connection, run)
    if not RunState(run.state).terminal:
        admission = Admission.model_validate_json(run.admission)
        limits = usage.limits(run).run
        return Spend(
            trial_slots=run.planned_slots,
            updates=admission.batches,
            tokens=max(used.tokens, limits.max_tokens or 0),
            seconds=max(used.seconds, limits.max_sec or 0.0),
        )
    slots = sa.select(trials.c.group_id, trials.c.position).where(trials.c.run_id == run.id)
    applied = sa.select(updates.c.id).where(
        updates.c.run_id == run.id, updates.c.state.in_(_APPLIED)
    )
    return Spend(
        trial_slots=_count(connection, slots.distinct()),
        updates=_count(connection, applied),
        tokens=used.tokens,
        seconds=used.seconds,
    )


def total(
    history: History, found: Iterable[Spent], *, probing: bool, without: str | None = None
) -> Spend:
    """In all, or with `probing` before approval alone; `without` leaves a run out."""
    counted = [
        one.spend
        for one in found
        if one.run.id != without and (one.run.construction_use == "probe" or not probing)
    ]
    kinds = ("probe",) if probing else ("probe", "bulk")
    return add([*counted, declared(record_of(s) for s in history.steps if s.kind in kinds)])


def record_of(step: ConstructionStep) -> Probe | Bulk:
    """The record of a step that names data."""
    kind = Probe if step.kind == "probe" else Bulk
    return kind.model_validate_json(json.dumps(step.record))


def declared(records: Iterable[Probe | Bulk]) -> Spend:
    """What records say was made or spent outside of runs; a file counts once."""
    given = list(records)
    rows = {file.digest: file.rows for record in given for file in record.files}
    return Spend(
        rows=sum(rows.values()),
        tokens=sum(record.tokens for record in given),
        seconds=sum(record.seconds for record in given),
    )


def add(parts: Iterable[Spend]) -> Spend:
    """The sum of several."""
    given = list(parts)
    return Spend(
        **{field: sum(getattr(one, field) for one in given) for field in Spend.model_fields}
    )


def require_within(
    history: History, spend: Spend, allowed: ConstructionBudget | ProbeAllowance, what: str
) -> None:
    """Refuse a total beyond what the plan allows.

    Raises:
        Conflict: `construction_over_budget`, naming what is exceeded and by how much.
    """
    place = "budget.probe" if isinstance(allowed, ProbeAllowance) else "budget"
    for field in type(allowed).model_fields:
        limit, value = getattr(allowed, field), getattr(spend, field, None)
        if limit is not None and value is not None and value > limit:
            raise Conflict(
                f"With {what}, {value:g} {field} would be spent under the construction; its plan"
                f" allows {limit:g}.",
                code=ErrorCode.CONSTRUCTION_OVER_BUDGET,
                object=ErrorObject(
                    type="construction",
                    id=history.id,
                    pointer=f"/{place.replace('.', '/')}/{field}",
                ),
                next=_less(history),
            )


def admit(
    connection: Connection,
    caller: Caller,
    construction: str,
    plan: EvaluationPlan | TrainingPlan | SupervisedPlan,
    admission: Admission,
) -> RunConstruction:
    """Check a run against the construction that it names; in the transaction that admits it.

    Raises:
        Conflict: `construction_not_approved` or `construction_over_budget`.
    """
    history = locked(connection, caller, construction)
    use = _use(history, plan.kind)
    budget = history.plan.budget
    assert budget is not None  # a plan without one is not proposed
    allowed = budget.probe if use == "probe" else budget
    _require_limits(history, plan, admission, allowed)
    needed = Spend(
        trial_slots=admission.planned_slots,
        updates=admission.batches,
        tokens=plan.limits.run.max_tokens or 0,
        seconds=plan.limits.run.max_sec or 0.0,
    )
    found = of_runs(connection, history.id)
    before = total(history, found, probing=use == "probe")
    require_within(history, add([before, needed]), allowed, "this run")
    if use == "probe":  # a probe is part of the whole
        before = total(history, found, probing=False)
        require_within(history, add([before, needed]), budget, "this run")
    return RunConstruction(id=history.id, version=history.row.version, use=use)


def extend(connection: Connection, caller: Caller, run: AnyRow, limits: Limits) -> None:
    """Check new limits of a run against the construction that it was admitted under."""
    if run.construction_id is None:
        return
    history = locked(connection, caller, run.construction_id)
    budget = history.plan.budget
    if budget is None:
        return
    probing = run.construction_use == "probe"
    found = of_runs(connection, history.id)
    others = total(history, found, probing=probing, without=run.id)
    wanted = Spend(tokens=limits.run.max_tokens or 0, seconds=limits.run.max_sec or 0.0)
    allowed = budget.probe if probing else budget
    require_within(history, add([others, wanted]), allowed, "this extension")


def _use(history: History, kind: str) -> Use:
    if kind == "evaluation" and history.state in PROBING:
        return "probe"
    if history.state not in WORKING:
        raise _not_approved(
            history, f"The construction is {history.state}: it admits no {kind} run."
        )
    method = history.plan.method
    if kind != "evaluation" and METHOD_RUNS.get(method or "") != kind:
        raise _not_approved(
            history,
            f"The approved method is {method}; this is a {kind} run.",
            "Use the approved method, or revise the plan and have it approved.",
        )
    return "work"


def _require_limits(
    history: History,
    plan: EvaluationPlan | TrainingPlan | SupervisedPlan,
    admission: Admission,
    allowed: ConstructionBudget | ProbeAllowance,
) -> None:
    """A run under a plan that bounds tokens or seconds has a bound of its own."""
    limits = plan.limits.run
    unbounded = {
        "max_tokens": allowed.tokens is not None
        and admission.planned_slots
        and limits.max_tokens is None,
        "max_sec": allowed.seconds is not None and limits.max_sec is None,
    }
    for field, lacks in unbounded.items():
        if lacks:
            raise Conflict(
                f"The construction plan bounds what its runs spend, and this run sets no"
                f" limits.run.{field}.",
                code=ErrorCode.CONSTRUCTION_OVER_BUDGET,
                object=ErrorObject(type="plan", pointer=f"/limits/run/{field}"),
                next=f"Set limits.run.{field}; practicum construction show {history.id}",
            )


def _not_approved(history: History, detail: str, step: str | None = None) -> Conflict:
    return Conflict(
        detail,
        code=ErrorCode.CONSTRUCTION_NOT_APPROVED,
        object=ErrorObject(type="construction", id=history.id),
        next=step or next_step(history.id, history.state),
    )


def _less(history: History) -> str:
    if history.state is ConstructionState.FINISHED:
        return "Make a new construction for further work."
    return f"Plan less, or: practicum construction revise {history.id} @plan.json"


def _count(connection: Connection, query: sa.Select[*tuple[object, ...]]) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one()
