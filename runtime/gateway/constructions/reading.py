"""A construction as it is read: plan, digests to name, spend beside allowance, runs, steps."""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import views
from runtime.gateway.constructions import history, spending
from runtime.gateway.constructions.history import History
from runtime.gateway.constructions.wording import next_step
from runtime.gateway.lookup import AnyRow
from runtime.gateway.paging import page
from runtime.storage.tables import constructions
from specs.construction import ConstructionPlan, ConstructionState
from specs.construction_records import (
    Approval,
    Construction,
    ConstructionPage,
    ConstructionRow,
    ConstructionRun,
    SpendView,
)
from specs.run import RunState


def show(connection: Connection, org: str, text: str) -> Construction:
    """One construction."""
    return construction_of(connection, history.read(connection, org, text))


def listed(connection: Connection, org: str, cursor: str | None, limit: int) -> ConstructionPage:
    """Constructions, newest first."""
    query = sa.select(constructions).where(constructions.c.org_id == org)
    items, following = page(
        connection, query, [constructions.c.id], cursor, limit, _row, newest_first=True
    )
    return ConstructionPage(items=items, next=following)


def construction_of(connection: Connection, found: History) -> Construction:
    """Everything of a construction."""
    row, review, approval = found.row, found.review, found.approval
    budget = found.plan.budget
    spent = spending.of_runs(connection, row.id)
    return Construction(
        id=row.id,
        name=row.name,
        version=row.version,
        state=found.state,
        created_at=row.created_at,
        updated_at=row.updated_at,
        plan=found.plan,
        plan_digest=row.plan_digest,
        missing=found.plan.missing,
        probes=found.probes,
        review=None if review is None else review.digest,
        review_subject=found.review_subject,
        approval_subject=found.approval_subject,
        approver=None if approval is None else Approval.model_validate(approval.record).approver,
        probe_spend=SpendView(
            spent=spending.total(found, spent, probing=True),
            allowed=budget and budget.probe,
        ),
        total_spend=SpendView(spent=spending.total(found, spent, probing=False), allowed=budget),
        runs=[_run(one) for one in spent],
        steps=list(found.steps),
        next=next_step(row.id, found.state),
    )


def _run(spent: spending.Spent) -> ConstructionRun:
    row = spent.run
    admitted = views.construction(row)
    assert admitted is not None
    return ConstructionRun(
        run=row.id,
        kind=row.kind,
        state=RunState(row.state),
        construction=admitted,
        planned_slots=row.planned_slots,
        spend=spent.spend,
    )


def _row(row: AnyRow) -> ConstructionRow:
    return ConstructionRow(
        id=row.id,
        name=row.name,
        version=row.version,
        state=ConstructionState(row.state),
        method=ConstructionPlan.model_validate_json(row.plan).method,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
