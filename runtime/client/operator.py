"""The operator's client: everything that tools, CLI and MCP do to the gateway."""

from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from runtime.client.reads import ReadClient, Verified
from runtime.client.transport import Transport
from runtime.home import Home, Role
from specs.dataset import Dataset
from specs.operator_api import ModelList, ProfilePublish, Published, Resolve, Started
from specs.records import Update
from specs.run import Admission, Run, Submission

__all__ = ["OperatorClient", "Verified"]


class OperatorClient(ReadClient):
    """Reads of every role, and what changes runs and published documents."""

    @classmethod
    def at(cls, home: Home, *, patience: float = 1.0) -> Self:
        """The client of a local stack."""
        return cls.connect(home.gateway_socket, home.key(Role.OPERATOR), patience=patience)

    @classmethod
    def connect(cls, socket: Path, key: str, *, patience: float = 1.0) -> Self:
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

    async def publish_dataset(self, dataset: Dataset) -> Published:
        """Publish a dataset whose task packages have been uploaded.

        Raises:
            Conflict: `version_exists`: that version has other content.
        """
        return await self.transport.call(
            "POST", "/v1/datasets", Published, body=dataset, idempotent=True
        )

    async def publish_profile(self, request: ProfilePublish) -> Published:
        """Publish a profile; files with a `source` are refused (embed them first)."""
        return await self.transport.call(
            "POST", "/v1/profiles", Published, body=request, idempotent=True
        )

    async def start(self, submission: Submission, *, idempotency_key: str | None = None) -> Started:
        """Admit a run. With a key the request may be repeated and gives one run.

        Raises:
            Conflict: `idempotency_conflict`: the key was used with another body.
        """
        headers = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
        return await self.transport.call(
            "POST",
            "/v1/runs",
            Started,
            body=submission,
            headers=headers,
            idempotent=idempotency_key is not None,
        )

    async def dry_run(self, submission: Submission) -> Admission:
        """What a run would be admitted with; stores nothing."""
        return await self.transport.call(
            "POST", "/v1/runs/dry-run", Admission, body=submission, idempotent=True
        )

    async def cancel(self, run: str) -> Run:
        """Ask for cancellation; repeating it is harmless."""
        return await self.transport.call("POST", f"/v1/runs/{run}/cancel", Run, idempotent=True)

    async def resolve(
        self, run: str, update: str, decision: Literal["applied", "not-applied", "abandon"]
    ) -> Update:
        """Settle the unresolved update that blocks a run."""
        return await self.transport.call(
            "POST",
            f"/v1/runs/{run}/updates/{update}/resolve",
            Update,
            body=Resolve.model_validate({"as": decision}),
        )
