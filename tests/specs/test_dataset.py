"""Datasets: exact task versions, each name once."""

from typing import Any

from specs.dataset import Dataset, TaskEntry
from tests.specs.contracts import DIGEST, lets, refused


def entry(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "digest": DIGEST, "size": 1} | values


def dataset(*names: str) -> dict[str, Any]:
    return {"name": "a/d", "version": "v1", "tasks": [entry(name) for name in names]}


def test_a_task_name_appears_once() -> None:
    assert len(Dataset.model_validate(dataset("a/x", "a/y")).tasks) == 2
    assert "twice" in refused(Dataset, dataset("a/x", "a/y", "a/x"))


def test_a_dataset_has_tasks_and_a_task_has_bytes() -> None:
    assert not lets(Dataset, "tasks", [])
    assert lets(TaskEntry, "size", 1) and not lets(TaskEntry, "size", 0)
