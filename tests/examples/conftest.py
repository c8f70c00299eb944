"""The committed examples, as Harbor and as the contracts read them."""

from pathlib import Path

import pytest
from harbor.models.task.task import Task

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def examples() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def practice() -> list[Task]:
    return load("shell-practice")


@pytest.fixture(scope="session")
def held_out() -> list[Task]:
    return load("shell-held-out")


def load(dataset: str) -> list[Task]:
    """Every task of a dataset in its published order."""
    return [Task(folder) for folder in sorted((EXAMPLES / dataset).iterdir())]
