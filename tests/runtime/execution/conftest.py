"""One state folder of sandboxes for the whole session: the base is derived once."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.execution.bench import Bench


@pytest.fixture(scope="session")
def sandbox_state() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="p-sb-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bench(tmp_path: Path, sandbox_state: Path) -> Bench:
    (tmp_path / "trials").mkdir()
    return Bench(tmp_path, sandbox_state)
