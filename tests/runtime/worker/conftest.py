"""One running stack for all tests of the worker; a test that kills a part starts it again."""

import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from runtime.home import Home
from tests.runtime.execution.bench import Bench
from tests.runtime.worker.stack import Operator, Stack, operator


@pytest.fixture(scope="session")
def stack() -> Generator[Stack]:
    root = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    home = Home.at(root / "h")
    home.create()
    stack = Stack(home)
    try:
        stack.start("gateway", "compute", "proxy", "worker")
        stack.ready("gateway", "proxy")
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(root)


@pytest.fixture
async def op(stack: Stack) -> AsyncGenerator[Operator]:
    """The operator of the running stack."""
    async with operator(stack) as running:
        yield running


@pytest.fixture
def tasks(tmp_path: Path) -> Bench:
    """Writes task folders."""
    return Bench(tmp_path, tmp_path / "unused")
