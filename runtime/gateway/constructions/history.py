"""What was recorded of a construction: its present plan, its steps, and the digests in force.

Only steps of the present version count, so a revision voids what was approved before it; a new
probe voids the review of the probes before it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy import Connection

from runtime.gateway import lookup
from runtime.gateway.context import Caller
from runtime.gateway.lookup import AnyRow
from runtime.storage.tables import construction_steps, constructions
from specs import canonical
from specs.construction import ConstructionPlan, ConstructionState
from specs.construction_records import ConstructionStep
from specs.errors import ErrorObject, Forbidden
from specs.ids import Prefix


@dataclass(frozen=True, slots=True)
class History:
    """One construction with everything that was recorded of it."""

    row: AnyRow
    plan: ConstructionPlan
    steps: tuple[ConstructionStep, ...]

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def state(self) -> ConstructionState:
        return ConstructionState(self.row.state)

    @property
    def present(self) -> list[ConstructionStep]:
        """Steps of the present version."""
        return [step for step in self.steps if step.version == self.row.version]

    @property
    def probes(self) -> list[str]:
        """Digests of the probe records of this version."""
        return [step.digest for step in self.present if step.kind == "probe"]

    @property
    def review(self) -> ConstructionStep | None:
        """The last review of these probes."""
        return self._last("review", since="probe")

    @property
    def approval(self) -> ConstructionStep | None:
        """The approval of this version."""
        return self._last("approve")

    @property
    def review_subject(self) -> str | None:
        """Digest of what a review looks at; None before there is a probe."""
        return canonical.digest(self._subject()) if self.probes else None

    @property
    def approval_subject(self) -> str | None:
        """Digest of what an approval approves; None before there is a review."""
        review = self.review
        if review is None:
            return None
        return canonical.digest({**self._subject(), "review": review.digest})

    def _subject(self) -> dict[str, JsonValue]:
        return {
            "construction": self.id,
            "version": self.row.version,
            "plan": self.row.plan_digest,
            "probes": list[JsonValue](self.probes),
        }

    def _last(self, kind: str, since: str | None = None) -> ConstructionStep | None:
        found: ConstructionStep | None = None
        for step in self.present:
            if step.kind == kind:
                found = step
            elif step.kind == since:
                found = None
        return found


def author(caller: Caller) -> str:
    """How steps of a caller are signed."""
    return str(caller.role) if caller.grant is None else f"grant {caller.grant.id}"


def locked(connection: Connection, caller: Caller, construction: str) -> History:
    """A construction for writing: whoever else writes to it waits.

    Raises:
        NotFound: the org has none of this id.
        Forbidden: the caller's grant did not make it.
    """
    mine = constructions.c.id == construction
    connection.execute(sa.select(constructions.c.id).where(mine).with_for_update())
    row = lookup.by_id(connection, constructions, caller.org, construction, Prefix.CONSTRUCTION)
    found = _of(connection, row)
    if caller.grant is not None and found.steps and found.steps[0].by != author(caller):
        raise Forbidden(
            "The grant did not make this construction.",
            object=ErrorObject(type="construction", id=construction),
            next="Make one of your own: practicum construction create @plan.json",
        )
    return found


def read(connection: Connection, org: str, text: str) -> History:
    """A construction for reading, also by a short id."""
    row = lookup.by_short_id(connection, constructions, org, text, Prefix.CONSTRUCTION)
    return _of(connection, row)


def _of(connection: Connection, row: AnyRow) -> History:
    query = (
        sa.select(construction_steps)
        .where(construction_steps.c.construction_id == row.id)
        .order_by(construction_steps.c.seq)
    )
    return History(
        row=row,
        plan=ConstructionPlan.model_validate_json(row.plan),
        steps=tuple(_steps(connection.execute(query).all())),
    )


def _steps(rows: Sequence[AnyRow]) -> list[ConstructionStep]:
    return [
        ConstructionStep(
            seq=row.seq,
            version=row.version,
            at=row.at,
            kind=row.kind,
            state=ConstructionState(row.state),
            by=row.by,
            digest=row.digest,
            record=json.loads(row.document),
            found=json.loads(row.found),
        )
        for row in rows
    ]
