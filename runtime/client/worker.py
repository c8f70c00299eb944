"""The worker's client: claims, fenced writes, completion, trial tokens.

The caller numbers the write requests of its claim, and sends a request whose outcome is
unknown (connection lost, cancelled) again under the same number before any other: the gateway
then applies it once (invariant 10).
"""

from pathlib import Path
from types import TracebackType
from typing import Self

from runtime.client.reads import ReadClient
from runtime.client.transport import Transport
from runtime.home import Home, Role
from specs.operator_api import ModelList
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

PATIENCE = 15.0
"""Seconds for which a worker rides out a restart of the gateway."""


class WorkerClient(ReadClient):
    """Claims runs and records what becomes of them."""

    @classmethod
    def at(cls, home: Home, *, patience: float = PATIENCE) -> Self:
        """The client of a local stack."""
        return cls.connect(home.gateway_socket, home.key(Role.WORKER), patience=patience)

    @classmethod
    def connect(cls, socket: Path, key: str, *, patience: float = PATIENCE) -> Self:
        """The client behind an explicit socket and key."""
        return cls(Transport(socket, key, patience=patience))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.transport.close()

    async def put_models(self, models: ModelList) -> ModelList:
        """Make models known; merged by name."""
        return await self.transport.call("PUT", "/v1/models", ModelList, body=models)

    async def claim(self, worker: str, lease_sec: float) -> Claim | None:
        """Take a run that is queued or whose worker died; None when there is none.

        On cancel a claim may have been made; it then expires after one lease.
        """
        body = ClaimRequest(worker=worker, lease_sec=lease_sec).model_dump_json().encode()
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
