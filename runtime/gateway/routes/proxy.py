"""What the proxy asks for: renewals of its active trials, and the commit of evidence."""

from typing import Annotated

from fastapi import APIRouter, Response

from runtime.gateway import trials
from runtime.gateway.auth import GatewayDep, Proxy
from runtime.gateway.wire import answer, body
from specs.worker_api import EvidenceCommit, RenewalRequest

router = APIRouter(prefix="/v1/proxy")


@router.post("/renewals")
async def renew(
    gateway: GatewayDep,
    caller: Proxy,
    request: Annotated[RenewalRequest, body(RenewalRequest, "renewal request")],
) -> Response:
    """Which trials may go on."""
    return answer(await gateway.database.read(lambda c: trials.renew(c, caller.org, request)))


@router.post("/evidence")
async def evidence(
    gateway: GatewayDep,
    caller: Proxy,
    commit: Annotated[EvidenceCommit, body(EvidenceCommit, "evidence")],
) -> Response:
    """Store a trial's seal."""
    return answer(
        await gateway.change(
            commit.seal.run, lambda c: trials.commit_evidence(c, caller.org, commit.seal)
        )
    )
