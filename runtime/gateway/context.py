"""What the routes of one gateway share, and who is calling."""

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import anyio
from fastapi import Request

from runtime.gateway.tokens import TokenSigner
from runtime.gateway.ui import Ui
from runtime.home import Role
from runtime.storage.database import Database, Transaction
from runtime.storage.objects import ObjectStore
from runtime.storage.tables import LOCAL_ORG
from specs.construction_records import ApprovalRules
from specs.grant import GatewayAccess, Phase


class Wakeups:
    """In-memory hints that a run has new events. The database stays the truth: a reader
    registers, then looks, and waits only if there was nothing."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[anyio.Event]] = defaultdict(set)
        self._stopped = False

    def notify(self, run: str) -> None:
        """Wake whoever waits for the run."""
        for event in self._waiting.pop(run, set[anyio.Event]()):
            event.set()

    @property
    def stopped(self) -> bool:
        """Whether the gateway is ending: nobody should wait any more."""
        return self._stopped

    def stop(self) -> None:
        """Wake everybody, for good."""
        self._stopped = True
        for run in list(self._waiting):
            self.notify(run)

    @contextmanager
    def watch(self, run: str) -> Generator[anyio.Event]:
        """An event that is set at the run's next change."""
        event = anyio.Event()
        if self._stopped:
            event.set()
        self._waiting[run].add(event)
        try:
            yield event
        finally:
            waiting = self._waiting.get(run)
            if waiting is not None:
                waiting.discard(event)
                if not waiting:
                    del self._waiting[run]


@dataclass(frozen=True)
class Gateway:
    """One running gateway."""

    database: Database
    objects: ObjectStore
    signer: TokenSigner
    keys: dict[Role, str]
    ui: Ui
    rules: ApprovalRules = field(default_factory=ApprovalRules)
    wakeups: Wakeups = field(default_factory=Wakeups)

    async def change[T](self, run: str, transaction: Transaction[T]) -> T:
        """A write that may add events to `run`; its followers are woken after the commit."""
        result = await self.database.write(transaction)
        self.wakeups.notify(run)
        return result


@dataclass(frozen=True, slots=True)
class Granted:
    """What a grant opens, read when its request came."""

    id: str
    run: str
    trial: str
    phase: Phase
    access: GatewayAccess


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling: a role, by its key, or the trial of a grant, by its credential."""

    role: Role | None
    org: str = LOCAL_ORG
    grant: Granted | None = None


def gateway_of(request: Request) -> Gateway:
    """The gateway that serves a request."""
    return cast(Gateway, request.app.state.gateway)
