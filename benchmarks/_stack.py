"""Real processes to measure: compute, gateway and proxy in a home of their own.

Models, sockets and logs lie in one temporary folder, so nothing of the user's is touched. The
model is scripted: it answers every request with one text, in the real tokens of a real family,
and costs next to nothing, so that what is measured is everything around it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx

from runtime.client import OperatorClient, WorkerClient
from runtime.compute import models
from runtime.compute.client import HttpCompute
from runtime.home import Home
from specs.errors import PracticumError
from specs.operator_api import ModelList, SessionRequest

ROOT = Path(__file__).resolve().parents[1]
PYTHON = (sys.executable, "-P", "-m")
OURS: Mapping[str, str] = {"PYTHONPATH": str(ROOT)}
"""Environment of our own modules."""
MODEL = "scripted/bench"
ANSWER = (
    "I will look at the failing test first and then at the function that it calls; the error"
    " says that a key is missing, so the reader may have dropped it."
)
"""What the scripted model says to everything."""

_PATIENCE_SEC = 600.0


@dataclass(frozen=True, slots=True)
class Process:
    """A running process and where it writes."""

    popen: subprocess.Popen[bytes]
    log: Path


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack."""

    home: Home
    operator: OperatorClient

    async def credential(self) -> str:
        """The token of a new session, whose calls are captured like a trial's."""
        opened = await self.operator.open_session(SessionRequest(model=MODEL, purpose="agent"))
        return opened.token


@asynccontextmanager
async def stack(family: str) -> AsyncGenerator[Stack]:
    """Run compute, a gateway and a proxy; the scripted model speaks `family`.

    On exit or cancel the processes are ended and their folder is removed.
    """
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name, ExitStack() as running:
        home = Home.at(Path(name) / "h")
        home.create()
        environment = {"PRACTICUM_MODELS": str(home.root / "models"), "OMP_NUM_THREADS": "1"}
        running.enter_context(_environment(environment))
        models.pull_scripted(MODEL, _scenario(family))
        parts = {
            module: running.enter_context(
                process([*PYTHON, module, "--home", str(home.root)], home.logs / f"{module}.log")
            )
            for module in ("runtime.compute", "runtime.gateway", "proxy")
        }
        async with HttpCompute(home.compute_socket) as compute, WorkerClient.at(home) as worker:
            info = await patiently(lambda: compute.model(MODEL), parts["runtime.compute"])
            known = ModelList(models=[info])
            await patiently(lambda: worker.put_models(known), parts["runtime.gateway"])
        async with proxy_client(home) as client:
            await patiently(lambda: client.head("/"), parts["proxy"])
        async with OperatorClient.at(home) as operator:
            yield Stack(home, operator)


@contextmanager
def process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] = OURS
) -> Generator[Process]:
    """A command that writes to `log`; ended by SIGTERM."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output
        )
        try:
            yield Process(running, log)
        finally:
            running.terminate()
            running.wait(30)


def proxy_client(home: Home) -> httpx.AsyncClient:
    """A client of the proxy with as many connections as it needs."""
    transport = httpx.AsyncHTTPTransport(
        uds=str(home.proxy_socket), limits=httpx.Limits(max_keepalive_connections=None)
    )
    return httpx.AsyncClient(
        transport=transport, base_url="http://proxy", timeout=600, trust_env=False
    )


async def patiently[T](attempt: Callable[[], Awaitable[T]], asked: Process) -> T:
    """What `attempt` returns once the process that it asks is there.

    Raises:
        RuntimeError: the process has ended; with the end of its log.
    """
    with anyio.fail_after(_PATIENCE_SEC):
        while True:
            try:
                return await attempt()
            except (PracticumError, httpx.TransportError):
                if asked.popen.poll() is not None:
                    raise RuntimeError(asked.log.read_text()[-2000:]) from None
                await anyio.sleep(0.1)


def _scenario(family: str) -> bytes:
    return json.dumps(
        {
            "schema": "practicum.scenario/v1",
            "tokenizer": family,
            "replies": {},
            "asides": [{"when": {"regex": "(?s)."}, "text": ANSWER}],
        }
    ).encode()


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
