"""One write request being applied: the run it belongs to, and the events it causes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy import Connection

from runtime.gateway import references, views
from runtime.gateway.events import Draft
from runtime.gateway.lookup import AnyRow
from runtime.gateway.refusals import not_found
from runtime.storage import clock
from specs.events import EventType
from specs.run import RunSpec


@dataclass
class Change:
    """The writes of one request, inside its transaction.

    :ivar run: the run's row as it was when the fence was checked.
    :ivar drafts: events to append when every write has been applied.
    """

    connection: Connection
    org: str
    run: AnyRow
    at: str = field(default_factory=clock.timestamp)
    drafts: list[Draft] = field(default_factory=list[Draft])

    @cached_property
    def spec(self) -> RunSpec:
        """The pinned spec of the run."""
        return views.pinned(self.run.spec)

    def emit(self, kind: EventType, **data: JsonValue) -> None:
        """Tell of a change, in the transaction that makes it."""
        self.drafts.append((kind, data))

    def insert(self, table: sa.Table, **values: Any) -> None:
        """Add a row of this org."""
        self.connection.execute(sa.insert(table).values(org_id=self.org, **values))

    def mine(self, table: sa.Table, identity: str) -> AnyRow:
        """A row of this run.

        Raises:
            NotFound: there is none of this id in the run.
        """
        query = sa.select(table).where(table.c.id == identity, table.c.run_id == self.run.id)
        row = self.connection.execute(query).one_or_none()
        if row is None:
            raise not_found(
                table.name.removesuffix("s"), identity, next="Write it before you refer to it."
            )
        return row

    def hold(self, holder: str, digests: Iterable[str], *, what: str) -> None:
        """Let `holder` refer to uploaded objects."""
        references.hold(self.connection, self.org, holder, digests, what=what)
