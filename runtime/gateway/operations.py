"""What an operator does to a run that exists: cancel it, resolve its blocking update, extend
its budgets."""

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy import Connection

from runtime.gateway import claims, events, lookup, usage, views
from runtime.gateway.constructions import spending
from runtime.gateway.context import Caller
from runtime.gateway.refusals import conflict, invalid
from runtime.gateway.writes.updates import enter_state
from runtime.home import Role
from runtime.storage.tables import runs, trials, updates
from specs.errors import Conflict, ErrorCode, ErrorObject, Problem
from specs.events import EventType
from specs.ids import Prefix
from specs.operator_api import Extend, Resolve
from specs.plans import Budget
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


def extend(connection: Connection, org: str, run: str, more: Extend) -> Run:
    """Raise budgets of a run that has spent one, and queue it again. Its plan stays as pinned
    (invariant 14): what is added is kept beside it, and told by an event.

    Raises:
        Conflict: the run is not stopped by a budget; `construction_over_budget`.
        InvalidInput: a budget that the plan does not set, or a value that is not larger.
    """
    row = lookup.by_id(connection, runs, org, run, Prefix.RUN)
    reason = None if row.reason is None else Problem.model_validate_json(row.reason)
    stopped = reason is not None and reason.code == ErrorCode.BUDGET_EXHAUSTED
    if row.state != RunState.BLOCKED or not stopped:
        raise conflict(
            f"The run is {row.state}, and no budget has stopped it.",
            "run",
            run,
            next=f"practicum run show {run}",
        )
    now = usage.limits(row)
    told: dict[str, JsonValue] = {}
    changed: dict[str, Budget] = {}
    for level in ("run", "update"):
        asked: Budget = getattr(more, level)
        given = asked.model_dump(exclude_none=True)
        for field, value in given.items():
            name = f"{level}.{field}"
            _require_larger(name, usage.value_of(now, name), value)
            told[name] = value
        changed[level] = getattr(now, level).model_copy(update=given)
    if not told:
        raise invalid(
            "Nothing was added.",
            "extension",
            "/run",
            next="Give the larger value of the budget that was spent.",
        )
    raised = now.model_copy(update=changed)
    spending.extend(connection, Caller(Role.OPERATOR, org), row, raised)
    connection.execute(
        sa.update(runs)
        .where(runs.c.id == run)
        .values(state=RunState.QUEUED, reason=None, extended=raised.model_dump_json())
    )
    drafts: list[events.Draft] = [(EventType.RUN_EXTENDED, told), (EventType.RUN_UNBLOCKED, {})]
    events.append(connection, org, run, drafts)
    return views.run(lookup.by_id(connection, runs, org, run, Prefix.RUN))


def _require_larger(name: str, now: float | None, value: float) -> None:
    if now is None:
        cause = "the plan sets no such budget"
    elif value <= now:
        cause = f"it is {now:g} already"
    else:
        return
    raise invalid(
        f"{name} cannot become {value:g}: {cause}.",
        "extension",
        "/" + name.replace(".", "/"),
        next="Give a larger value of a budget that the plan sets.",
    )


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
