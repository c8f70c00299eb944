"""Sessions: model calls of `practicum claude` and `agent run`.

A session has an owner, a sampler and a credential like a trial's, and nothing else of a trial:
no run, no slot, no assessment. What it said is sealed into an object that the session alone
refers to, so it can be read and can never be counted or trained from.
"""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.gateway import admission, lookup, references, resolution
from runtime.gateway.lookup import AnyRow
from runtime.gateway.paging import page
from runtime.gateway.refusals import invalid
from runtime.gateway.tokens import AUDIENCE, ISSUER, TokenSigner, token_id
from runtime.storage import clock
from runtime.storage.tables import sessions
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.ids import Prefix, is_id
from specs.interaction import Seal
from specs.operator_api import Session, SessionOpened, SessionPage, SessionRequest
from specs.worker_api import TrialClaims

FENCE = 1
"""A session has one credential and one segment."""


def start(
    connection: Connection, org: str, request: SessionRequest, signer: TokenSigner
) -> SessionOpened:
    """Record a session on the sampler of a base model or checkpoint, and sign its credential.

    A repeated request gets another credential of the same session, which ends when the first does.

    Raises:
        InvalidInput: `model_unknown`, or an id that is not a session's.
        NotFound: the org has no such checkpoint.
        Conflict: there is a session of that id with another model or purpose, or one that ended.
    """
    policy = resolution.named(connection, org, request.model, "session")
    sampler = admission.sampler_of(connection, org, policy, store=True)
    session, now = request.id, clock.now(connection)
    if not is_session(session):
        raise invalid(
            f"{session!r} is not the id of a session.",
            "session",
            "/id",
            name=session,
            next=f"Mint one that begins with {Prefix.SESSION}_, or leave it out.",
        )
    row = connection.execute(sa.select(sessions).where(sessions.c.id == session)).one_or_none()
    if row is None:
        connection.execute(
            sa.insert(sessions).values(
                id=session,
                org_id=org,
                model=request.model,
                sampler_id=sampler.id,
                purpose=request.purpose,
                created_at=clock.timestamp(now),
                expires_at=now + request.expires_in_sec,
            )
        )
        row = lookup.by_id(connection, sessions, org, session, Prefix.SESSION)
    elif not _same(row, org, request):
        raise Conflict(
            "There is another session of that id, or it has ended.",
            code=ErrorCode.STATE_CONFLICT,
            object=ErrorObject(type="session", id=session),
            next="Open a session with an id of its own.",
        )
    claims = TrialClaims(
        iss=ISSUER,
        aud=AUDIENCE,
        org=org,
        run=session,
        trial=session,
        fence=FENCE,
        sampler=row.sampler_id,
        model=request.model,
        task=f"session/{request.purpose}",
        sampling=request.sampling.model_dump(mode="json", exclude_none=True),
        iat=now,
        exp=row.expires_at,
        jti=token_id(),
    )
    return SessionOpened(session=_view(row), token=signer.sign(claims), base=policy.base)


def end(connection: Connection, org: str, session: str) -> Session:
    """End a session: the proxy accepts no more calls and seals it. Repeating it is harmless."""
    lookup.by_id(connection, sessions, org, session, Prefix.SESSION)
    connection.execute(
        sa.update(sessions)
        .where(sessions.c.id == session, sessions.c.ended_at.is_(None))
        .values(ended_at=clock.timestamp())
    )
    return _view(lookup.by_id(connection, sessions, org, session, Prefix.SESSION))


def show(connection: Connection, org: str, session: str) -> Session:
    """One session."""
    return _view(lookup.by_short_id(connection, sessions, org, session, Prefix.SESSION))


def listed(connection: Connection, org: str, cursor: str | None, limit: int) -> SessionPage:
    """Sessions, newest first."""
    query = sa.select(sessions).where(sessions.c.org_id == org)
    items, following = page(
        connection, query, [sessions.c.id], cursor, limit, _view, newest_first=True
    )
    return SessionPage(items=items, next=following)


def active(connection: Connection, org: str, asked: Mapping[str, int], now: float) -> list[str]:
    """Which of the asked ids are sessions that may go on."""
    wanted = [name for name, fence in asked.items() if is_session(name) and fence == FENCE]
    if not wanted:
        return []
    query = sa.select(sessions.c.id).where(
        sessions.c.org_id == org,
        sessions.c.id.in_(wanted),
        sessions.c.ended_at.is_(None),
        sessions.c.expires_at > now,
    )
    return list(connection.execute(query).scalars())


def commit(connection: Connection, org: str, seal: Seal) -> Session:
    """Keep what a session said; repeating it is harmless.

    Raises:
        Conflict: it was sealed with other content.
        InvalidInput: the object has not been uploaded, or the seal is not a session's.
    """
    row = lookup.by_id(connection, sessions, org, seal.trial, Prefix.SESSION)
    if (seal.run, seal.fence) != (row.id, FENCE):
        raise invalid(
            "The seal is not that of a session.",
            "seal",
            "/seal",
            name=seal.trial,
            next="Seal a session with the claims of its own token.",
        )
    if row.seal is not None and Seal.model_validate_json(row.seal) != seal:
        raise Conflict(
            "The session has been sealed with other content.",
            code=ErrorCode.STATE_CONFLICT,
            object=ErrorObject(type="session", id=seal.trial),
            next="A seal is final; keep the first one.",
        )
    if seal.object is not None:
        references.hold(connection, org, seal.trial, [seal.object], what="seal")
    values = {"seal": seal.model_dump_json(), "ended_at": row.ended_at or clock.timestamp()}
    connection.execute(sa.update(sessions).where(sessions.c.id == row.id).values(**values))
    return _view(lookup.by_id(connection, sessions, org, row.id, Prefix.SESSION))


def is_session(name: str) -> bool:
    """Whether an id is a session's."""
    return is_id(name, Prefix.SESSION)


def _same(row: AnyRow, org: str, request: SessionRequest) -> bool:
    """Whether a session is the one that is asked for once more, and still open."""
    asked = (org, request.model, request.purpose)
    return row.ended_at is None and (row.org_id, row.model, row.purpose) == asked


def _view(row: AnyRow) -> Session:
    return Session(
        id=row.id,
        model=row.model,
        sampler=row.sampler_id,
        purpose=row.purpose,
        created_at=row.created_at,
        expires_at=row.expires_at,
        ended_at=row.ended_at,
        seal=None if row.seal is None else Seal.model_validate_json(row.seal),
    )
