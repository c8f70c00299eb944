"""What a run has spent: tokens as sealed, seconds during which a worker had it.

Abandoned trials count where their evidence was sealed, whichever claim it was. The time of a
claim whose worker died ends with its lease.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import views
from runtime.gateway.lookup import AnyRow
from runtime.storage import clock
from runtime.storage.tables import batches, claims, evidence, trials, updates
from specs.interaction import Seal
from specs.plans import Budget, Limits
from specs.records import UpdateState
from specs.run import BudgetUse
from specs.worker_api import Usage


def usage(connection: Connection, run: AnyRow) -> Usage:
    """Of a run, up to now. Reads every seal of the run."""
    batch = _open_batch(connection, run.id)
    begun = None if batch is None else datetime.fromisoformat(batch.started_at).timestamp()
    return Usage(
        tokens=_tokens(connection, run.id, None),
        seconds=_seconds(connection, run, 0.0),
        batch=None if batch is None else batch.batch,
        batch_tokens=0 if batch is None else _tokens(connection, run.id, batch.batch),
        batch_seconds=0.0 if begun is None else _seconds(connection, run, begun),
        limits=limits(run),
    )


def limits(run: AnyRow) -> Limits:
    """In force: the plan's, with what an operator has added."""
    planned = views.pinned(run.spec).plan.limits
    return planned if run.extended is None else Limits.model_validate_json(run.extended)


def budgets(connection: Connection, run: AnyRow) -> list[BudgetUse]:
    """Each budget in force, with what was spent of it."""
    planned, now = views.pinned(run.spec).plan.limits, limits(run)
    if now.run == now.update == Budget():
        return []
    spent = usage(connection, run)
    used = {
        "run.max_tokens": spent.tokens,
        "run.max_sec": spent.seconds,
        "update.max_tokens": spent.batch_tokens,
        "update.max_sec": spent.batch_seconds,
    }
    found: list[BudgetUse] = []
    for name, value in used.items():
        limit, before = value_of(now, name), value_of(planned, name)
        if limit is not None:
            extended = limit != before
            found.append(BudgetUse(name=name, used=value, limit=limit, extended=extended))
    return found


def value_of(of: Limits, name: str) -> float | None:
    """A budget by its place, such as `run.max_sec`."""
    level, _, field = name.partition(".")
    budget: Budget = getattr(of, level)
    return getattr(budget, field)


def _open_batch(connection: Connection, run: str) -> AnyRow | None:
    """The batch last begun, unless its update is over."""
    query = sa.select(batches).where(batches.c.run_id == run).order_by(batches.c.batch.desc())
    last = connection.execute(query.limit(1)).one_or_none()
    if last is None:
        return None
    over = updates.c.state.in_((UpdateState.ACKNOWLEDGED, UpdateState.SKIPPED))
    settled = sa.select(updates.c.id).where(
        updates.c.run_id == run, updates.c.batch == last.batch, over
    )
    return None if connection.execute(settled.limit(1)).scalar() is not None else last


def _tokens(connection: Connection, run: str, batch: int | None) -> int:
    query = sa.select(evidence.c.seal).where(evidence.c.run_id == run)
    if batch is not None:
        query = query.join(trials, trials.c.id == evidence.c.trial_id)
        query = query.where(trials.c.batch == batch)
    total = 0
    for text in connection.execute(query).scalars():
        seal = Seal.model_validate_json(text)
        total += seal.prompt_tokens + seal.output_tokens
    return total


def _seconds(connection: Connection, run: AnyRow, since: float) -> float:
    """For how long the run was claimed, from `since` (Unix seconds) to now."""
    now = clock.now(connection)
    query = sa.select(claims).where(claims.c.run_id == run.id)
    total = 0.0
    for row in connection.execute(query).all():
        begun = datetime.fromisoformat(row.claimed_at).timestamp()
        if row.ended_at is not None:
            ended = datetime.fromisoformat(row.ended_at).timestamp()
        else:
            ended = min(now, run.lease_until or now)
        total += max(0.0, ended - max(begun, since))
    return total
