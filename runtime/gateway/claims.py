"""Claiming a run, keeping it, and giving it up. The database's clock judges every lease."""

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy import Connection

from runtime.gateway import events, lookup, ownership, pins, views
from runtime.gateway.lookup import AnyRow
from runtime.gateway.ownership import Numbered, owned_run
from runtime.gateway.refusals import conflict, invalid
from runtime.gateway.writes.updates import enter_state
from runtime.storage import clock
from runtime.storage.tables import claims, groups, runs, trials, updates
from specs.errors import Problem
from specs.events import EventType
from specs.ids import Prefix, new_id
from specs.records import TrialState, UpdateState
from specs.run import Run, RunState
from specs.worker_api import Claim, ClaimRequest, Completion, Heartbeat, HeartbeatReply


def claim(connection: Connection, org: str, request: ClaimRequest) -> Claim | None:
    """Take the oldest run that is queued, or whose worker let its lease run out. One whose
    pins are broken fails instead."""
    now = clock.now(connection)
    while (row := _claimable(connection, org, now, request.delegating)) is not None:
        problem = pins.broken(connection, org, views.pinned(row.spec))
        if problem is None:
            return _take(connection, org, request, row, now)
        _fail(connection, org, row, problem)
    return None


def _claimable(
    connection: Connection, org: str, now: float, delegating: bool | None
) -> AnyRow | None:
    lapsed = sa.or_(runs.c.lease_until.is_(None), runs.c.lease_until < now)
    query = (
        sa.select(runs)
        .where(
            runs.c.org_id == org,
            runs.c.state.in_(("queued", "running", "cancelling")),
            sa.or_(runs.c.state == RunState.QUEUED, lapsed),
            sa.true() if delegating is None else runs.c.delegates.is_(delegating),
        )
        .order_by(runs.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(query).one_or_none()


def _fail(connection: Connection, org: str, row: AnyRow, problem: Problem) -> None:
    if row.claim_id is not None:
        _end_claim(connection, row.claim_id, "lost")
    drafts = close_records(connection, row.id)
    drafts.append((EventType.RUN_FAILED, {"code": problem.code.value, "detail": problem.detail}))
    end_run(connection, row.id, RunState.FAILED, problem.model_dump_json())
    events.append(connection, org, row.id, drafts)


def _take(
    connection: Connection, org: str, request: ClaimRequest, row: AnyRow, now: float
) -> Claim:
    identity = new_id(Prefix.CLAIM)
    fence = row.fence + 1
    cancelling = row.state == RunState.CANCELLING
    if row.claim_id is not None:
        _end_claim(connection, row.claim_id, "lost", at=min(now, row.lease_until or now))
    connection.execute(
        sa.insert(claims).values(
            id=identity,
            org_id=org,
            run_id=row.id,
            worker=request.worker,
            fence=fence,
            lease_sec=request.lease_sec,
            sequence=0,
            claimed_at=clock.timestamp(now),
        )
    )
    connection.execute(
        sa.update(runs)
        .where(runs.c.id == row.id)
        .values(
            state=RunState.CANCELLING if cancelling else RunState.RUNNING,
            started_at=row.started_at or clock.timestamp(now),
            claim_id=identity,
            fence=fence,
            lease_until=now + request.lease_sec,
        )
    )
    told = {"claim": identity, "worker": request.worker, "fence": fence}
    events.append(connection, org, row.id, [(EventType.RUN_CLAIMED, told)])
    return Claim(
        id=identity,
        run=row.id,
        fence=fence,
        lease_sec=request.lease_sec,
        spec=views.pinned(row.spec),
        cancelling=cancelling,
    )


def heartbeat(connection: Connection, org: str, run: str, beat: Heartbeat) -> HeartbeatReply:
    """Extend the lease of the claim that owns the run."""
    row = owned_run(connection, org, run, beat.claim, beat.fence)
    lease = connection.execute(
        sa.select(claims.c.lease_sec).where(claims.c.id == beat.claim)
    ).scalar_one()
    connection.execute(
        sa.update(runs).where(runs.c.id == run).values(lease_until=clock.now(connection) + lease)
    )
    return HeartbeatReply(cancelling=row.state == RunState.CANCELLING)


_STATE_AFTER = {
    "completed": RunState.COMPLETED,
    "failed": RunState.FAILED,
    "cancelled": RunState.CANCELLED,
    "blocked": RunState.BLOCKED,
}
_EVENT_AFTER = {
    "completed": EventType.RUN_COMPLETED,
    "failed": EventType.RUN_FAILED,
    "cancelled": EventType.RUN_CANCELLED,
    "blocked": EventType.RUN_BLOCKED,
}


def complete(
    connection: Connection, org: str, run: str, completion: Completion, digest: str
) -> Run:
    """End a claim. Run and claim change together, at the last event that the worker knows.

    Raises:
        Conflict: `stale_fence`, or the run is not in the state that the outcome needs.
    """
    request = Numbered(completion.claim, completion.fence, completion.sequence, digest)
    if ownership.repeated(connection, run, request) is None:
        row = owned_run(connection, org, run, completion.claim, completion.fence)
        ownership.number(connection, request)
        _check(connection, row, completion)
        last = _settle(connection, org, row, completion)
        ownership.remember(connection, org, request, last)
    return views.run(lookup.by_id(connection, runs, org, run, Prefix.RUN))


def _check(connection: Connection, row: AnyRow, completion: Completion) -> None:
    """Whether the records permit this outcome."""
    outcome = completion.outcome
    if completion.last_event != row.last_event:
        raise conflict(
            f"The run's last event is {row.last_event}, not {completion.last_event}:"
            " something happened that this completion does not know of.",
            "run",
            row.id,
            next="Read the events, write what they call for, and complete again.",
        )
    if outcome in ("failed", "blocked") and completion.reason is None:
        raise invalid(
            f"A run that is {outcome} needs a reason.",
            "completion",
            "/reason",
            next="Send the problem that names the cause and the next step.",
        )
    if outcome == "cancelled" and row.state != RunState.CANCELLING:
        raise conflict(
            "Nobody asked for the run to be cancelled.",
            "run",
            row.id,
            next="Complete it as failed, or release it.",
        )
    if outcome in ("completed", "cancelled"):
        _refuse_if_any(connection, row.id, outcome, trials, trials.c.state == TrialState.OPEN)
    if outcome == "completed":
        _refuse_if_any(connection, row.id, outcome, groups, groups.c.settled_at.is_(None))
        pending = updates.c.state.in_((UpdateState.PREPARED, UpdateState.UNRESOLVED))
        _refuse_if_any(connection, row.id, outcome, updates, pending)


def _refuse_if_any(
    connection: Connection,
    run: str,
    outcome: str,
    table: sa.Table,
    condition: sa.ColumnElement[bool],
) -> None:
    query = sa.select(table.c.id).where(table.c.run_id == run, condition).limit(1)
    found = connection.execute(query).scalar()
    if found is not None:
        kind = table.name.removesuffix("s")
        raise conflict(
            f"The run cannot be {outcome}: {kind} {found} is not settled.",
            kind,
            found,
            next=f"Settle the {kind} first.",
        )


def _settle(connection: Connection, org: str, row: AnyRow, completion: Completion) -> int:
    outcome, reason = completion.outcome, completion.reason
    _end_claim(connection, completion.claim, outcome)
    if outcome == "released":
        cancelling = row.state == RunState.CANCELLING
        free = RunState.CANCELLING if cancelling else RunState.QUEUED
        connection.execute(
            sa.update(runs)
            .where(runs.c.id == row.id)
            .values(state=free, claim_id=None, lease_until=None)
        )
        return row.last_event
    drafts: list[events.Draft] = []
    if outcome in ("failed", "cancelled"):
        drafts += close_records(connection, row.id)
    elif outcome == "blocked":  # nothing works on it: another trial will take the slot
        drafts += _abandon_open_trials(connection, row.id)
    told = {} if reason is None else {"code": reason.code.value, "detail": reason.detail}
    drafts.append((_EVENT_AFTER[outcome], {**told, "fence": row.fence}))
    end_run(
        connection,
        row.id,
        _STATE_AFTER[outcome],
        None if reason is None else reason.model_dump_json(),
    )
    return events.append(connection, org, row.id, drafts)


def end_run(connection: Connection, run: str, state: RunState, reason: str | None) -> None:
    """Take the run from whoever has it, into a state that no worker works on."""
    connection.execute(
        sa.update(runs)
        .where(runs.c.id == run)
        .values(
            state=state,
            reason=reason,
            claim_id=None,
            lease_until=None,
            ended_at=clock.timestamp() if state.terminal else None,
        )
    )


def close_records(connection: Connection, run: str) -> list[events.Draft]:
    """A run that ends leaves no trial open and no update undecided, where its worker could not
    settle them: a contribution without its step never enters a later update."""
    return [*_abandon_open_trials(connection, run), *_end_updates(connection, run)]


def _end_updates(connection: Connection, run: str) -> list[events.Draft]:
    undecided = updates.c.state.in_((UpdateState.PREPARED, UpdateState.UNRESOLVED))
    query = sa.select(updates).where(updates.c.run_id == run, undecided)
    drafts: list[events.Draft] = []
    for row in connection.execute(query).all():
        if row.state == UpdateState.PREPARED:
            state, reason = UpdateState.VOID, "the run ended before its step was enqueued"
        else:
            state, reason = UpdateState.FAILED, "the run ended before its outcome was known"
        enter_state(connection, row, state, reason=reason)
        told: dict[str, JsonValue] = {"update": row.id, "batch": row.batch, "reason": reason}
        drafts.append((EventType(f"update.{state}"), told))
    return drafts


def _abandon_open_trials(connection: Connection, run: str) -> list[events.Draft]:
    abandoned = connection.execute(
        sa.update(trials)
        .where(trials.c.run_id == run, trials.c.state == TrialState.OPEN)
        .values(state=TrialState.ABANDONED, settled_at=clock.timestamp())
        .returning(trials.c.id)
    ).scalars()
    return [(EventType.TRIAL_ABANDONED, {"trial": trial}) for trial in sorted(abandoned)]


def _end_claim(
    connection: Connection, claim: str, outcome: str, *, at: float | None = None
) -> None:
    """`at`: when it ended, in seconds of the database's clock; None = now."""
    connection.execute(
        sa.update(claims)
        .where(claims.c.id == claim)
        .values(ended_at=clock.timestamp(at), outcome=outcome)
    )
