"""The proxy's client: samplers, renewals, evidence, and the keys that verify trial tokens."""

from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from runtime.client.reads import ReadClient
from runtime.client.transport import Transport
from runtime.home import Home, Role
from specs import canonical
from specs.interaction import Seal
from specs.records import Trial
from specs.worker_api import EvidenceCommit, RenewalReply, RenewalRequest

PATIENCE = 15.0


class ProxyClient(ReadClient):
    """What the proxy asks of the gateway."""

    @classmethod
    def at(cls, home: Home, *, patience: float = PATIENCE) -> Self:
        """The client of a local stack."""
        return cls.connect(home.gateway_socket, home.key(Role.PROXY), patience=patience)

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

    async def renew(self, trials: dict[str, int]) -> RenewalReply:
        """Which of the trials (id → fence) may go on for another lease."""
        return await self.transport.call(
            "POST",
            "/v1/proxy/renewals",
            RenewalReply,
            body=RenewalRequest(trials=trials),
            idempotent=True,
        )

    async def commit_evidence(self, seal: Seal) -> Trial:
        """Record a trial's seal, its object uploaded before; repeating it is harmless."""
        return await self.transport.call(
            "POST", "/v1/proxy/evidence", Trial, body=EvidenceCommit(seal=seal), idempotent=True
        )

    async def jwks(self) -> dict[str, Any]:
        """Public keys of trial tokens, as a JWK set."""
        response = await self.transport.send("GET", "/.well-known/jwks.json")
        return cast(dict[str, Any], canonical.loads(response.content, what="key set"))
