"""What an operator does to a run that exists: cancel it, resolve its blocking update."""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import claims, events, lookup, views
from runtime.gateway.refusals import conflict
from runtime.gateway.writes.updates import enter_state
from runtime.storage.tables import runs, trials, updates
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.events import EventType
from specs.ids import Prefix
from specs.operator_api import Resolve
from specs.records import TrialState, Update, UpdateState
from specs.run import Run, RunState


def cancel(connection: Connection, org: str, run: str) -> Run:
    """Ask for cancellation. A run that no worker holds and that has nothing open ends at
    once; otherwise a worker settles what is open. Harmless when it is already cancelled.

    Raises:
        Conflict: the run has ended in another way.
    """
    row = lookup.by_id(connection, runs, org, run, Prefix.RUN)
    state = RunState(row.state)
    if state in (RunState.COMPLETED, RunState.FAILED):
        raise conflict(
            f"The run has ended: it is {state}.", "run", run, next=f"practicum run result {run}"
        )
    if state in (RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED):
        drafts: list[events.Draft] = [(EventType.RUN_CANCELLING, {})]
        if state == RunState.RUNNING or _has_open_trials(connection, run):
            connection.execute(
                sa.update(runs).where(runs.c.id == run).values(state=RunState.CANCELLING)
            )
        else:
            claims.end_run(connection, run, RunState.CANCELLED, None)
            drafts += claims.close_records(connection, run)
            drafts.append((EventType.RUN_CANCELLED, {}))
        events.append(connection, org, run, drafts)
    return views.run(lookup.by_id(connection, runs, org, run, Prefix.RUN))


def _has_open_trials(connection: Connection, run: str) -> bool:
    query = sa.select(trials.c.id).where(trials.c.run_id == run, trials.c.state == TrialState.OPEN)
    return connection.execute(query.limit(1)).scalar() is not None


def resolve(connection: Connection, org: str, run: str, update: str, decision: Resolve) -> Update:
    """Settle the unresolved update that blocks a run.

    `applied` and `not-applied` are noted on the update and the run is queued again: the next
    worker acts on them. `abandon` fails the run.

    Raises:
        Conflict: the run is not blocked, or the update is not unresolved.
    """
    row = lookup.by_id(connection, runs, org, run, Prefix.RUN)
    found = lookup.by_id(connection, updates, org, update, Prefix.UPDATE)
    if found.run_id != run or found.state != UpdateState.UNRESOLVED:
        raise conflict(
            f"The update is {found.state} and belongs to run {found.run_id}:"
            " there is nothing to resolve.",
            "update",
            update,
            next=f"practicum run updates {run}",
        )
    if row.state != RunState.BLOCKED:
        raise conflict(
            f"The run is {row.state}, not blocked: its worker settles the update.",
            "run",
            run,
            next=f"practicum run show {run}",
        )
    connection.execute(
        sa.update(updates).where(updates.c.id == update).values(resolution=decision.as_)
    )
    told: dict[str, str] = {"update": update, "as": decision.as_}
    if decision.as_ == "abandon":
        _abandon(connection, org, run, update)
    else:
        connection.execute(
            sa.update(runs)
            .where(runs.c.id == run)
            .values(state=RunState.QUEUED, reason=None, claim_id=None, lease_until=None)
        )
        events.append(connection, org, run, [(EventType.RUN_UNBLOCKED, dict(told))])
    return views.update(lookup.by_id(connection, updates, org, update, Prefix.UPDATE))


def _abandon(connection: Connection, org: str, run: str, update: str) -> None:
    reason = Conflict(
        f"An operator abandoned the run: it is not known whether update {update} was applied.",
        code=ErrorCode.UPDATE_UNRESOLVED,
        object=ErrorObject(type="update", id=update),
        next=f"Its checkpoints remain: practicum run checkpoints {run}",
    ).problem
    found = lookup.by_id(connection, updates, org, update, Prefix.UPDATE)
    enter_state(connection, found, UpdateState.FAILED, reason=reason.detail)
    claims.end_run(connection, run, RunState.FAILED, reason.model_dump_json())
    events.append(
        connection,
        org,
        run,
        [
            (EventType.UPDATE_FAILED, {"update": update, "reason": "abandoned"}),
            (EventType.RUN_FAILED, {"code": reason.code.value, "detail": reason.detail}),
        ],
    )
