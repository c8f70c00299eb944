"""Grants of trials: made for a claim's open trial, read with every request, charged at admission.

The record decides, not the credential: a grant is alive while its trial is open under the fence
of the run's claim and its time is not up. What it may use is counted in the row, in the
transaction that admits a run, so that no two requests can spend the same slot.
"""

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import lookup, ownership, views
from runtime.gateway.context import Granted
from runtime.gateway.lookup import AnyRow
from runtime.gateway.refusals import conflict
from runtime.gateway.tokens import GATEWAY_AUDIENCE, ISSUER, token_id
from runtime.storage import clock
from runtime.storage.tables import grants, runs, trials
from specs.errors import ErrorCode, ErrorObject, Forbidden
from specs.grant import READ_ONLY, GatewayAccess, GrantClaims, GrantRequest, StartedBy
from specs.ids import Prefix, new_id
from specs.plans import gateway_access
from specs.records import TrialState
from specs.run import Admission, RunSpec, RunState

_ALIVE = (RunState.RUNNING, RunState.CANCELLING)


def of_trial(
    connection: Connection, org: str, run: str, trial: str, request: GrantRequest
) -> GrantClaims:
    """The claims of one open trial's grant, made when first asked for.

    Raises:
        Conflict: `stale_fence`, the trial is not open under this fence, or the run's plan has
            no key `gateway`.
    """
    row = ownership.owned_run(connection, org, run, request.claim, request.fence)
    found = lookup.by_id(connection, trials, org, trial, Prefix.TRIAL)
    access = gateway_access(views.pinned(row.spec).plan)
    if (found.run_id, found.state, found.fence) != (run, TrialState.OPEN, row.fence):
        raise conflict(
            f"The trial is {found.state} (fence {found.fence}): it is given no grant.",
            "trial",
            trial,
            next="Open a trial under the current claim first.",
        )
    if access is None:
        raise conflict(
            "The run's plan has no key `gateway`: its trials do not reach the gateway.",
            "run",
            run,
            next="Authorise it in the plan of a new run.",
        )
    now = clock.now(connection)
    if request.phase == "verifier":
        access = READ_ONLY
    same = sa.select(grants).where(grants.c.trial_id == trial, grants.c.phase == request.phase)
    known = connection.execute(same).one_or_none()
    if known is None:
        connection.execute(
            sa.insert(grants).values(
                id=new_id(Prefix.GRANT),
                org_id=org,
                run_id=run,
                trial_id=trial,
                fence=row.fence,
                phase=request.phase,
                access=access.model_dump_json(),
                created_at=clock.timestamp(now),
                expires_at=now + request.expires_in_sec,
                runs_used=0,
                slots_used=0,
                updates_used=0,
            )
        )
        known = connection.execute(same).one()
    return GrantClaims(
        iss=ISSUER,
        aud=GATEWAY_AUDIENCE,
        org=org,
        grant=known.id,
        run=run,
        trial=trial,
        fence=known.fence,
        iat=now,
        exp=known.expires_at,
        jti=token_id(),
    )


def alive(connection: Connection, claims: GrantClaims) -> Granted:
    """What a credential opens now.

    Raises:
        Forbidden: `grant_ended`: its trial is over, belongs to another claim, or its time is up.
    """
    row = _open(connection, claims.grant)
    if row is None or (row.org_id, row.trial_id) != (claims.org, claims.trial):
        raise _ended(claims.grant)
    return Granted(
        id=claims.grant,
        run=claims.run,
        trial=claims.trial,
        access=GatewayAccess.model_validate_json(row.access),
        phase=row.phase,
    )


def hidden(connection: Connection, granted: Granted) -> frozenset[str]:
    """Objects that an agent's grant does not open: the task packages of its own run, which hold
    the tests that it will be judged by."""
    if granted.phase == "verifier":
        return frozenset()
    spec = connection.execute(sa.select(runs.c.spec).where(runs.c.id == granted.run)).scalar_one()
    return frozenset(task.digest for task in views.pinned(spec).tasks)


def permit(connection: Connection, granted: Granted, spec: RunSpec, admission: Admission) -> None:
    """Refuse what the grant does not open, or no longer.

    Raises:
        Forbidden: `grant_limit`.
    """
    access = granted.access
    if gateway_access(spec.plan) is not None:
        raise _beyond(granted, "its runs cannot give grants of their own", "Leave `gateway` out.")
    for what, name, allowed in (
        ("model", spec.sampler.base_model, access.models),
        ("dataset", spec.dataset, access.datasets),
    ):
        if allowed is not None and name is not None and name not in allowed:
            raise _beyond(
                granted, f"it does not open the {what} {name}", f"Use one of: {', '.join(allowed)}."
            )
    used = connection.execute(sa.select(grants).where(grants.c.id == granted.id)).one()
    for what, before, more, most in (
        ("runs", used.runs_used, 1, access.max_runs),
        ("planned slots", used.slots_used, admission.planned_slots, access.max_slots),
        ("updates", used.updates_used, admission.batches, access.max_updates),
    ):
        if most is not None and before + more > most:
            raise _beyond(
                granted,
                f"{more} more {what} would be {before + more} of {most}",
                f"It has {most - before} {what} left: plan less.",
            )


def charge(connection: Connection, granted: Granted, spec: RunSpec, admission: Admission) -> None:
    """Count a run that is being admitted, in the same transaction.

    Raises:
        Forbidden: `grant_ended` or `grant_limit`; nothing was counted.
    """
    connection.execute(  # first of all: on PostgreSQL it locks the row against another admission
        sa.update(grants).where(grants.c.id == granted.id).values(runs_used=grants.c.runs_used)
    )
    if not _open(connection, granted.id):
        raise _ended(granted.id)
    permit(connection, granted, spec, admission)
    connection.execute(
        sa.update(grants)
        .where(grants.c.id == granted.id)
        .values(
            runs_used=grants.c.runs_used + 1,
            slots_used=grants.c.slots_used + admission.planned_slots,
            updates_used=grants.c.updates_used + admission.batches,
        )
    )


def require_own(connection: Connection, org: str, granted: Granted, run: str) -> None:
    """A grant cancels nothing but what it started.

    Raises:
        Forbidden: somebody else started the run.
    """
    row = lookup.by_id(connection, runs, org, run, Prefix.RUN)
    if row.started_by is None or StartedBy.model_validate_json(row.started_by).grant != granted.id:
        raise Forbidden(
            "The grant did not start this run.",
            object=ErrorObject(type="run", id=run),
            next="Leave it to whoever started it.",
        )


def _open(connection: Connection, grant: str) -> AnyRow | None:
    """The row of a grant that is alive."""
    query = (
        sa.select(grants)
        .join_from(grants, trials, trials.c.id == grants.c.trial_id)
        .join(runs, runs.c.id == grants.c.run_id)
        .where(
            grants.c.id == grant,
            grants.c.expires_at > clock.now(connection),
            trials.c.state == TrialState.OPEN,
            trials.c.fence == runs.c.fence,
            runs.c.state.in_(_ALIVE),
        )
    )
    return connection.execute(query).one_or_none()


def _ended(grant: str) -> Forbidden:
    return Forbidden(
        "The grant has ended: its trial is over, or its time is up.",
        code=ErrorCode.GRANT_ENDED,
        object=ErrorObject(type="grant", id=grant),
        next="Nothing: what it started goes on, and its operator reads it.",
    )


def _beyond(granted: Granted, cause: str, step: str) -> Forbidden:
    return Forbidden(
        f"The grant does not allow this run: {cause}.",
        code=ErrorCode.GRANT_LIMIT,
        object=ErrorObject(type="grant", id=granted.id),
        next=step,
    )
