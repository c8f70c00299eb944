"""Every tool refuses what it cannot take, by the official client: missing, unknown and wrong-typed
arguments are results that say so, name the field and the next step, and nothing is begun.

Tools and fields come from the list that a client sees, so a new tool is held to this as it is.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult, Tool

from mcp_server.server import build_server
from runtime.home import Home
from specs.errors import ErrorCode, Problem

pytestmark = pytest.mark.anyio
WRONG: list[Any] = [[{"zeal": []}]]
"""No field of any tool takes this."""
PLAUSIBLE: dict[str, Any] = {
    "string": "x",
    "object": {},
    "array": ["x"],
    "integer": 1,
    "number": 1,
    "boolean": True,
}


@pytest.fixture
def home(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    return Home.at(short_dir / "home")


@pytest.fixture
async def client(home: Home) -> AsyncIterator[Client]:
    async with Client(build_server(home)) as made:
        yield made
    assert not home.root.exists(), "a refused call has begun something"


def plausible(tool: Tool) -> dict[str, Any]:
    """A value of the right type for every field that a tool must be given."""
    values: dict[str, Any] = {}
    for name in tool.input_schema.get("required", ()):
        field = tool.input_schema["properties"][name]
        kinds: Any = field.get("type", "object")
        kind = str(kinds if isinstance(kinds, str) else kinds[-1])
        values[name] = field["enum"][0] if "enum" in field else PLAUSIBLE[kind]
    return values


def refusal(result: CallToolResult, called: str) -> Problem:
    """The problem of a result, complete."""
    assert result.is_error, called
    found = Problem.model_validate(result.structured_content)
    assert found.detail and found.next, called
    assert found.object is not None, called
    text = result.content[0]
    assert text.type == "text" and str(found.code) in text.text, called
    return found


async def refused(client: Client, tool: Tool, values: dict[str, Any], field: str) -> None:
    """The call is refused for this field."""
    called = f"{tool.name} {values}"
    found = refusal(await client.call_tool(tool.name, values), called)
    assert found.code is ErrorCode.INVALID_DOCUMENT, called
    pointer = found.object.pointer if found.object else None
    assert pointer is not None and pointer.split("/")[1] == field, (called, pointer)


async def test_a_missing_argument_is_named(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        values = plausible(tool)
        for name in values:
            rest = {key: value for key, value in values.items() if key != name}
            await refused(client, tool, rest, name)


async def test_an_argument_that_no_tool_has_is_named(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        await refused(client, tool, {**plausible(tool), "zeal": 1}, "zeal")


async def test_an_argument_of_another_type_is_named(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        for name in tool.input_schema["properties"]:
            await refused(client, tool, {**plausible(tool), name: WRONG}, name)
