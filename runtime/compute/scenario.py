"""The scenario file of a scripted model.

    {"schema": "practicum.scenario/v1",
     "tokenizer": "smollm2-135m-instruct",
     "replies": {"<task name>": ["reply to the first call", "reply to the second", ...]}}

Replies are the exact text of an assistant turn, tool call markup included, without the stop
token. They are played through the real tokenizer of the model that `tokenizer` names.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.base import Contract
from specs.canonical import read

SCHEMA = "practicum.scenario/v1"


class Scenario(Contract):
    """What a scripted model answers, per task and call."""

    schema_: Literal["practicum.scenario/v1"] = Field(alias="schema")
    tokenizer: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    replies: dict[Annotated[str, StringConstraints(min_length=1)], list[str]]


def read_scenario(data: bytes) -> Scenario:
    """Read a scenario strictly; the error names the first bad field."""
    return read(Scenario, data, what="scenario")
