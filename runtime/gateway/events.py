"""Events: appended in the transaction that changes the row they tell of.

The sequence is allocated by an UPDATE of the run's row, whose lock is held to the commit: so
the order of commits is the order of the sequence, and it has no gaps (on PostgreSQL too).
"""

import json
from collections.abc import Sequence

import sqlalchemy as sa
from pydantic import JsonValue
from pydantic_core import to_json
from sqlalchemy import Connection

from runtime.storage.bulk import insert_rows
from runtime.storage.clock import timestamp
from runtime.storage.tables import events, runs
from specs.events import Event, EventPage, EventType

type Draft = tuple[EventType, dict[str, JsonValue]]

MAX_PAGE = 1000

_LAST = (
    sa.update(runs)
    .where(runs.c.id == sa.bindparam("run"))
    .values(last_event=runs.c.last_event + sa.bindparam("count"))
    .returning(runs.c.last_event)
)
_COLUMNS = ("org_id", "run_id", "seq", "at", "type", "data")
_AFTER = (
    sa.select(events.c.seq, events.c.at, events.c.type, events.c.data)
    .where(events.c.run_id == sa.bindparam("run"), events.c.seq > sa.bindparam("after"))
    .order_by(events.c.seq)
    .limit(sa.bindparam("limit"))
)


def append(connection: Connection, org: str, run: str, drafts: Sequence[Draft]) -> int:
    """Append events; the run's last sequence number afterwards."""
    last: int = connection.execute(_LAST, {"run": run, "count": len(drafts)}).scalar_one()
    if drafts:
        at = timestamp()
        first = last - len(drafts) + 1
        rows = [
            (org, run, first + offset, at, kind.value, to_json(data).decode())
            for offset, (kind, data) in enumerate(drafts)
        ]
        insert_rows(connection, events, _COLUMNS, rows)
    return last


def after(connection: Connection, run: str, cursor: int, limit: int) -> EventPage:
    """Events of a run after a cursor."""
    rows = connection.execute(_AFTER, {"run": run, "after": cursor, "limit": limit}).all()
    found = [
        Event(run=run, seq=row.seq, at=row.at, type=EventType(row.type), data=json.loads(row.data))
        for row in rows
    ]
    if found:
        ended = found[-1].type.ends_stream
    else:
        ended = _ended_at(connection, run) is not None and _last(connection, run) <= cursor
    return EventPage(events=found, next=found[-1].seq if found else cursor, terminal=ended)


def _last(connection: Connection, run: str) -> int:
    query = sa.select(runs.c.last_event).where(runs.c.id == run)
    return connection.execute(query).scalar_one()


def _ended_at(connection: Connection, run: str) -> str | None:
    query = sa.select(runs.c.ended_at).where(runs.c.id == run)
    return connection.execute(query).scalar_one()
