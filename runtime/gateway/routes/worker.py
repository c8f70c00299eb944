"""The worker protocol: claims, heartbeats, fenced writes, completion, trial tokens."""

from typing import Annotated

from fastapi import APIRouter, Response

from runtime.gateway import claims, grants, records, trials, writes
from runtime.gateway.auth import GatewayDep, Worker
from runtime.gateway.wire import answer, body
from specs import canonical
from specs.grant import GrantRequest, GrantToken
from specs.worker_api import (
    ClaimRequest,
    Completion,
    Heartbeat,
    TrialToken,
    TrialTokenRequest,
    WriteRequest,
)

router = APIRouter(prefix="/v1/worker")


@router.post("/claims")
async def claim(
    gateway: GatewayDep,
    caller: Worker,
    request: Annotated[ClaimRequest, body(ClaimRequest, "claim request")],
) -> Response:
    """Own a run: 200; 204 when nothing waits."""
    found = await gateway.database.write(lambda c: claims.claim(c, caller.org, request))
    if found is None:
        return Response(status_code=204)
    gateway.wakeups.notify(found.run)
    return answer(found, as_stored=True)


@router.post("/runs/{run}/heartbeat")
async def heartbeat(
    gateway: GatewayDep,
    caller: Worker,
    run: str,
    beat: Annotated[Heartbeat, body(Heartbeat, "heartbeat")],
) -> Response:
    """Extend the lease."""
    return answer(
        await gateway.database.write(lambda c: claims.heartbeat(c, caller.org, run, beat))
    )


@router.get("/runs/{run}/records")
async def everything(gateway: GatewayDep, caller: Worker, run: str) -> Response:
    """All that is recorded of a run."""
    return answer(await gateway.database.read(lambda c: records.everything(c, caller.org, run)))


@router.post("/runs/{run}/writes")
async def write(
    gateway: GatewayDep,
    caller: Worker,
    run: str,
    request: Annotated[WriteRequest, body(WriteRequest, "write request")],
) -> Response:
    """Record all of the writes, or none."""
    digest = canonical.digest_bytes(request.model_dump_json().encode())
    return answer(
        await gateway.change(run, lambda c: writes.apply(c, caller.org, run, request, digest))
    )


@router.post("/runs/{run}/complete")
async def complete(
    gateway: GatewayDep,
    caller: Worker,
    run: str,
    completion: Annotated[Completion, body(Completion, "completion")],
) -> Response:
    """End the claim."""
    digest = canonical.digest_bytes(completion.model_dump_json().encode())
    return answer(
        await gateway.change(run, lambda c: claims.complete(c, caller.org, run, completion, digest))
    )


@router.post("/runs/{run}/trials/{trial}/token")
async def token(
    gateway: GatewayDep,
    caller: Worker,
    run: str,
    trial: str,
    request: Annotated[TrialTokenRequest, body(TrialTokenRequest, "token request")],
) -> Response:
    """A credential for the model calls of one open trial."""
    granted = await gateway.database.read(
        lambda c: trials.token_claims(c, caller.org, run, trial, request)
    )
    return answer(TrialToken(token=gateway.signer.sign(granted), expires_at=granted.exp))


@router.post("/runs/{run}/trials/{trial}/grant")
async def grant(
    gateway: GatewayDep,
    caller: Worker,
    run: str,
    trial: str,
    request: Annotated[GrantRequest, body(GrantRequest, "grant request")],
) -> Response:
    """What one open trial may ask of the gateway, as the run's plan allows it."""
    claims = await gateway.database.write(
        lambda c: grants.of_trial(c, caller.org, run, trial, request)
    )
    token = gateway.signer.sign(claims)
    return answer(GrantToken(grant=claims.grant, token=token, expires_at=claims.exp))
