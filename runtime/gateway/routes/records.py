"""Records of runs: trials, groups, updates, checkpoints, logs, samplers."""

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel
from sqlalchemy import Connection

from runtime.gateway import checkpoints as owned
from runtime.gateway import lookup, records, views
from runtime.gateway.auth import AnyRole, GatewayDep, Operator
from runtime.gateway.context import Caller, Gateway
from runtime.gateway.routes.parameters import LIMIT, Cursor, Limit
from runtime.gateway.wire import answer, body
from runtime.storage.tables import checkpoints, runs, samplers, trials
from specs.ids import Id, Prefix
from specs.operator_api import KeepState

router = APIRouter()


async def _of_run(
    gateway: Gateway, caller: Caller, run: str, read: Callable[[Connection, str], BaseModel]
) -> Response:
    """A page of a run that may be named by a short id."""

    def transaction(connection: Connection) -> BaseModel:
        row = lookup.by_short_id(connection, runs, caller.org, run, Prefix.RUN)
        return read(connection, row.id)

    return answer(await gateway.database.read(transaction))


@router.get("/v1/runs/{run}/trials")
async def trials_of(
    gateway: GatewayDep,
    caller: AnyRole,
    run: str,
    batch: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    group: Annotated[Id | None, Query()] = None,
    counted: bool | None = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Trials, in slot order."""
    return await _of_run(
        gateway,
        caller,
        run,
        lambda c, run: records.trial_page(
            c, run, cursor, limit, batch=batch, group=group, counted=counted
        ),
    )


@router.get("/v1/runs/{run}/groups")
async def groups_of(
    gateway: GatewayDep, caller: AnyRole, run: str, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Sampling groups, in order."""
    return await _of_run(
        gateway, caller, run, lambda c, run: records.group_page(c, run, cursor, limit)
    )


@router.get("/v1/runs/{run}/updates")
async def updates_of(
    gateway: GatewayDep, caller: AnyRole, run: str, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Updates, in order."""
    return await _of_run(
        gateway, caller, run, lambda c, run: records.update_page(c, run, cursor, limit)
    )


@router.get("/v1/runs/{run}/checkpoints")
async def checkpoints_of(
    gateway: GatewayDep, caller: AnyRole, run: str, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Checkpoints, in order."""
    return await _of_run(
        gateway,
        caller,
        run,
        lambda c, run: records.checkpoint_page(c, caller.org, run, cursor, limit),
    )


@router.get("/v1/runs/{run}/logs")
async def logs_of(
    gateway: GatewayDep,
    caller: AnyRole,
    run: str,
    source: Literal["worker", "setup", "harness", "verifier"] | None = None,
    trial: Annotated[Id | None, Query()] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Response:
    """Pieces of logs, oldest first."""
    return await _of_run(
        gateway,
        caller,
        run,
        lambda c, run: records.log_page(c, run, cursor, limit, source=source, trial=trial),
    )


@router.get("/v1/trials/{trial}")
async def trial(gateway: GatewayDep, caller: AnyRole, trial: str) -> Response:
    """One trial."""
    return answer(
        await gateway.database.read(
            lambda c: views.trial(lookup.by_short_id(c, trials, caller.org, trial, Prefix.TRIAL))
        )
    )


@router.get("/v1/trials/{trial}/seal")
async def seal(gateway: GatewayDep, caller: AnyRole, trial: str) -> Response:
    """The seal of a trial's evidence, from when its harness has ended; a trial that is over
    has it in its record."""
    return answer(await gateway.database.read(lambda c: records.trial_seal(c, caller.org, trial)))


@router.get("/v1/samplers/{sampler}")
async def sampler(gateway: GatewayDep, caller: AnyRole, sampler: str) -> Response:
    """One sampler."""
    return answer(
        await gateway.database.read(
            lambda c: views.sampler(
                lookup.by_short_id(c, samplers, caller.org, sampler, Prefix.SAMPLER)
            )
        )
    )


@router.get("/v1/checkpoints")
async def checkpoints_of_org(
    gateway: GatewayDep, caller: AnyRole, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Every checkpoint, newest first."""
    return answer(
        await gateway.database.read(
            lambda c: records.checkpoint_page(c, caller.org, None, cursor, limit)
        )
    )


@router.get("/v1/checkpoints/{checkpoint}")
async def checkpoint(gateway: GatewayDep, caller: AnyRole, checkpoint: str) -> Response:
    """One checkpoint."""
    return answer(
        await gateway.database.read(
            lambda c: views.checkpoint(
                lookup.by_short_id(c, checkpoints, caller.org, checkpoint, Prefix.CHECKPOINT)
            )
        )
    )


@router.get("/v1/checkpoints/{checkpoint}/uses")
async def checkpoint_uses(gateway: GatewayDep, caller: AnyRole, checkpoint: str) -> Response:
    """What refers to a checkpoint."""
    return answer(await gateway.database.read(lambda c: owned.uses(c, caller.org, checkpoint)))


@router.delete("/v1/checkpoints/{checkpoint}")
async def delete_checkpoint(
    gateway: GatewayDep, caller: Operator, checkpoint: str, state_only: bool = False
) -> Response:
    """Forget weights and state, or the state alone; the record stays."""
    return answer(
        await gateway.database.write(
            lambda c: owned.delete(c, caller.org, checkpoint, state_only=state_only)
        )
    )


@router.post("/v1/checkpoints/{checkpoint}/keep")
async def keep_checkpoint(
    gateway: GatewayDep,
    caller: Operator,
    checkpoint: str,
    request: Annotated[KeepState, body(KeepState, "request")],
) -> Response:
    """Set when trainer state expires."""
    return answer(
        await gateway.database.write(
            lambda c: owned.keep(c, caller.org, checkpoint, request.seconds)
        )
    )
