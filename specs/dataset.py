"""Datasets: an ordered list of exact task versions; immutable once published."""

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from specs.base import Contract
from specs.ids import Digest, Name, Version

SCHEMA = "practicum.dataset/v1"


class TaskEntry(Contract):
    """One exact task version: its name, the digest of its package, and what splits use."""

    name: Name
    digest: Digest
    """Digest of the packed task directory (see `specs.package`)."""
    size: int = Field(ge=1)
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The task's `[metadata]`; `capability`, `severity` and `family` are reserved keys."""


class Dataset(Contract):
    """`practicum.dataset/v1`."""

    schema_: Literal["practicum.dataset/v1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    version: Version
    tasks: tuple[TaskEntry, ...] = Field(min_length=1, max_length=100_000)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [task.name for task in self.tasks]
        if len(set(names)) != len(names):
            raise ValueError("a task name appears twice")
        return self
