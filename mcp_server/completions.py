"""Completions: what an argument of a prompt or a resource can be, newest first.

A completion is a hint. It starts no stack, and where none runs it has nothing to say.
"""

from collections.abc import Awaitable, Callable

from mcp_server.offers import Complete
from mcp_server.resources import schema_names
from runtime.client import OperatorClient
from runtime.home import Home
from specs.errors import PracticumError
from tools.context import Context

PAGE = 200

type Values = Callable[[OperatorClient], Awaitable[list[str]]]


async def _runs(gateway: OperatorClient) -> list[str]:
    return [run.id for run in (await gateway.runs(limit=PAGE)).items]


async def _checkpoints(gateway: OperatorClient) -> list[str]:
    return [one.id for one in (await gateway.checkpoints(limit=PAGE)).items]


async def _constructions(gateway: OperatorClient) -> list[str]:
    return [one.id for one in (await gateway.constructions(limit=PAGE)).items]


async def _datasets(gateway: OperatorClient) -> list[str]:
    return [one.reference for one in (await gateway.datasets(limit=PAGE)).items]


async def _profiles(gateway: OperatorClient) -> list[str]:
    return [one.reference for one in (await gateway.profiles(limit=PAGE)).items]


async def _models(gateway: OperatorClient) -> list[str]:
    return [one.name for one in (await gateway.models()).models]


VALUES: dict[str, Values] = {
    "run": _runs,
    "baseline": _runs,
    "candidate": _runs,
    "checkpoint": _checkpoints,
    "construction": _constructions,
    "dataset": _datasets,
    "profile": _profiles,
    "model": _models,
}


def _client(home: Home) -> OperatorClient:
    """The gateway's client, which asks once."""
    remote = Context(home).remote
    if remote is not None:
        return OperatorClient.connect(remote.place, remote.token, patience=0)
    return OperatorClient.at(home, patience=0)


def completer(home: Home) -> Complete:
    """Completes the arguments of Practicum's own prompts and resources."""

    async def complete(name: str, written: str) -> list[str] | None:
        if name == "name":
            found = schema_names()
        elif name in VALUES:
            try:
                async with _client(home) as gateway:
                    found = await VALUES[name](gateway)
            except (PracticumError, OSError):
                found = []
        else:
            return None
        return [value for value in found if value.startswith(written)]

    return complete
