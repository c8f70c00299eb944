"""The worker's client: claims, fenced writes, completion, trial tokens.

`ClaimWriter` numbers the write requests of one claim. A request whose outcome is unknown
(connection lost, cancelled) is sent again under the same number before anything else, so
the gateway applies it once (invariant 10).
"""

from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import anyio

from runtime.client.reads import ReadClient
from runtime.client.transport import Transport
from runtime.home import Home, Role
from specs.errors import Internal, PracticumError, Problem, Unavailable
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
    Write,
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

    async def complete(self, run: str, completion: Completion) -> Run:
        """End the claim; repeating it is harmless."""
        return await self.transport.call(
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


class ClaimWriter:
    """Numbered writes of one claim, one at a time in the order of their arrival."""

    def __init__(self, client: WorkerClient, claim: Claim) -> None:
        self.client = client
        self.claim = claim
        self.last_event = 0
        self._sequence = 0
        self._pending: WriteRequest | Completion | None = None
        self._lock = anyio.Lock()

    async def write(self, *writes: Write) -> WriteReply:
        """Record all of `writes`, or none.

        Returns once they are durable. On cancel they may have been recorded; the next call
        finds out by repeating them.

        Raises:
            Conflict: `stale_fence`: the claim is lost and nothing was recorded.
            Unavailable: unknown whether they were recorded; the next call repeats them first.
        """
        async with self._lock:
            await self._settle()
            self._pending = WriteRequest(
                claim=self.claim.id,
                fence=self.claim.fence,
                sequence=self._sequence + 1,
                writes=writes,
            )
            await self._settle()
            return WriteReply(last_event=self.last_event)

    async def complete(
        self,
        outcome: Literal["completed", "failed", "cancelled", "blocked", "released"],
        reason: Problem | None = None,
    ) -> Run:
        """End the claim at the last event that this writer knows of."""
        async with self._lock:
            await self._settle()
            self._pending = Completion(
                claim=self.claim.id,
                fence=self.claim.fence,
                sequence=self._sequence + 1,
                outcome=outcome,
                reason=reason,
                last_event=self.last_event,
            )
            run = await self._settle()
            if run is None:
                raise Internal("The completion gave no run.")
            return run

    async def _settle(self) -> Run | None:
        """Send the pending request until its outcome is known; None when nothing is pending
        or it was a write."""
        pending = self._pending
        if pending is None:
            return None
        run: Run | None = None
        try:
            if isinstance(pending, WriteRequest):
                reply = await self.client.write(self.claim.run, pending)
                self.last_event = reply.last_event
            else:
                run = await self.client.complete(self.claim.run, pending)
        except Unavailable:
            raise
        except PracticumError as error:
            if error.problem.status < 500:  # refused: nothing was recorded under this number
                self._pending = None
            raise
        self._pending = None
        self._sequence = pending.sequence
        return run
