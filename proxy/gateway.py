"""What the proxy needs of the gateway; `runtime.client.ProxyClient` provides it."""

from pathlib import Path
from typing import Any, Protocol

from specs.interaction import Seal
from specs.operator_api import Session
from specs.records import Trial
from specs.run import SamplerRef
from specs.worker_api import RenewalReply


class Gateway(Protocol):
    """The proxy's side of the gateway. Each raises `Unavailable` when it cannot be reached."""

    async def jwks(self) -> dict[str, Any]:
        """The public keys of trial tokens, as a JWK set."""
        ...

    async def sampler(self, sampler: str) -> SamplerRef:
        """What a sampler id stands for."""
        ...

    async def trial(self, trial: str) -> Trial:
        """The record of a trial."""
        ...

    async def object(self, digest: str) -> bytes:
        """The verified bytes of an object."""
        ...

    async def renew(self, trials: dict[str, int]) -> RenewalReply:
        """Which of the trials (id → fence) may go on."""
        ...

    async def upload_file(self, path: Path, *, digest: str | None = None) -> str:
        """Create an object from a file, streamed; harmless to repeat."""
        ...

    async def commit_evidence(self, seal: Seal) -> Trial:
        """Record a seal; harmless to repeat."""
        ...

    async def commit_session(self, seal: Seal) -> Session:
        """Record what a session said; harmless to repeat."""
        ...
