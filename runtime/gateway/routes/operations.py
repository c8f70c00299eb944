"""What an operator does to a run: cancel it, resolve its update, extend its budgets."""

from typing import Annotated

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from runtime.gateway import grants, operations
from runtime.gateway.auth import GatewayDep, Operator, Starter
from runtime.gateway.wire import answer, body
from specs.operator_api import Extend, Resolve
from specs.run import Run

router = APIRouter()


@router.post("/v1/runs/{run}/cancel")
async def cancel(gateway: GatewayDep, caller: Starter, run: str) -> Response:
    """Ask for cancellation; a grant, of what it started."""

    def transaction(connection: Connection) -> Run:
        if caller.grant is not None:
            grants.require_own(connection, caller.org, caller.grant, run)
        return operations.cancel(connection, caller.org, run)

    return answer(await gateway.change(run, transaction))


@router.post("/v1/runs/{run}/extend")
async def extend(
    gateway: GatewayDep,
    caller: Operator,
    run: str,
    more: Annotated[Extend, body(Extend, "extension")],
) -> Response:
    """Raise budgets of a run that has spent one."""
    return answer(await gateway.change(run, lambda c: operations.extend(c, caller.org, run, more)))


@router.post("/v1/runs/{run}/updates/{update}/resolve")
async def resolve(
    gateway: GatewayDep,
    caller: Operator,
    run: str,
    update: str,
    decision: Annotated[Resolve, body(Resolve, "resolution")],
) -> Response:
    """Settle the unresolved update that blocks the run."""
    return answer(
        await gateway.change(
            run, lambda c: operations.resolve(c, caller.org, run, update, decision)
        )
    )
