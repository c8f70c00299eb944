"""The list of tools is short enough for a context, and says nothing that is not so."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from mcp import Client
from pydantic import Field

from mcp_server.schemas import SAID_ONCE, listed_input, listed_output, listed_title, offers
from mcp_server.server import INSTRUCTIONS, build_server
from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.home import Home
from specs.base import Contract
from tools.fields import Cli, Cursor, Document, Duration, Input, RunRef
from tools.registry import find, operations

LIST_BUDGET = 12_000
"""Qwen tokens of everything that `tools/list` answers."""
INSTRUCTIONS_CHARS = 2048
"""Clients cut instructions that are longer."""


class Part(Contract):
    name: str


class Taken(Input):
    run: RunRef
    profile: Document
    part: Part
    mode: Annotated[Literal["a", "b"] | None, Field(description="How")] = None
    names: tuple[str, ...] = ()
    every: Duration = 30.0
    quiet: Annotated[bool, Field(description="Say nothing")] = False
    here: Annotated[bool, Cli(agent=False)] = False
    cursor: Cursor = None


class Given(Contract):
    parts: list[Part]
    next: str | None = None


@pytest.mark.anyio
async def test_the_whole_list_costs_a_model_at_most_twelve_thousand_tokens(
    short_dir: Path,
) -> None:
    async with Client(build_server(Home.at(short_dir / "home"))) as client:
        tools = (await client.list_tools()).tools
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    codec = load_codec(carried_tokenizer("Qwen3Tokenizer"))
    costs = {
        tool["name"]: len(codec.encode_text(json.dumps(tool, separators=(",", ":"))))
        for tool in listed
    }
    dearest = sorted(costs.items(), key=lambda item: -item[1])[:8]
    assert sum(costs.values()) <= LIST_BUDGET, dearest


def test_every_field_that_an_agent_may_give_is_listed_and_no_other() -> None:
    for operation in operations():
        full = operation.input.model_json_schema()
        listed = listed_input(operation.input)
        fields = operation.input.model_fields
        offered = {field.alias or name for name, field in fields.items() if offers(field)}
        assert set(listed["properties"]) == offered, operation.name
        assert set(listed.get("required", ())) == set(full.get("required", ())) & offered


def test_words_that_the_list_leaves_out_are_repeated_ones_that_the_instructions_say() -> None:
    said = Counter(
        field.description
        for operation in operations()
        for name, field in operation.input.model_fields.items()
        if operation.traits.agent and field.description == SAID_ONCE.get(field.alias or name)
    )
    assert set(said) == set(SAID_ONCE.values())
    assert min(said.values()) > 1, said
    for name in SAID_ONCE:
        assert f"`{name}`" in INSTRUCTIONS
    assert len(INSTRUCTIONS) < INSTRUCTIONS_CHARS


def test_a_field_keeps_words_of_its_own_under_a_name_that_others_have() -> None:
    chosen = listed_input(find("dataset", "select").input)["properties"]
    assert chosen["limit"]["description"] == "Take the first so many"
    assert "description" not in chosen["dataset"]
    trials = listed_input(find("run", "trials").input)["properties"]
    assert trials["trial"]["description"] == "This trial alone"


def test_a_title_is_left_out_where_every_word_of_it_is_said_anyway() -> None:
    said = ("run", "list", "List runs, newest first, in pages.")
    assert listed_title("List runs, newest first", *said) is None
    assert listed_title("List blocked runs", *said) == "List blocked runs"


def test_an_output_schema_names_every_field_of_a_result() -> None:
    for operation in operations():
        full = operation.output.model_json_schema(mode="serialization")
        assert listed_output(operation.output) == {
            "type": "object",
            "required": list(full["properties"]),
        }


def test_a_listed_field_has_type_choices_words_and_a_default_that_says_something() -> None:
    expected: dict[str, Any] = {
        "run": {"type": "string"},
        "profile": {
            "type": ["object", "string"],
            "description": "The document itself, @file.json, or org/name@version where published",
        },
        "part": {"type": "object"},
        "mode": {"type": "string", "enum": ["a", "b"], "description": "How"},
        "names": {"type": "array", "items": {"type": "string"}},
        "every": {"type": ["number", "string"], "default": 30.0},
        "quiet": {"type": "boolean", "description": "Say nothing"},
        "cursor": {"type": "string"},
    }
    assert listed_input(Taken) == {
        "type": "object",
        "properties": expected,
        "required": ["run", "profile", "part"],
        "additionalProperties": False,
    }
    assert listed_output(Given) == {"type": "object", "required": ["parts", "next"]}
