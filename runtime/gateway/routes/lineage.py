"""Lineage: one update by its id, and what came of a checkpoint or of a run."""

from fastapi import APIRouter, Response

from runtime.gateway import lineage
from runtime.gateway.auth import AnyRole, GatewayDep
from runtime.gateway.routes.parameters import LIMIT, Cursor, Limit
from runtime.gateway.wire import answer

router = APIRouter()


@router.get("/v1/updates/{update}")
async def update(gateway: GatewayDep, caller: AnyRole, update: str) -> Response:
    """One update."""
    return answer(await gateway.database.read(lambda c: lineage.update(c, caller.org, update)))


@router.get("/v1/checkpoints/{checkpoint}/runs")
async def runs_of_checkpoint(
    gateway: GatewayDep,
    caller: AnyRole,
    checkpoint: str,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Runs whose model is the checkpoint, oldest first."""
    return answer(
        await gateway.database.read(
            lambda c: lineage.runs_of_checkpoint(c, caller.org, checkpoint, cursor, limit)
        )
    )


@router.get("/v1/checkpoints/{checkpoint}/groups")
async def groups_of_checkpoint(
    gateway: GatewayDep,
    caller: AnyRole,
    checkpoint: str,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Groups that sampled from the checkpoint, of every run, oldest first."""
    return answer(
        await gateway.database.read(
            lambda c: lineage.groups_of_checkpoint(c, caller.org, checkpoint, cursor, limit)
        )
    )


@router.get("/v1/runs/{run}/used-by/runs")
async def runs_of_run(
    gateway: GatewayDep, caller: AnyRole, run: str, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Runs that start from a checkpoint of the run or learn from its trials, oldest first."""
    return answer(
        await gateway.database.read(
            lambda c: lineage.runs_of_run(c, caller.org, run, cursor, limit)
        )
    )


@router.get("/v1/runs/{run}/used-by/groups")
async def groups_of_run(
    gateway: GatewayDep, caller: AnyRole, run: str, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Groups that sampled from what the run saved, its own later batches too, oldest first."""
    return answer(
        await gateway.database.read(
            lambda c: lineage.groups_of_run(c, caller.org, run, cursor, limit)
        )
    )
