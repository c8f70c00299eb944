"""Fixtures of the sandbox tests: a state folder, a base, a running sandbox."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

os.environ.setdefault("HARBOR_TELEMETRY", "0")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from runtime.execution.sandbox.base import derive
from runtime.execution.sandbox.cgroups import Limits
from runtime.execution.sandbox.sandbox import Sandbox, Settings
from runtime.execution.sandbox.sandboxd import linux
from tests.runtime.execution.sandbox.support import exists, start


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder for the whole session: bases and layers are made once."""
    if not linux.SUPPORTED:
        pytest.skip(f"no sandboxes on {linux.MACHINE}")
    return tmp_path_factory.mktemp("sandbox-state")


@pytest.fixture(scope="session")
def settings(state: Path) -> Settings:
    """Settings of a small sandbox."""
    return Settings(state, derive(state), limits=Limits(memory_mb=256, cpus=1, pids=128))


@pytest.fixture
async def sandbox(settings: Settings) -> AsyncIterator[Sandbox]:
    """A running sandbox; afterwards nothing of it is left."""
    running = await start(settings)
    yield running
    await running.stop()
    assert not running.directory.path.exists()
    assert not any(exists(path) for path in running.cgroups.paths)
