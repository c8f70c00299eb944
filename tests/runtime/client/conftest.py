"""A home with a migrated database."""

from pathlib import Path

import pytest

from runtime.home import Home
from tests.runtime.gateway import stage


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stage.migrated(tmp_path_factory.mktemp("template"))


@pytest.fixture
def home(short_dir: Path, template: Path) -> Home:
    return stage.prepared_home(short_dir, template)
