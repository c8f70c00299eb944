"""Trials as the proxy and the worker deal with them: tokens, renewals, evidence."""

import time

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import events, lookup, ownership, references, sessions, views
from runtime.gateway.refusals import conflict, invalid
from runtime.gateway.tokens import AUDIENCE, ISSUER, token_id
from runtime.storage import clock
from runtime.storage.tables import claims, evidence, runs, trials
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.events import EventType
from specs.ids import Prefix
from specs.interaction import Seal
from specs.records import Trial, TrialState
from specs.run import RunState
from specs.worker_api import RenewalReply, RenewalRequest, TrialClaims, TrialTokenRequest

DEFAULT_LEASE = 30.0
"""Seconds until the proxy asks again when no trial of its is active."""
_CHUNK = 400


def token_claims(
    connection: Connection, org: str, run: str, trial: str, request: TrialTokenRequest
) -> TrialClaims:
    """What the credential of one open trial opens: this run, trial, sampler; and nothing else.

    Raises:
        Conflict: `stale_fence`, or the trial is not open under this fence.
    """
    row = ownership.owned_run(connection, org, run, request.claim, request.fence)
    found = lookup.by_id(connection, trials, org, trial, Prefix.TRIAL)
    if (found.run_id, found.state, found.fence) != (run, TrialState.OPEN, row.fence):
        raise conflict(
            f"The trial is {found.state} (fence {found.fence}, run {found.run_id}):"
            " no credential is made for it.",
            "trial",
            trial,
            next="Open a trial under the current claim first.",
        )
    for field, value in (("sampler", found.sampler_id), ("task", found.task)):
        if getattr(request, field) != value:
            raise invalid(
                f"The trial's {field} is {value}, not {getattr(request, field)}.",
                "trial",
                f"/{field}",
                name=trial,
                next="Ask for the trial's own sampler and task.",
            )
    now = time.time()
    return TrialClaims(
        iss=ISSUER,
        aud=AUDIENCE,
        org=org,
        run=run,
        trial=trial,
        fence=row.fence,
        sampler=request.sampler,
        model=row.model,
        task=request.task,
        sampling=request.sampling,
        max_calls=request.max_calls,
        max_output_tokens=request.max_output_tokens,
        seed=request.seed,
        iat=now,
        exp=now + request.expires_in_sec,
        jti=token_id(),
    )


def renew(connection: Connection, org: str, request: RenewalRequest) -> RenewalReply:
    """Which trials may go on: open, of the current fence, under a live lease, not cancelled."""
    now = clock.now(connection)
    active = sessions.active(connection, org, request.trials, now)
    leases: list[float] = []
    wanted = sorted(request.trials)
    for start in range(0, len(wanted), _CHUNK):
        query = (
            sa.select(trials.c.id, trials.c.fence, claims.c.lease_sec)
            .join_from(trials, runs, trials.c.run_id == runs.c.id)
            .join(claims, claims.c.id == runs.c.claim_id)
            .where(
                trials.c.org_id == org,
                trials.c.id.in_(wanted[start : start + _CHUNK]),
                trials.c.state == TrialState.OPEN,
                trials.c.fence == runs.c.fence,
                runs.c.state == RunState.RUNNING,
                runs.c.lease_until >= now,
            )
        )
        for row in connection.execute(query):
            if request.trials[row.id] == row.fence:
                active.append(row.id)
                leases.append(row.lease_sec)
    return RenewalReply(active=active, lease_sec=min(leases, default=DEFAULT_LEASE))


def commit_evidence(connection: Connection, org: str, seal: Seal) -> Trial:
    """Store a seal. One of a superseded fence is kept and never counted.

    Raises:
        Conflict: the trial was sealed with other content.
        InvalidInput: the segment has not been uploaded.
    """
    row = lookup.by_id(connection, trials, org, seal.trial, Prefix.TRIAL)
    run = lookup.by_id(connection, runs, org, seal.run, Prefix.RUN)
    if row.run_id != seal.run or seal.fence > run.fence:
        raise invalid(
            "The seal names another run, or a fence that no claim has had.",
            "seal",
            "/seal",
            name=seal.trial,
            next="Seal a trial with the claims of its own token.",
        )
    query = sa.select(evidence.c.seal).where(
        evidence.c.trial_id == seal.trial, evidence.c.fence == seal.fence
    )
    known = connection.execute(query).scalar()
    if known is None:
        _store_seal(connection, org, seal, current=_is_current(row, run, seal))
    elif Seal.model_validate_json(known) != seal:
        raise Conflict(
            "The trial has been sealed with other content.",
            code=ErrorCode.STATE_CONFLICT,
            object=ErrorObject(type="trial", id=seal.trial),
            next="A seal is final; keep the first one.",
        )
    return views.trial(row)


def _is_current(row: lookup.AnyRow, run: lookup.AnyRow, seal: Seal) -> bool:
    """Whether the evidence is of the execution that counts or may still count."""
    if seal.fence != row.fence or row.state == TrialState.ABANDONED:
        return False
    return bool(row.counted) or seal.fence == run.fence


def _store_seal(connection: Connection, org: str, seal: Seal, *, current: bool) -> None:
    if seal.object is not None:
        references.hold(connection, org, seal.trial, [seal.object], what="seal")
    connection.execute(
        sa.insert(evidence).values(
            org_id=org,
            trial_id=seal.trial,
            fence=seal.fence,
            run_id=seal.run,
            seal=seal.model_dump_json(),
            current=current,
            at=clock.timestamp(),
        )
    )
    ended = connection.execute(sa.select(runs.c.ended_at).where(runs.c.id == seal.run)).scalar_one()
    if ended is None:  # nothing follows the event that ends a run
        told = {
            "trial": seal.trial,
            "fence": seal.fence,
            "interactions": seal.interactions,
            "complete": seal.complete,
            "current": current,
        }
        events.append(connection, org, seal.run, [(EventType.EVIDENCE_SEALED, dict(told))])
