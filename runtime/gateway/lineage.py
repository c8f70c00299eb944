"""What came of a record later: runs that started from it, groups that sampled from it.

The way back (checkpoint → update → trials) stands in the records themselves; the way forward
is looked up here, page by page.
"""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import lookup, paging, records, views
from runtime.storage.tables import checkpoints, groups, runs, samplers, updates
from specs.ids import Prefix
from specs.operator_api import RecordedGroup, RecordedGroupPage, RunPage
from specs.plans import SupervisedPlan
from specs.records import Update
from specs.sources import RunSource


def update(connection: Connection, org: str, text: str) -> Update:
    """One update with what it was made of, whichever run it is of."""
    row = lookup.by_short_id(connection, updates, org, text, Prefix.UPDATE)
    return views.update(row, records.contributions_of(connection, [row.id]).get(row.id, ()))


def runs_of_checkpoint(
    connection: Connection, org: str, text: str, cursor: str | None, limit: int
) -> RunPage:
    """Runs whose actor's model is the checkpoint, oldest first."""
    row = lookup.by_short_id(connection, checkpoints, org, text, Prefix.CHECKPOINT)
    return _runs(connection, org, runs.c.model == row.id, cursor, limit)


def runs_of_run(
    connection: Connection, org: str, text: str, cursor: str | None, limit: int
) -> RunPage:
    """Runs whose model is a checkpoint of the run, and those that learn from its trials."""
    row = lookup.by_short_id(connection, runs, org, text, Prefix.RUN)
    saved = sa.select(checkpoints.c.id).where(checkpoints.c.run_id == row.id)
    learning = _learning_from(connection, org, row.id)
    used = sa.or_(runs.c.model.in_(saved), runs.c.id.in_(learning))
    return _runs(connection, org, used, cursor, limit)


def groups_of_checkpoint(
    connection: Connection, org: str, text: str, cursor: str | None, limit: int
) -> RecordedGroupPage:
    """Groups of any run that sampled from what the checkpoint publishes, oldest first."""
    row = lookup.by_short_id(connection, checkpoints, org, text, Prefix.CHECKPOINT)
    return _groups(connection, org, groups.c.sampler_id == row.sampler_id, cursor, limit)


def groups_of_run(
    connection: Connection, org: str, text: str, cursor: str | None, limit: int
) -> RecordedGroupPage:
    """Groups of any run that sampled from what the run saved, oldest first."""
    row = lookup.by_short_id(connection, runs, org, text, Prefix.RUN)
    saved = sa.select(samplers.c.id).where(samplers.c.run_id == row.id)
    return _groups(connection, org, groups.c.sampler_id.in_(saved), cursor, limit)


def _learning_from(connection: Connection, org: str, run: str) -> list[str]:
    """Supervised runs with this source; its id stands in their pinned plans alone."""
    query = sa.select(runs.c.id, runs.c.spec).where(
        runs.c.org_id == org, runs.c.kind == "supervised", runs.c.id > run
    )
    found: list[str] = []
    for row in connection.execute(query):
        plan = views.pinned(row.spec).plan
        source = plan.source if isinstance(plan, SupervisedPlan) else None
        if isinstance(source, RunSource) and source.run == run:
            found.append(row.id)
    return found


def _runs(
    connection: Connection,
    org: str,
    condition: sa.ColumnElement[bool],
    cursor: str | None,
    limit: int,
) -> RunPage:
    query = sa.select(runs).where(runs.c.org_id == org, condition)
    items, following = paging.page(connection, query, (runs.c.id,), cursor, limit, views.run)
    return RunPage(items=items, next=following)


def _groups(
    connection: Connection,
    org: str,
    condition: sa.ColumnElement[bool],
    cursor: str | None,
    limit: int,
) -> RecordedGroupPage:
    query = sa.select(groups).where(groups.c.org_id == org, condition)
    items, following = paging.page(connection, query, (groups.c.id,), cursor, limit, _recorded)
    return RecordedGroupPage(items=items, next=following)


def _recorded(row: lookup.AnyRow) -> RecordedGroup:
    return RecordedGroup(run=row.run_id, group=views.group(row))
