"""A model cache of its own for these tests, and all carriers of the protocol.

`compute` runs each test against `LocalCompute` in process, and against the same behind a real
HTTP server on a Unix socket. A module that names the carrier `tinker` too has it run against
the training service's real SDK, which talks to a loopback service in another process. `model`
is the model under test: `tiny`, wherever it is.
"""

import gc
import os
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import uvicorn

# Read when torch is imported, which the modules below do not do: see `torch_backend`.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from runtime import exclusive
from runtime.compute import models
from runtime.compute.client import HttpCompute
from runtime.compute.protocol import Compute
from runtime.compute.router import LocalCompute
from runtime.compute.server import create_app
from tests.runtime.compute.loopback import REMOTE, Loopback, loopback


@pytest.fixture(scope="session", autouse=True)
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A fresh cache; a pulled SmolLM2 of the user is linked into it, and only read."""
    pulled = models.models_folder() / models.SMOLLM2
    folder = tmp_path_factory.mktemp("models")
    if pulled.is_dir():
        (folder / models.SMOLLM2).symlink_to(pulled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRACTICUM_MODELS", str(folder))
        models.pull(models.TINY)
        yield folder


@pytest.fixture
def smollm2(model_cache: Path) -> str:
    """The name of SmolLM2, where it has been pulled."""
    if not models.model_info(models.SMOLLM2).present:
        pytest.skip("run `practicum model pull smollm2-135m-instruct` first")
    return models.SMOLLM2


@contextmanager
def serving(compute: Compute, socket: Path, *, grace: int = 2) -> Generator[None]:
    """Serve `compute` on `socket` from a thread with its own loop; `grace` as `GRACE_S`."""
    config = uvicorn.Config(
        create_app(compute), log_level="warning", timeout_graceful_shutdown=grace
    )
    server = uvicorn.Server(config)
    with exclusive.listen(socket) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


@asynccontextmanager
async def http_compute(state: Path, socket: Path) -> AsyncGenerator[HttpCompute]:
    """A client of a served `LocalCompute`."""
    local = LocalCompute(state)
    with serving(local, socket):
        async with HttpCompute(socket) as client:
            yield client


@pytest.fixture(scope="session")
def _running_service(
    model_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Loopback]:
    with loopback(tmp_path_factory.mktemp("service")) as made:
        yield made


@pytest.fixture
def swept() -> Generator[None]:
    """What the SDK leaves is collected where its warnings are expected (`LEAVES`), not later."""
    yield
    gc.collect()


@pytest.fixture
def service(_running_service: Loopback, swept: None) -> Generator[Loopback]:
    """The loopback service, where nothing goes wrong yet."""
    yield _running_service
    _running_service.reset()


@pytest.fixture(params=["local", "http"])
def carrier(request: pytest.FixtureRequest) -> str:
    """How the protocol is carried."""
    return request.param


@pytest.fixture
def model(carrier: str) -> str:
    """The model under test, by its name there."""
    return REMOTE if carrier == "tinker" else models.TINY


@pytest.fixture
async def compute(
    carrier: str, request: pytest.FixtureRequest, tmp_path: Path, short_dir: Path
) -> AsyncGenerator[Compute]:
    """The protocol over each carrier."""
    if carrier == "local":
        async with LocalCompute(tmp_path / "state") as local:
            yield local
    elif carrier == "tinker":
        service: Loopback = request.getfixturevalue("service")
        async with service.compute(tmp_path / "state") as remote:
            yield remote
    else:
        async with http_compute(tmp_path / "state", short_dir / "s") as client:
            yield client


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[LocalCompute]:
    """The protocol in process."""
    async with LocalCompute(tmp_path / "state") as compute:
        yield compute
