"""Construction plans: create, revise, record, approve, read."""

from typing import Annotated

from fastapi import APIRouter, Response

from runtime.gateway.auth import AnyRole, Approver, Constructor, GatewayDep
from runtime.gateway.constructions import reading, steps
from runtime.gateway.routes.parameters import LIMIT, Cursor, Limit
from runtime.gateway.wire import answer, body
from specs.construction_records import (
    Approval,
    ConstructionRevision,
    ConstructionSubmission,
    RecordRequest,
)

router = APIRouter()

KIND = "construction"


@router.post("/v1/constructions")
async def create(
    gateway: GatewayDep,
    caller: Constructor,
    submission: Annotated[ConstructionSubmission, body(ConstructionSubmission, KIND)],
) -> Response:
    """Keep a draft: 201, or 200 when it is there."""
    made, new = await gateway.database.write(lambda c: steps.create(c, caller, submission))
    return answer(made, 201 if new else 200)


@router.get("/v1/constructions")
async def listed(
    gateway: GatewayDep, caller: AnyRole, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Constructions, newest first."""
    return answer(
        await gateway.database.read(lambda c: reading.listed(c, caller.org, cursor, limit))
    )


@router.get("/v1/constructions/{construction}")
async def show(gateway: GatewayDep, caller: AnyRole, construction: str) -> Response:
    """One construction."""
    return answer(await gateway.database.read(lambda c: reading.show(c, caller.org, construction)))


@router.post("/v1/constructions/{construction}/revise")
async def revise(
    gateway: GatewayDep,
    caller: Constructor,
    construction: str,
    revision: Annotated[ConstructionRevision, body(ConstructionRevision, KIND)],
) -> Response:
    """The next version, in draft."""
    return answer(
        await gateway.database.write(lambda c: steps.revise(c, caller, construction, revision))
    )


@router.post("/v1/constructions/{construction}/records")
async def record(
    gateway: GatewayDep,
    caller: Constructor,
    construction: str,
    request: Annotated[RecordRequest, body(RecordRequest, KIND)],
) -> Response:
    """Take one step."""
    return answer(
        await gateway.database.write(
            lambda c: steps.record(c, caller, construction, request.record, gateway.rules)
        )
    )


@router.post("/v1/constructions/{construction}/approve")
async def approve(
    gateway: GatewayDep,
    caller: Approver,
    construction: str,
    approval: Annotated[Approval, body(Approval, KIND)],
) -> Response:
    """Approve the plan, its probes and their review."""
    return answer(
        await gateway.database.write(
            lambda c: steps.approve(c, caller, construction, approval, gateway.rules)
        )
    )
