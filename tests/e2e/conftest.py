"""A stack of its own for each module of end-to-end tests, ended and checked afterwards."""

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import Stack, write_tasks


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A running stack with `tiny` and the dataset `e2e/parity@v1`."""
    assert importlib.util.find_spec("torch"), "end-to-end tests need the extra 'local'"
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        made = Stack(Path(name))
        write_tasks(made.root / "tasks", 3)
        up = made.run("up")
        assert up.code == 0, up.err
        pulled = made.run("model", "pull", "tiny")
        assert pulled.code == 0, pulled.err
        published = made.run(
            "dataset", "publish", str(made.root / "tasks"), "--as", "e2e/parity@v1"
        )
        assert published.code == 0, published.err
        yield made
        down = made.run("down")
        assert down.code == 0, down.err
        assert not made.processes()
