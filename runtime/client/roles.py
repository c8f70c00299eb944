"""What the three role clients share: how they connect, and how they end."""

from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from runtime.client.reads import ReadClient
from runtime.client.transport import Transport
from runtime.home import Home, Role
from specs.operator_api import ModelList


class RoleClient(ReadClient):
    """A client with a role's key; an async context manager that closes its connections."""

    role: ClassVar[Role]
    patience: ClassVar[float]
    """Seconds for which connection failures are ridden out, unless told otherwise."""

    @classmethod
    def at(cls, home: Home, *, patience: float | None = None) -> Self:
        """The client of a local stack."""
        return cls.connect(home.gateway_socket, home.key(cls.role), patience=patience)

    @classmethod
    def connect(cls, place: Path | str, key: str, *, patience: float | None = None) -> Self:
        """The client behind an explicit socket or URL, and key."""
        return cls(Transport(place, key, patience=cls.patience if patience is None else patience))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.transport.close()


class ModelAnnouncer(RoleClient):
    """A role that may make models known."""

    async def put_models(self, models: ModelList) -> ModelList:
        """Make models known; merged by name."""
        return await self.transport.call("PUT", "/v1/models", ModelList, body=models)
