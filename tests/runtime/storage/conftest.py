"""A migrated database per test."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime.storage import schema
from runtime.storage.database import SqliteDatabase


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "template.db"
    schema.upgrade(path)
    return path


@pytest.fixture
async def database(template: Path, tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    path = tmp_path / "practicum.db"
    shutil.copy(template, path)
    opened = SqliteDatabase(path)
    yield opened
    await opened.close()
