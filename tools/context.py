"""What an operation works with: the home, a client of its gateway, and a place for progress.

The gateway is the home's own, whose stack is started if need be, or the one that
`PRACTICUM_GATEWAY` names.
"""

import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from runtime.client import OperatorClient, Remote, remote_gateway
from runtime.home import Home
from specs.errors import ErrorCode, ErrorObject, InvalidInput

type Progress = Callable[[str], Coroutine[Any, Any, None]]
type Emit = Callable[[BaseModel, str], Coroutine[Any, Any, None]]
"""Takes a record and its text."""

PATIENCE_SEC = 10.0
"""How long a request rides out a restart of the gateway."""


async def _silent(_: str) -> None:
    """Progress that nobody reads."""


class Context:
    """One serves a command, or one call of an MCP session.

    :ivar home: the home of the stack.
    :ivar progress: told in words what a long operation does.
    :ivar emit: takes each record of a stream as it comes; None when only the result is wanted.
    """

    def __init__(
        self, home: Home, *, progress: Progress = _silent, emit: Emit | None = None
    ) -> None:
        self.home = home
        self.progress = progress
        self.emit = emit

    @property
    def remote(self) -> Remote | None:
        """The gateway elsewhere, if this command's environment names one."""
        return remote_gateway(os.environ)

    def require_local(self, what: str) -> Home:
        """The home, for what only its own stack can do.

        Raises:
            InvalidInput: `not_local`: the gateway is elsewhere.
        """
        if self.remote is not None:
            raise InvalidInput(
                f"{what} works on the stack of this machine, and PRACTICUM_GATEWAY names another.",
                code=ErrorCode.NOT_LOCAL,
                object=ErrorObject(type="variable", id="PRACTICUM_GATEWAY"),
                next="Do it where that gateway runs, or unset the variable to use a stack here.",
            )
        return self.home

    def client(self, patience: float) -> OperatorClient:
        """A client of the gateway, whether it runs or not; `patience` in seconds."""
        remote = self.remote
        if remote is None:
            return OperatorClient.at(self.home, patience=patience)
        return OperatorClient.connect(remote.place, remote.token, patience=patience)

    @asynccontextmanager
    async def gateway(self) -> AsyncGenerator[OperatorClient]:
        """A client of a gateway that runs; starts the stack unless that is forbidden.

        Raises:
            Unavailable: the stack cannot be started, or must not be.
        """
        if self.remote is None:
            from tools.stack import ensure_stack

            await ensure_stack(self)
        async with self.client(PATIENCE_SEC) as client:
            yield client
