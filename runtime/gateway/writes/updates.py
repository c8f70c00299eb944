"""Updates: `prepared → unresolved → acknowledged`, or `skipped`, `failed`, `void` (invariant 8)."""

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import references
from runtime.gateway.lookup import AnyRow, by_id
from runtime.gateway.refusals import conflict, invalid
from runtime.gateway.writes.batches import require_sampler
from runtime.gateway.writes.change import Change
from runtime.storage import clock
from runtime.storage.tables import batches, contributions, samplers, updates
from specs.events import EventType
from specs.ids import Prefix
from specs.records import UpdateState
from specs.worker_api import (
    UpdateAccumulated,
    UpdateAcknowledged,
    UpdateContributed,
    UpdateEnded,
    UpdateMeasured,
    UpdatePreparedWrite,
    UpdateSkipped,
    UpdateUnresolved,
)

_BEFORE = {
    UpdateState.UNRESOLVED: (UpdateState.PREPARED,),
    UpdateState.ACKNOWLEDGED: (UpdateState.UNRESOLVED,),
    UpdateState.FAILED: (UpdateState.PREPARED, UpdateState.UNRESOLVED),
    UpdateState.VOID: (UpdateState.PREPARED, UpdateState.UNRESOLVED),
}
"""From which states each state may be entered."""


def update_prepared(change: Change, write: UpdatePreparedWrite) -> None:
    """An update whose first gradient is about to be computed."""
    update = write.update
    _check_sampler(change, update.batch, update.sampler)
    _refuse_standing(change, update.batch)
    change.insert(
        updates,
        id=update.id,
        run_id=change.run.id,
        batch=update.batch,
        state=UpdateState.PREPARED,
        prepared=update.model_dump_json(),
        sampler_id=update.sampler,
        census="{}",
        metrics="{}",
        at=change.at,
        history=json.dumps({UpdateState.PREPARED: change.at}),
    )
    change.emit(
        EventType.UPDATE_PREPARED,
        update=update.id,
        batch=update.batch,
        trainer=update.trainer,
    )


def update_contributed(change: Change, write: UpdateContributed) -> None:
    """Datums are about to be submitted: numbered in the order of submission."""
    row = _require_prepared(change, write.update)
    compared = {item.reference for item in write.contributions if item.reference is not None}
    references.hold(change.connection, change.org, row.id, compared, what="update")
    query = sa.select(sa.func.count()).select_from(contributions)
    known = change.connection.execute(query.where(contributions.c.update_id == row.id)).scalar_one()
    change.connection.execute(
        sa.insert(contributions),
        [
            {
                "org_id": change.org,
                "update_id": row.id,
                "number": number,
                "trial_id": item.trial,
                "document": item.model_dump_json(),
            }
            for number, item in enumerate(write.contributions, start=known)
        ],
    )
    change.emit(
        EventType.UPDATE_CONTRIBUTED,
        update=row.id,
        batch=row.batch,
        group=write.contributions[0].group,
        datums=len(write.contributions),
        tokens=sum(item.tokens for item in write.contributions),
        trained_tokens=sum(item.trained_tokens for item in write.contributions),
    )


def update_accumulated(change: Change, write: UpdateAccumulated) -> None:
    """The gradient of a group is in the trainer; an event and no more, since it dies there."""
    row = _require_prepared(change, write.update)
    change.emit(
        EventType.UPDATE_ACCUMULATED,
        update=row.id,
        batch=row.batch,
        group=write.group,
        datums=write.datums,
        trained_tokens=write.trained_tokens,
        seconds=write.seconds,
    )


def update_unresolved(change: Change, write: UpdateUnresolved) -> None:
    """The optimizer step is about to be enqueued: from now on it may have been applied."""
    row = change.mine(updates, write.update)
    metrics = {**json.loads(row.metrics), **write.metrics}
    enter_state(
        change.connection,
        row,
        UpdateState.UNRESOLVED,
        metrics=json.dumps(metrics),
        census=json.dumps(write.census),
    )
    change.emit(EventType.UPDATE_UNRESOLVED, update=row.id, batch=row.batch)


def update_acknowledged(change: Change, write: UpdateAcknowledged) -> None:
    """The step was applied, and trainer state is saved under the update's id."""
    row = change.mine(updates, write.update)
    require_sampler(change, write.sampler_after)
    references.hold_present(change.connection, change.org, row.id, [write.state_digest])
    metrics = {**json.loads(row.metrics), **write.metrics}
    enter_state(
        change.connection,
        row,
        UpdateState.ACKNOWLEDGED,
        metrics=json.dumps(metrics),
        state_digest=write.state_digest,
        sampler_after=write.sampler_after,
    )
    change.emit(
        EventType.UPDATE_ACKNOWLEDGED,
        update=row.id,
        batch=row.batch,
        sampler_after=write.sampler_after,
        metrics=dict(metrics),
    )


def update_measured(change: Change, write: UpdateMeasured) -> None:
    """A measure taken after the step; said again with the same values it changes nothing."""
    row = require_acknowledged(change, write.update)
    known: dict[str, float] = json.loads(row.metrics)
    if all(known.get(name) == value for name, value in write.metrics.items()):
        return
    taken = sorted(known.keys() & write.metrics.keys())
    if taken:
        raise conflict(
            f"The update has {', '.join(taken)} on record with other values.",
            "update",
            row.id,
            next="Read the run's records and continue from there.",
        )
    change.connection.execute(
        sa.update(updates)
        .where(updates.c.id == row.id)
        .values(metrics=json.dumps({**known, **write.metrics}))
    )
    change.emit(
        EventType.UPDATE_MEASURED, update=row.id, batch=row.batch, metrics=dict(write.metrics)
    )


def update_ended(change: Change, write: UpdateEnded) -> None:
    """It was not applied: `failed`, or `void` and to be redone under another id."""
    row = change.mine(updates, write.update)
    state = UpdateState(write.type.removeprefix("update."))
    metrics = {**json.loads(row.metrics), **write.metrics}
    enter_state(change.connection, row, state, reason=write.reason, metrics=json.dumps(metrics))
    change.emit(EventType(write.type), update=row.id, batch=row.batch, reason=write.reason)


def update_skipped(change: Change, write: UpdateSkipped) -> None:
    """Nothing in the batch could be learned from; the next batch keeps the sampler."""
    _check_sampler(change, write.batch, write.sampler)
    _refuse_standing(change, write.batch)
    change.insert(
        updates,
        id=write.update,
        run_id=change.run.id,
        batch=write.batch,
        state=UpdateState.SKIPPED,
        sampler_id=write.sampler,
        census=json.dumps(write.census),
        metrics=json.dumps(write.metrics),
        reason=write.reason,
        at=change.at,
        history=json.dumps({UpdateState.SKIPPED: change.at}),
    )
    change.emit(
        EventType.UPDATE_SKIPPED, update=write.update, batch=write.batch, reason=write.reason
    )


def enter_state(connection: Connection, row: AnyRow, state: UpdateState, **values: Any) -> None:
    """Move an update on.

    Raises:
        Conflict: its state does not lead there.
    """
    if row.state not in _BEFORE[state]:
        raise conflict(
            f"The update is {row.state}; it cannot become {state}.",
            "update",
            row.id,
            next="Read the run's records and continue from there.",
        )
    now = clock.timestamp()
    history = {**json.loads(row.history), state: now}
    connection.execute(
        sa.update(updates)
        .where(updates.c.id == row.id)
        .values(state=state, at=now, history=json.dumps(history), **values)
    )


def _require_prepared(change: Change, update: str) -> AnyRow:
    """An update that still takes contributions."""
    row = change.mine(updates, update)
    if row.state != UpdateState.PREPARED:
        raise conflict(
            f"The update is {row.state}; only a prepared one takes contributions.",
            "update",
            row.id,
            next="Prepare another update.",
        )
    return row


def _check_sampler(change: Change, batch: int, sampler: str) -> None:
    """Evidence of reinforcement is sampled by its batch's sampler (invariant 7); that of
    supervised learning by whatever sampler its source run had."""
    if change.run.kind == "supervised":
        by_id(change.connection, samplers, change.org, sampler, Prefix.SAMPLER)
        return
    bound = change.connection.execute(
        sa.select(batches.c.sampler_id).where(
            batches.c.run_id == change.run.id, batches.c.batch == batch
        )
    ).scalar()
    if bound != sampler:
        raise invalid(
            f"The update names sampler {sampler}; batch {batch} is bound to {bound}.",
            "update",
            "/sampler",
            next="All trials of a batch sample from one sampler.",
        )


def _refuse_standing(change: Change, batch: int) -> None:
    """One update per batch stands, and none is begun while another is undecided."""
    undecided = updates.c.state.in_((UpdateState.PREPARED, UpdateState.UNRESOLVED))
    done = updates.c.state.in_((UpdateState.ACKNOWLEDGED, UpdateState.SKIPPED))
    query = sa.select(updates.c.id, updates.c.state, updates.c.batch).where(
        updates.c.run_id == change.run.id,
        sa.or_(undecided, sa.and_(done, updates.c.batch == batch)),
    )
    found = change.connection.execute(query.limit(1)).one_or_none()
    if found is not None:
        raise conflict(
            f"Update {found.id} of batch {found.batch} is {found.state}.",
            "update",
            found.id,
            next="Settle it first; a batch has one update that stands.",
        )


def require_acknowledged(change: Change, update: str) -> AnyRow:
    """An acknowledged update of this run."""
    row = change.mine(updates, update)
    if row.state != UpdateState.ACKNOWLEDGED:
        raise invalid(
            f"The update is {row.state}; only an acknowledged one has a checkpoint.",
            "update",
            "/update",
            name=update,
            next="Acknowledge the update first.",
        )
    return row
