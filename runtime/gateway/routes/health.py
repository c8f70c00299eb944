"""Health and public keys: open to anybody who reaches the socket."""

import json

import sqlalchemy as sa
from fastapi import APIRouter, Response
from sqlalchemy import Connection

from runtime.gateway.auth import GatewayDep
from runtime.gateway.version import installed
from runtime.gateway.wire import JSON_TYPE, answer
from runtime.storage import schema
from runtime.storage.tables import runs
from specs.operator_api import StackHealth
from specs.run import RunState

router = APIRouter()


@router.get("/healthz")
async def health(gateway: GatewayDep) -> Response:
    """Version, schema revision, and how many runs are in which state."""

    def read(connection: Connection) -> StackHealth:
        counted = connection.execute(
            sa.select(runs.c.state, sa.func.count().label("number")).group_by(runs.c.state)
        )
        found = {row.state: row.number for row in counted}
        return StackHealth(
            version=installed("practicum") or "source",
            database=schema.revision(connection) or "",
            runs={state.value: found.get(state.value, 0) for state in RunState},
        )

    return answer(await gateway.database.read(read))


@router.get("/.well-known/jwks.json")
async def keys(gateway: GatewayDep) -> Response:
    """Public keys that verify trial tokens."""
    return Response(json.dumps(gateway.signer.jwks()), media_type=JSON_TYPE)
