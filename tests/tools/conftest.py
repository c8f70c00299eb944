"""A gateway and a compute process for operations, each in a place of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.compute.router import LocalCompute
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Stack
from tests.runtime.learning.conftest import template
from tests.runtime.learning.live import Live
from tests.tools.ground import ground

__all__ = ["template"]


@pytest.fixture
async def live(
    short_dir: Path, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Live]:
    """A gateway with compute behind its HTTP carrier; see `ground`."""
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    home = stage.prepared_home(short_dir, template)
    async with LocalCompute(tmp_path / "compute") as local, ground(home, local) as made:
        yield made


@pytest.fixture
async def stack(short_dir: Path, template: Path) -> AsyncIterator[Stack]:
    """A gateway with a published profile and dataset, and no other part."""
    async with stage.running(stage.prepared_home(short_dir, template)) as running:
        await stage.publish(running)
        yield running
