"""The records that a worker writes: all of a request, or nothing (invariant 10)."""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from runtime.gateway import events, ownership
from runtime.gateway.ownership import Numbered
from runtime.gateway.refusals import conflict
from runtime.gateway.writes import batches, models, trials, updates
from runtime.gateway.writes.change import Change
from runtime.storage.tables import logs, runs
from specs import worker_api
from specs.base import Contract
from specs.worker_api import LogWritten, WriteReply, WriteRequest

_HANDLERS: dict[type[Contract], Callable[[Change, Any], None]] = {
    worker_api.BatchStarted: batches.batch_started,
    worker_api.BatchSettled: batches.batch_settled,
    worker_api.GroupOpened: batches.group_opened,
    worker_api.GroupSettled: batches.group_settled,
    worker_api.GroupJudged: batches.group_judged,
    worker_api.TrialOpened: trials.trial_opened,
    worker_api.TrialSettledWrite: trials.trial_settled,
    worker_api.SamplerSaved: models.sampler_saved,
    worker_api.UpdatePreparedWrite: updates.update_prepared,
    worker_api.UpdateContributed: updates.update_contributed,
    worker_api.UpdateAccumulated: updates.update_accumulated,
    worker_api.UpdateUnresolved: updates.update_unresolved,
    worker_api.UpdateAcknowledged: updates.update_acknowledged,
    worker_api.UpdateMeasured: updates.update_measured,
    worker_api.UpdateEnded: updates.update_ended,
    worker_api.UpdateSkipped: updates.update_skipped,
    worker_api.CheckpointSaved: models.checkpoint_saved,
    worker_api.ComputeWaiting: models.compute_waiting,
}
"""Every write but logs, which are gathered into one insert."""


def apply(
    connection: Connection, org: str, run: str, request: WriteRequest, digest: str
) -> WriteReply:
    """Apply a request, or return what its first arrival returned.

    Raises:
        Conflict: `stale_fence`, or a write that the records exclude; nothing is changed.
    """
    numbered = Numbered(request.claim, request.fence, request.sequence, digest)
    earlier = ownership.repeated(connection, run, numbered)
    if earlier is not None:
        return WriteReply(last_event=earlier)
    row = ownership.owned_run(connection, org, run, request.claim, request.fence)
    ownership.number(connection, numbered)
    change = Change(connection, org, row)
    for index, write in enumerate(request.writes):
        if not isinstance(write, LogWritten):
            _apply_one(change, index, write)
    _write_logs(change, [write for write in request.writes if isinstance(write, LogWritten)])
    last = events.append(connection, org, run, change.drafts)
    ownership.remember(connection, org, numbered, last)
    return WriteReply(last_event=last)


def _apply_one(change: Change, index: int, write: Contract) -> None:
    try:
        _HANDLERS[type(write)](change, write)
    except IntegrityError as error:
        # what the handlers did not foresee: a reused id, above all
        name = str(getattr(write, "type", "write"))
        raise conflict(
            f"Write {index} ({name}) breaks a rule of the database: {error.orig}.",
            "write",
            name,
            next="Use fresh ids, and write what others refer to first.",
        ) from None


def _write_logs(change: Change, writes: list[LogWritten]) -> None:
    if not writes:
        return
    last: int = change.connection.execute(
        sa.update(runs)
        .where(runs.c.id == change.run.id)
        .values(last_log=runs.c.last_log + len(writes))
        .returning(runs.c.last_log)
    ).scalar_one()
    first = last - len(writes) + 1
    change.connection.execute(
        sa.insert(logs),
        [
            {
                "org_id": change.org,
                "run_id": change.run.id,
                "seq": first + offset,
                "at": change.at,
                "source": write.piece.source,
                "trial_id": write.piece.trial,
                "text": write.piece.text,
            }
            for offset, write in enumerate(writes)
        ],
    )
