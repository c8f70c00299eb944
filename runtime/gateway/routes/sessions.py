"""Sessions: model calls outside of runs."""

from typing import Annotated

from fastapi import APIRouter, Response

from runtime.gateway import sessions
from runtime.gateway.auth import AnyRole, GatewayDep, Operator, Proxy
from runtime.gateway.routes.parameters import LIMIT, Cursor, Limit
from runtime.gateway.wire import answer, body
from specs.operator_api import SessionRequest
from specs.worker_api import SessionCommit

router = APIRouter()


@router.post("/v1/sessions")
async def start(
    gateway: GatewayDep,
    caller: Operator,
    request: Annotated[SessionRequest, body(SessionRequest, "session request")],
) -> Response:
    """Open a session: its record, and the credential of its calls."""
    return answer(
        await gateway.database.write(
            lambda c: sessions.start(c, caller.org, request, gateway.signer)
        ),
        201,
    )


@router.get("/v1/sessions")
async def listed(
    gateway: GatewayDep, caller: AnyRole, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Sessions, newest first."""
    return answer(
        await gateway.database.read(lambda c: sessions.listed(c, caller.org, cursor, limit))
    )


@router.get("/v1/sessions/{session}")
async def show(gateway: GatewayDep, caller: AnyRole, session: str) -> Response:
    """One session."""
    return answer(await gateway.database.read(lambda c: sessions.show(c, caller.org, session)))


@router.post("/v1/sessions/{session}/end")
async def end(gateway: GatewayDep, caller: Operator, session: str) -> Response:
    """End a session."""
    return answer(await gateway.database.write(lambda c: sessions.end(c, caller.org, session)))


@router.post("/v1/proxy/sessions")
async def commit(
    gateway: GatewayDep,
    caller: Proxy,
    request: Annotated[SessionCommit, body(SessionCommit, "session commit")],
) -> Response:
    """Keep what a session said."""
    return answer(
        await gateway.database.write(lambda c: sessions.commit(c, caller.org, request.seal))
    )
