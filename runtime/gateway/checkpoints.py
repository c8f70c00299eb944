"""Deleting checkpoints, and how long their trainer state is kept.

A checkpoint is protected while something refers to it: a run that was started from it or
evaluates it, a published profile that names it, a session, calls that were sampled from its
weights (they are evidence, and `run verify` derives their log-probabilities again), its own run
while that is not over. Its trainer state alone is protected only while a run may still read it.
The record always stays, marked, since lineage passes through it.

What is deleted or expired loses its references; the bytes go when the gateway starts the next
time (`uploads.sweep`), so that no upload can race with their removal.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import lookup, references, views
from runtime.gateway.initial import expired
from runtime.gateway.refusals import conflict
from runtime.storage import clock
from runtime.storage.tables import checkpoints, documents, groups, runs, sessions
from specs import canonical
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.ids import Prefix
from specs.operator_api import CheckpointUses
from specs.profile import Profile
from specs.records import Checkpoint
from specs.run import RunState

_OVER = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


def uses(connection: Connection, org: str, checkpoint: str) -> CheckpointUses:
    """What refers to a checkpoint."""
    return _uses(connection, org, _find(connection, org, checkpoint))


def delete(connection: Connection, org: str, checkpoint: str, *, state_only: bool) -> Checkpoint:
    """Forget a checkpoint's weights and state, or its state alone. Harmless to repeat.

    Raises:
        Conflict: `checkpoint_in_use`, naming what refers to it.
    """
    item = _find(connection, org, checkpoint)
    if item.deleted_at is not None or (state_only and item.state_deleted_at is not None):
        return item
    _refuse_used(item, _uses(connection, org, item), state_only=state_only)
    now = clock.timestamp()
    _forget_state(connection, org, item)
    changes: dict[str, Any] = {"state_deleted_at": item.state_deleted_at or now}
    if not state_only:
        references.release(connection, org, [item.id, item.sampler], item.adapter)
        changes["deleted_at"] = now
    return _mark(connection, item, changes)


def keep(connection: Connection, org: str, checkpoint: str, seconds: float | None) -> Checkpoint:
    """Keep trainer state for so long from now on; None = for good.

    Raises:
        Conflict: it is gone already.
    """
    item = _find(connection, org, checkpoint)
    if item.state is None or item.state_deleted_at is not None or expired(item):
        raise conflict(
            "The checkpoint has no trainer state any more.",
            "checkpoint",
            item.id,
            next=f"Its weights can still be used: practicum checkpoint show {item.id}",
        )
    until = None
    if seconds is not None:
        until = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    return _mark(connection, item, {"state_expires_at": until})


def forget_expired(connection: Connection, org: str) -> int:
    """Let go of every state whose time has come and whose run is over; how many."""
    query = sa.select(checkpoints.c.document).join_from(checkpoints, runs)
    query = query.where(checkpoints.c.org_id == org, runs.c.state.in_(_OVER))
    gone = 0
    for document in list(connection.execute(query).scalars()):
        item = Checkpoint.model_validate_json(document)
        if item.state is not None and item.state_deleted_at is None and expired(item):
            _forget_state(connection, org, item)
            _mark(connection, item, {"state_deleted_at": clock.timestamp()})
            gone += 1
    return gone


def _find(connection: Connection, org: str, checkpoint: str) -> Checkpoint:
    return views.checkpoint(
        lookup.by_id(connection, checkpoints, org, checkpoint, Prefix.CHECKPOINT)
    )


def _uses(connection: Connection, org: str, item: Checkpoint) -> CheckpointUses:
    own = lookup.by_id(connection, runs, org, item.run, Prefix.RUN)
    used = connection.execute(
        sa.select(runs.c.id, runs.c.state)
        .where(runs.c.org_id == org, runs.c.model == item.id)
        .order_by(runs.c.id)
    ).all()
    sampled = sa.select(sa.func.count()).select_from(groups)
    opened = sa.select(sessions.c.id).where(
        sessions.c.sampler_id == item.sampler,
        sessions.c.ended_at.is_(None),
        sessions.c.expires_at > clock.now(connection),
    )
    return CheckpointUses(
        checkpoint=item.id,
        runs=[row.id for row in used],
        active_runs=[row.id for row in used if row.state not in _OVER],
        own_run_active=own.state not in _OVER,
        profiles=_profiles(connection, org, item.id),
        sessions=list(connection.execute(opened).scalars()),
        groups=connection.execute(sampled.where(groups.c.sampler_id == item.sampler)).scalar_one(),
    )


def _profiles(connection: Connection, org: str, checkpoint: str) -> list[str]:
    query = sa.select(documents.c.name, documents.c.version, documents.c.content).where(
        documents.c.org_id == org, documents.c.kind == "profile"
    )
    wanted = checkpoint.encode()
    return [
        f"{row.name}@{row.version}"
        for row in connection.execute(query)
        if wanted in row.content
        and canonical.read(Profile, row.content, what="profile").agent.model == checkpoint
    ]


def _refuse_used(item: Checkpoint, found: CheckpointUses, *, state_only: bool) -> None:
    reasons = [f"its run {item.run} is not over"] if found.own_run_active else []
    reasons += [f"run {run} starts from it" for run in found.active_runs]
    if not state_only:
        reasons += [f"run {run} used it" for run in found.runs if run not in found.active_runs]
        reasons += [f"profile {profile} names it" for profile in found.profiles]
        reasons += [f"session {session} uses it" for session in found.sessions]
        if found.groups:
            reasons.append(f"{found.groups} sampling groups are recorded against its weights")
    if not reasons:
        return
    more = f" (and {len(reasons) - 3} more)" if len(reasons) > 3 else ""
    raise Conflict(
        f"The checkpoint is in use: {'; '.join(reasons[:3])}{more}.",
        code=ErrorCode.CHECKPOINT_IN_USE,
        object=ErrorObject(type="checkpoint", id=item.id),
        next="Wait until the runs are over."
        if state_only
        else f"Free most of its space: practicum checkpoint delete {item.id} --state-only",
    )


def _forget_state(connection: Connection, org: str, item: Checkpoint) -> None:
    if item.state is not None:
        references.release(connection, org, [item.id, item.update], item.state)


def _mark(connection: Connection, item: Checkpoint, changes: dict[str, Any]) -> Checkpoint:
    changed = item.model_copy(update=changes)
    connection.execute(
        sa.update(checkpoints)
        .where(checkpoints.c.id == item.id)
        .values(document=changed.model_dump_json())
    )
    return changed
