"""The worker's client: claims, fenced writes, completion, trial tokens.

The caller numbers the write requests of its claim, and sends a request whose outcome is
unknown (connection lost, cancelled) again under the same number before any other: the gateway
then applies it once (invariant 10).
"""

from runtime.client.roles import ModelAnnouncer
from runtime.home import Role
from specs.grant import GrantRequest, GrantToken
from specs.run import Run
from specs.worker_api import (
    Claim,
    ClaimRequest,
    Completion,
    Heartbeat,
    HeartbeatReply,
    RunRecords,
    TrialToken,
    TrialTokenRequest,
    WriteReply,
    WriteRequest,
)


class WorkerClient(ModelAnnouncer):
    """Claims runs and records what becomes of them."""

    role = Role.WORKER
    patience = 15.0
    """A worker rides out a restart of the gateway."""

    async def claim(
        self, worker: str, lease_sec: float, *, delegating: bool | None = None
    ) -> Claim | None:
        """Take a run that is queued or whose worker died; None when there is none.

        `delegating`: only runs whose trials may start runs of their own, or only others.

        On cancel a claim may have been made; it then expires after one lease.
        """
        request = ClaimRequest(worker=worker, lease_sec=lease_sec, delegating=delegating)
        body = request.model_dump_json().encode()
        response = await self.transport.send(
            "POST",
            "/v1/worker/claims",
            content=body,
            headers={"content-type": "application/json"},
        )
        if response.status_code == 204:
            return None
        return self.transport.parse(response, Claim)

    async def heartbeat(self, claim: Claim) -> HeartbeatReply:
        """Extend the lease.

        Raises:
            Conflict: `stale_fence`: the claim is lost.
        """
        return await self.transport.call(
            "POST",
            f"/v1/worker/runs/{claim.run}/heartbeat",
            HeartbeatReply,
            body=Heartbeat(claim=claim.id, fence=claim.fence),
            idempotent=True,
        )

    async def records(self, run: str) -> RunRecords:
        """All that is recorded of a run, to continue after a crash."""
        return await self.transport.call("GET", f"/v1/worker/runs/{run}/records", RunRecords)

    async def write(self, run: str, request: WriteRequest) -> WriteReply:
        """Apply all writes, or none; repeating the same sequence changes nothing."""
        return await self.transport.call(
            "POST", f"/v1/worker/runs/{run}/writes", WriteReply, body=request, idempotent=True
        )

    async def complete(self, run: str, completion: Completion) -> None:
        """End the claim; repeating it is harmless."""
        await self.transport.call(
            "POST", f"/v1/worker/runs/{run}/complete", Run, body=completion, idempotent=True
        )

    async def token(self, run: str, trial: str, request: TrialTokenRequest) -> TrialToken:
        """A credential for the model calls of one open trial."""
        return await self.transport.call(
            "POST",
            f"/v1/worker/runs/{run}/trials/{trial}/token",
            TrialToken,
            body=request,
            idempotent=True,
        )

    async def grant(self, run: str, trial: str, request: GrantRequest) -> GrantToken:
        """What one open trial may ask of the gateway; asking again gives the same grant."""
        return await self.transport.call(
            "POST",
            f"/v1/worker/runs/{run}/trials/{trial}/grant",
            GrantToken,
            body=request,
            idempotent=True,
        )
