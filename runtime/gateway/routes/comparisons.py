"""Recorded comparisons of evaluations."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from runtime.gateway import comparisons
from runtime.gateway.auth import AnyRole, GatewayDep, Publisher
from runtime.gateway.routes.parameters import LIMIT, Cursor, Limit
from runtime.gateway.wire import answer, body
from specs.comparison import ComparisonSubmission
from specs.ids import Digest

router = APIRouter()


@router.post("/v1/comparisons")
async def record(
    gateway: GatewayDep,
    caller: Publisher,
    found: Annotated[ComparisonSubmission, body(ComparisonSubmission, "comparison")],
) -> Response:
    """Record a comparison: 201, or 200 when it is recorded already."""
    stored, new = await gateway.database.write(lambda c: comparisons.record(c, caller.org, found))
    return answer(stored, 201 if new else 200)


@router.get("/v1/comparisons")
async def listed(
    gateway: GatewayDep,
    caller: AnyRole,
    dataset: Annotated[Digest | None, Query()] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Recorded comparisons, newest first."""
    return answer(
        await gateway.database.read(
            lambda c: comparisons.listed(c, caller.org, dataset, cursor, limit)
        )
    )
