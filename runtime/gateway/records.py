"""Reads of what workers have recorded: pages for operators, everything for a worker."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import lookup, paging, views
from runtime.gateway.usage import usage
from runtime.storage.tables import (
    batches,
    checkpoints,
    contributions,
    evidence,
    groups,
    logs,
    runs,
    samplers,
    trials,
    updates,
)
from specs.errors import ErrorObject, NotFound
from specs.ids import Prefix
from specs.interaction import Seal
from specs.operator_api import (
    CheckpointPage,
    GroupPage,
    LogPage,
    RunPage,
    TrialPage,
    UpdatePage,
)
from specs.records import Contribution
from specs.worker_api import RunRecords

_SLOT = (trials.c.batch, trials.c.group_position, trials.c.position, trials.c.id)
MAX_LOG_CHARACTERS = 1 << 20
"""Of one page of logs."""


def run_page(connection: Connection, org: str, cursor: str | None, limit: int) -> RunPage:
    """Runs, newest first."""
    query = sa.select(runs).where(runs.c.org_id == org)
    items, following = paging.page(
        connection, query, (runs.c.id,), cursor, limit, views.run, newest_first=True
    )
    return RunPage(items=items, next=following)


def trial_seal(connection: Connection, org: str, trial: str) -> Seal:
    """The evidence of a trial under the fence that it was opened with.

    Raises:
        NotFound: no such trial, or its harness is still at work.
    """
    row = lookup.by_short_id(connection, trials, org, trial, Prefix.TRIAL)
    query = sa.select(evidence.c.seal).where(
        evidence.c.trial_id == row.id, evidence.c.fence == row.fence
    )
    found = connection.execute(query).scalar()
    if found is None:
        raise NotFound(
            "The evidence of the trial is not sealed.",
            object=ErrorObject(type="trial", id=row.id),
            next="Ask again when its harness has ended.",
        )
    return Seal.model_validate_json(found)


def trial_page(
    connection: Connection,
    run: str,
    cursor: str | None,
    limit: int,
    *,
    batch: int | None,
    group: str | None,
    counted: bool | None,
) -> TrialPage:
    """Trials of a run, in slot order."""
    query = sa.select(trials).where(trials.c.run_id == run)
    if batch is not None:
        query = query.where(trials.c.batch == batch)
    if group is not None:
        query = query.where(trials.c.group_id == group)
    if counted is not None:
        query = query.where(trials.c.counted.is_(counted))
    items, following = paging.page(connection, query, _SLOT, cursor, limit, views.trial)
    return TrialPage(items=items, next=following)


def group_page(connection: Connection, run: str, cursor: str | None, limit: int) -> GroupPage:
    """Groups of a run, in order."""
    query = sa.select(groups).where(groups.c.run_id == run)
    key = (groups.c.batch, groups.c.position)
    items, following = paging.page(connection, query, key, cursor, limit, views.group)
    return GroupPage(items=items, next=following)


def update_page(connection: Connection, run: str, cursor: str | None, limit: int) -> UpdatePage:
    """Updates of a run, in order."""
    query = sa.select(updates).where(updates.c.run_id == run)
    key = (updates.c.batch, updates.c.id)
    items, following = paging.page(connection, query, key, cursor, limit, views.update)
    made_of = contributions_of(connection, [item.id for item in items])
    return UpdatePage(
        items=[
            item.model_copy(update={"contributions": tuple(made_of.get(item.id, ()))})
            for item in items
        ],
        next=following,
    )


def contributions_of(
    connection: Connection, updates_wanted: Sequence[str]
) -> dict[str, list[Contribution]]:
    """What each of the updates was made of, in the order of submission."""
    query = (
        sa.select(contributions)
        .where(contributions.c.update_id.in_(updates_wanted))
        .order_by(contributions.c.update_id, contributions.c.number)
    )
    found: dict[str, list[Contribution]] = {}
    for row in connection.execute(query):
        item = Contribution.model_validate_json(row.document)
        found.setdefault(row.update_id, []).append(item)
    return found


def checkpoint_page(
    connection: Connection, org: str, run: str | None, cursor: str | None, limit: int
) -> CheckpointPage:
    """Checkpoints of one run in order, or all of the org, newest first."""
    query = sa.select(checkpoints).where(checkpoints.c.org_id == org)
    if run is not None:
        query = query.where(checkpoints.c.run_id == run)
    items, following = paging.page(
        connection,
        query,
        (checkpoints.c.id,),
        cursor,
        limit,
        views.checkpoint,
        newest_first=run is None,
    )
    return CheckpointPage(items=items, next=following)


def log_page(
    connection: Connection,
    run: str,
    cursor: str | None,
    limit: int,
    *,
    source: str | None,
    trial: str | None,
) -> LogPage:
    """Pieces of a run's logs, oldest first; a page is bounded in characters too."""
    query = sa.select(logs).where(logs.c.run_id == run)
    if source is not None:
        query = query.where(logs.c.source == source)
    if trial is not None:
        query = query.where(logs.c.trial_id == trial)
    limit = min(limit, max(1, MAX_LOG_CHARACTERS // 65536))
    items, following = paging.page(connection, query, (logs.c.seq,), cursor, limit, views.log)
    return LogPage(items=items, next=following)


def everything(connection: Connection, org: str, run: str) -> RunRecords:
    """All that is recorded of a run, to continue after a crash."""
    row = lookup.by_id(connection, runs, org, run, Prefix.RUN)
    first = views.pinned(row.spec).sampler

    def rows(table: sa.Table, *order: sa.Column[str] | sa.Column[int]) -> list[lookup.AnyRow]:
        query = sa.select(table).where(table.c.run_id == run).order_by(*order)
        return list(connection.execute(query).all())

    saved = [views.sampler(row) for row in rows(samplers, samplers.c.id)]
    return RunRecords(
        batches=[views.batch(row) for row in rows(batches, batches.c.batch)],
        groups=[views.group(row) for row in rows(groups, groups.c.batch, groups.c.position)],
        trials=[views.trial(row) for row in rows(trials, *_SLOT)],
        samplers=[first, *(sampler for sampler in saved if sampler.id != first.id)],
        updates=[views.update(row) for row in rows(updates, updates.c.batch, updates.c.id)],
        checkpoints=[views.checkpoint(row) for row in rows(checkpoints, checkpoints.c.id)],
        usage=usage(connection, row),
    )
