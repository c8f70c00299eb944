"""What an operation works with: the home, a client of its gateway, and a place for progress."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from runtime.client import OperatorClient
from runtime.home import Home

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

    @asynccontextmanager
    async def gateway(self) -> AsyncGenerator[OperatorClient]:
        """A client of a gateway that runs; starts the stack unless that is forbidden."""
        from tools.stack import ensure_stack

        await ensure_stack(self)
        async with OperatorClient.at(self.home, patience=PATIENCE_SEC) as client:
            yield client
