"""A gateway with compute beside it, for the tests that need both."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.gateway import stage
from tests.runtime.learning.live import Live, live


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stage.migrated(tmp_path_factory.mktemp("template"))


@pytest.fixture
async def running(short_dir: Path, template: Path, tmp_path: Path) -> AsyncIterator[Live]:
    async with live(stage.prepared_home(short_dir, template), tmp_path / "compute") as made:
        yield made
