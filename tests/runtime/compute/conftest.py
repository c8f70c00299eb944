"""A model cache of its own for these tests, and both carriers of the protocol.

`compute` runs each test twice: against `LocalCompute` in process, and against the same behind
a real HTTP server on a Unix socket.
"""

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
def serving(compute: Compute, socket: Path) -> Generator[None]:
    """Serve `compute` on `socket` from a thread with its own loop."""
    config = uvicorn.Config(create_app(compute), log_level="warning", timeout_graceful_shutdown=2)
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


@pytest.fixture(params=["local", "http"])
async def compute(
    request: pytest.FixtureRequest, tmp_path: Path, short_dir: Path
) -> AsyncGenerator[Compute]:
    """The protocol over each carrier."""
    if request.param == "local":
        async with LocalCompute(tmp_path / "state") as local:
            yield local
    else:
        async with http_compute(tmp_path / "state", short_dir / "s") as client:
            yield client


@pytest.fixture
async def local(tmp_path: Path) -> AsyncGenerator[LocalCompute]:
    """The protocol in process."""
    async with LocalCompute(tmp_path / "state") as compute:
        yield compute
