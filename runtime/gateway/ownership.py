"""Claims as proof of ownership: every write carries a fence that is checked in its own
transaction, and repeats of a numbered request change nothing (invariant 10)."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import lookup
from runtime.gateway.lookup import AnyRow
from runtime.gateway.refusals import conflict
from runtime.storage import clock
from runtime.storage.tables import claim_writes, claims, runs
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.ids import Prefix
from specs.run import RunState

_OWNED = (RunState.RUNNING, RunState.CANCELLING)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A numbered request of a claim, by the digest of its body."""

    claim: str
    fence: int
    sequence: int
    digest: str


def owned_run(connection: Connection, org: str, run: str, claim: str, fence: int) -> AnyRow:
    """The run's row, locked, if the claim owns it now.

    Raises:
        Conflict: `stale_fence`.
    """
    query = sa.select(runs).where(runs.c.id == run, runs.c.org_id == org).with_for_update()
    row = connection.execute(query).one_or_none() or lookup.by_id(
        connection, runs, org, run, Prefix.RUN
    )
    mine = row.claim_id == claim and row.fence == fence and row.state in _OWNED
    if not mine or row.lease_until < clock.now(connection):
        cause = "its lease has run out" if mine else "another claim is current, or it has ended"
        raise Conflict(
            f"The claim {claim} (fence {fence}) does not own the run: {cause}.",
            code=ErrorCode.STALE_FENCE,
            object=ErrorObject(type="run", id=run),
            next="Stop working on it; nothing was changed. Claim again.",
        )
    return row


def repeated(connection: Connection, run: str, request: Numbered) -> int | None:
    """What an earlier request of this number returned; None when the number is new.

    Raises:
        Conflict: `idempotency_conflict`: the number was used for another body.
    """
    query = (
        sa.select(claim_writes.c.body_digest, claim_writes.c.last_event)
        .join_from(claim_writes, claims)
        .where(
            claims.c.run_id == run,
            claim_writes.c.claim_id == request.claim,
            claim_writes.c.sequence == request.sequence,
        )
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.body_digest != request.digest:
        raise Conflict(
            f"Request {request.sequence} of claim {request.claim} had another body.",
            code=ErrorCode.IDEMPOTENCY_CONFLICT,
            object=ErrorObject(type="claim", id=request.claim),
            next="Number each request of a claim once, counting from 1.",
        )
    return row.last_event


def number(connection: Connection, request: Numbered) -> None:
    """Take the next number of the claim.

    Raises:
        Conflict: it is not the next one.
    """
    advanced = connection.execute(
        sa.update(claims)
        .where(claims.c.id == request.claim, claims.c.sequence == request.sequence - 1)
        .values(sequence=request.sequence)
    )
    if advanced.rowcount != 1:
        raise conflict(
            f"Request {request.sequence} of claim {request.claim} is out of order.",
            "claim",
            request.claim,
            next="Number the requests of a claim from 1 without gaps, one at a time.",
        )


def remember(connection: Connection, org: str, request: Numbered, last_event: int) -> None:
    """Keep what the request returned."""
    connection.execute(
        sa.insert(claim_writes).values(
            org_id=org,
            claim_id=request.claim,
            sequence=request.sequence,
            body_digest=request.digest,
            last_event=last_event,
        )
    )
