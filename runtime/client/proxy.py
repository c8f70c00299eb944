"""The proxy's client: samplers, renewals, evidence, and the keys that verify trial tokens."""

from typing import Any, cast

from runtime.client.roles import RoleClient
from runtime.home import Role
from specs import canonical
from specs.interaction import Seal
from specs.operator_api import Session
from specs.records import Trial
from specs.worker_api import EvidenceCommit, RenewalReply, RenewalRequest, SessionCommit


class ProxyClient(RoleClient):
    """What the proxy asks of the gateway."""

    role = Role.PROXY
    patience = 15.0
    """The proxy rides out a restart of the gateway."""

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

    async def commit_session(self, seal: Seal) -> Session:
        """Keep what a session said, its object uploaded before; repeating it is harmless."""
        return await self.transport.call(
            "POST", "/v1/proxy/sessions", Session, body=SessionCommit(seal=seal), idempotent=True
        )

    async def jwks(self) -> dict[str, Any]:
        """Public keys of trial tokens, as a JWK set."""
        response = await self.transport.send("GET", "/.well-known/jwks.json")
        return cast(dict[str, Any], canonical.loads(response.content, what="key set"))
