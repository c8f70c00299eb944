"""Sessions: what `practicum claude` and `agent run` said outside of any run."""

import time
from typing import Annotated

from pydantic import Field

from specs.operator_api import Session, SessionPage
from tools.context import Context
from tools.fields import Cli, Cursor, Input, Limit
from tools.registry import READ, Traits, operation
from tools.tables import pairs, table


class ListSessions(Input):
    limit: Limit = 20
    cursor: Cursor = None


class OneSession(Input):
    session: Annotated[
        str, Field(description="Session id; a unique short form will do"), Cli(positional=True)
    ]


class CloseSession(Input):
    session: Annotated[str, Field(description="Whole session id"), Cli(positional=True)]


def _state(session: Session) -> str:
    """`sealed` once what it said is kept; `open` while its credential opens something."""
    if session.seal is not None:
        return "sealed"
    if session.ended_at is not None:
        return "ended"
    return "open" if session.expires_at > time.time() else "expired"


def _page_text(page: SessionPage) -> str:
    return table(
        ("session", "purpose", "model", "state", "calls", "created"),
        [
            (s.id, s.purpose, s.model, _state(s), s.seal and s.seal.interactions, s.created_at)
            for s in page.items
        ],
        more=page.next,
    )


def _text(session: Session) -> str:
    seal = session.seal
    captured = None
    if seal is not None:
        captured = {
            "calls": {str(state): count for state, count in seal.states.items() if count},
            "complete": seal.complete,
            "prompt tokens": seal.prompt_tokens,
            "output tokens": seal.output_tokens,
            "object": seal.object,
        }
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.expires_at))
    return pairs(
        {
            "session": session.id,
            "purpose": session.purpose,
            "model": session.model,
            "sampler": session.sampler,
            "state": _state(session),
            "created": session.created_at,
            "expires": expires,
            "ended": session.ended_at,
            **(captured or {}),
        }
    )


@operation("session", "list", READ, text=_page_text)
async def list_sessions(context: Context, request: ListSessions) -> SessionPage:
    """List the sessions of `practicum claude` and `practicum agent run`, newest first.

    A session is captured and owned, and never evidence: nothing is counted or trained from it.
    """
    async with context.gateway() as gateway:
        return await gateway.sessions(limit=request.limit, cursor=request.cursor)


@operation("session", "show", READ, text=_text)
async def show(context: Context, request: OneSession) -> Session:
    """Show a session: its model, whether it is open, and how much was captured of it."""
    async with context.gateway() as gateway:
        return await gateway.session(request.session)


@operation("session", "close", Traits(destructive=True, idempotent=True), text=_text)
async def close(context: Context, request: CloseSession) -> Session:
    """End a session: its credential opens nothing any more, and what it said is sealed.

    A harness that still works in it is refused its next call. Sessions end by themselves with the
    command that opened them; one whose command was killed is ended by the next start.
    """
    async with context.gateway() as gateway:
        return await gateway.end_session(request.session)
