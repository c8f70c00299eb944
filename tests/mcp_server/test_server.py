"""The MCP server by the official client, in memory: lists, schemas, bounds, errors. No stack."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.calls import run_tool
from mcp_server.results import MAX_CONTENT_CHARS, failure, fits, smaller, success
from mcp_server.schemas import listed_input
from mcp_server.server import build_server
from runtime.home import Home
from specs.base import Contract
from specs.errors import ErrorCode, Problem
from tools import registry
from tools.context import Context
from tools.fields import Input
from tools.index import SUMMARIES
from tools.registry import READ, Operation

pytestmark = pytest.mark.anyio

TERMINAL_ONLY = {
    *("agent_run", "stack_up", "stack_down", "schema_export"),
    *("plugin_hook", "plugin_install", "plugin_path"),
}


@pytest.fixture
def home(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    return Home.at(short_dir / "home")


def problem(result: CallToolResult) -> Problem:
    assert result.is_error
    return Problem.model_validate(result.structured_content)


async def test_every_operation_for_agents_is_a_tool(home: Home) -> None:
    async with Client(build_server(home)) as client:
        listed = (await client.list_tools()).tools
    names = {f"{noun}_{verb}".replace("-", "_") for noun, verb in SUMMARIES} - TERMINAL_ONLY
    assert {tool.name for tool in listed} == names
    for tool in listed:
        assert tool.description
        assert len(tool.description) < 2048
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is not None
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema or {})
        assert tool.input_schema["additionalProperties"] is False
        assert (tool.output_schema or {})["type"] == "object"


async def test_annotations_tell_readers_from_changers(home: Home) -> None:
    async with Client(build_server(home)) as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    reading = {name for name, hints in tools.items() if hints and hints.read_only_hint}
    ending = {name for name, hints in tools.items() if hints and hints.destructive_hint}
    assert {"run_show", "run_events", "run_lineage", "checkpoint_list", "session_show"} <= reading
    assert {"episode_show", "episode_verify"} <= reading
    assert ending == {"run_cancel", "update_resolve", "checkpoint_delete", "session_close"}
    assert not reading & {
        "run_start",
        "train_start",
        "run_compare",
        "dataset_publish",
        "model_pull",
    }


BAD: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("run_start", {"dataset": "Bad Name"}, "invalid_reference", "/dataset"),
    ("run_start", {"plan": {"trials_per_task": 1, "zeal": 2}}, "invalid_document", "/zeal"),
    ("train_start", {}, "invalid_document", "/kind"),
    ("run_start", {"actor": {"schema": "x"}}, "invalid_document", "/schema"),
    ("run_start", {"zeal": 1}, "invalid_document", "/zeal"),
    ("profile_validate", {"profile": "@absent.json"}, "invalid_reference", None),
    ("episode_show", {"episode": "absent.json"}, "invalid_reference", None),
    ("episode_show", {"episode": {"name": "acme/specialist"}}, "invalid_document", "/held_out"),
    ("episode_verify", {"episode": "absent.json", "work": ["trl_1"]}, "invalid_reference", None),
    ("episode_verify", {"episode": {}, "work": []}, "invalid_document", "/work"),
    (
        "episode_verify",
        {"episode": {}, "work": ["x"], "rewards": 1},
        "invalid_document",
        "/rewards",
    ),
]
ALONE = {"profile_validate", "episode_show", "episode_verify"}
"""Tools of these cases that take what stands there and no run's documents beside it."""


@pytest.mark.parametrize(("name", "changes", "code", "pointer"), BAD)
async def test_bad_input_is_a_problem_that_names_the_field_and_the_next_step(
    home: Home, name: str, changes: dict[str, Any], code: str, pointer: str | None
) -> None:
    values = {"dataset": "a/b@v1", "actor": "a/b@v1", "plan": {"trials_per_task": 1}}
    arguments = changes if name in ALONE else {**values, **changes}
    async with Client(build_server(home)) as client:
        found = problem(await client.call_tool(name, arguments))
    assert found.code == code
    assert found.next
    assert (found.object.pointer if found.object else None) == pointer


async def test_an_unknown_tool_and_a_missing_stack_are_problems(home: Home) -> None:
    async with Client(build_server(home)) as client:
        unknown = problem(await client.call_tool("run_away", {}))
        missing = problem(await client.call_tool("run_list", {}))
    assert (unknown.code, missing.code) == (ErrorCode.NOT_FOUND, ErrorCode.STACK_UNAVAILABLE)
    assert "run_list" in (unknown.next or "")
    assert "practicum up" in (missing.next or "")


async def test_terminal_only_fields_are_not_offered() -> None:
    offered = listed_input(registry.find("run", "events").input)["properties"]
    assert {"run", "after", "limit", "wait"} == set(offered)
    assert "rewards" not in listed_input(registry.find("episode", "verify").input)["properties"]


class Paged(Input):
    limit: int = Field(default=512, ge=1, description="How many")


class Page(Contract):
    items: list[str]


def operation_of(size: int, calls: list[int]) -> Operation:
    """An operation whose page holds `limit` texts of `size` characters."""

    async def handler(_: Context, request: Paged) -> Page:
        calls.append(request.limit)
        return Page(items=["x" * size] * request.limit)

    return Operation("page", "read", "Read", "Read", Paged, Page, READ, handler, lambda _: "page")


@pytest.mark.parametrize(
    "given", [{}, {"limit": 512}, {"limit": "512"}], ids=["left out", "a number", "a text"]
)
async def test_a_page_that_is_too_large_is_read_again_with_half_the_limit(
    home: Home, given: dict[str, Any]
) -> None:
    calls: list[int] = []
    result = await run_tool(operation_of(400, calls), Context(home), given)
    assert not result.is_error
    assert calls == [512, 256, 128, 64, 32]
    assert len(Page.model_validate(result.structured_content).items) == 32


async def test_a_result_that_cannot_be_cut_is_a_problem(home: Home) -> None:
    result = await run_tool(operation_of(MAX_CONTENT_CHARS, []), Context(home), {})
    found = problem(result)
    assert found.code is ErrorCode.BODY_TOO_LARGE
    assert "practicum page read" in (found.next or "")


async def test_a_defect_is_a_result_and_does_not_end_the_session(home: Home) -> None:
    async def handler(_: Context, __: Paged) -> Page:
        raise RuntimeError("out of luck")

    broken = Operation("page", "read", "Read", "Read", Paged, Page, READ, handler, lambda _: "")
    found = problem(await run_tool(broken, Context(home), {}))
    assert (found.code, found.detail) == (ErrorCode.INTERNAL, "RuntimeError: out of luck")


async def test_results_have_text_and_structure() -> None:
    chosen = operation_of(1, [])
    page = Page(items=["a"])
    assert fits(page)
    shown = success(chosen, page)
    assert shown.structured_content == {"items": ["a"]}
    assert smaller(chosen, {"limit": 1}) is None
    assert smaller(chosen, {"limit": "1"}) is None
    refused = failure(Problem(title="t", status=404, detail="d", code=ErrorCode.NOT_FOUND))
    assert refused.is_error
