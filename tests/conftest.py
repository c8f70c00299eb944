"""Shared fixtures: asyncio for anyio tests, and a short folder for sockets.

Property tests have no deadline, since machines are shared. In CI (`CI` is set) they draw the
same examples each time, so that a red build is about the change; elsewhere they explore.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile(
    "practicum", deadline=None, derandomize="CI" in os.environ, print_blob=True
)
settings.load_profile("practicum")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder whose path is short enough for Unix sockets."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        yield Path(name)
