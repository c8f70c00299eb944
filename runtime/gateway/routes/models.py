"""Models that are known."""

from typing import Annotated

from fastapi import APIRouter, Response

from runtime.gateway import models
from runtime.gateway.auth import AnyRole, GatewayDep, OperatorOrWorker
from runtime.gateway.wire import answer, body
from specs.operator_api import ModelList

router = APIRouter()


@router.get("/v1/models")
async def known(gateway: GatewayDep, caller: AnyRole) -> Response:
    """Every model, by name."""
    return answer(await gateway.database.read(lambda c: models.known(c, caller.org)))


@router.put("/v1/models")
async def put(
    gateway: GatewayDep,
    caller: OperatorOrWorker,
    given: Annotated[ModelList, body(ModelList, "models")],
) -> Response:
    """Take in what compute says of its models."""
    return answer(await gateway.database.write(lambda c: models.merge(c, caller.org, given)))
