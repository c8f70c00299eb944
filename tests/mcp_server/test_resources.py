"""Resources, prompts and completions by the official client, on a real gateway."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference, TextContent, TextResourceContents

from mcp_server.prompts import RECIPES
from mcp_server.resources import VIEWS
from mcp_server.results import MAX_CONTENT_CHARS
from mcp_server.server import INSTRUCTIONS, build_server
from runtime.home import Home
from specs.export import DOCUMENTS
from tests.runtime.gateway import constructing, stage
from tests.runtime.gateway.stage import DATASET, Stack
from tools.index import NOUNS
from tools.registry import find, operations

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stage.migrated(tmp_path_factory.mktemp("template"))


@pytest.fixture
async def stack(short_dir: Path, template: Path) -> AsyncIterator[Stack]:
    async with stage.running(stage.prepared_home(short_dir, template)) as running:
        await stage.publish(running)
        yield running


@pytest.fixture
def home(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    return Home.at(short_dir / "home")


async def read(client: Client, address: str) -> Any:
    (content,) = (await client.read_resource(f"practicum://{address}")).contents
    assert isinstance(content, TextResourceContents)
    assert content.uri == f"practicum://{address}"
    assert len(content.text) <= MAX_CONTENT_CHARS
    return json.loads(content.text)


async def test_a_record_is_read_by_its_address(stack: Stack) -> None:
    run = await stage.start(stack)
    async with Client(build_server(stack.home)) as client:
        assert (await read(client, "runs"))["items"][0]["id"] == run
        assert (await read(client, f"runs/{run}"))["state"] == "queued"
        assert (await read(client, f"runs/{run}/result"))["run"] == run
        first = await read(client, f"runs/{run}/events")
        assert first["events"][0]["seq"] == 1
        assert (await read(client, f"runs/{run}/events?after={first['next']}"))["events"] == []
        assert (await read(client, f"runs/{run}/events?limit=1"))["next"] == 1
        assert (await read(client, f"datasets/{DATASET}"))["reference"] == DATASET
        assert (await read(client, "datasets"))["items"][0]["reference"] == DATASET
        assert (await read(client, "profiles"))["items"] == []
        assert (await read(client, "checkpoints"))["items"] == []
        made = await constructing.created(stack)
        assert (await read(client, "constructions"))["items"][0]["id"] == made.id
        assert (await read(client, f"constructions/{made.id}"))["state"] == "draft"
        journal = {"journal": "work"}
        assert not (await client.call_tool("journal_new", journal)).is_error
        assert not (await client.call_tool("journal_append", {**journal, "text": "seen"})).is_error
        assert (await read(client, "journals/work"))["items"][0]["text"] == "seen"


ABSENT = ["runs/run_0", "datasets/no/such@v1", "checkpoints/none", "schemas/none", "elsewhere"]


@pytest.mark.parametrize("address", ABSENT)
async def test_what_is_not_there_is_a_protocol_error_with_the_problem(
    stack: Stack, address: str
) -> None:
    async with Client(build_server(stack.home)) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(f"practicum://{address}")
    assert caught.value.code == -32602
    assert caught.value.data["code"] in ("not_found", "invalid_reference")
    assert caught.value.data["next"]


async def test_every_schema_is_read_in_full(home: Home) -> None:
    async with Client(build_server(home)) as client:
        names = await read(client, "schemas")
        assert names["documents"] == list(DOCUMENTS)
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert set(names["tools"]) == tools
        for name in sorted(tools):
            whole = await read(client, f"schemas/{name}")
            assert {"tool", "description", "input", "output"} == set(whole)
        plan = await read(client, "schemas/plan")
        assert "trials_per_task" in json.dumps(plan)
        assert "follow" not in (await read(client, "schemas/run_events"))["input"]["properties"]


async def test_the_listed_addresses_are_those_that_are_read(home: Home) -> None:
    async with Client(build_server(home)) as client:
        fixed = (await client.list_resources()).resources
        open_ended = (await client.list_resource_templates()).resource_templates
    addresses = [one.uri for one in fixed] + [one.uri_template for one in open_ended]
    schemas = ["practicum://schemas", "practicum://schemas/{name}"]
    assert sorted(addresses) == sorted([*(view.address for view in VIEWS), *schemas])
    for view in VIEWS:
        chosen = find(view.noun, view.verb)
        assert chosen.traits.read_only
        named = set(re.findall(r"[a-z]+(?=[,}])", view.address))
        assert named <= set(chosen.input.model_fields)


async def test_a_prompt_holds_what_was_given_and_names_tools_that_exist(home: Home) -> None:
    tools = {one.name for one in operations() if one.traits.agent}
    nouns = "|".join(noun.replace("-", "_") for noun in NOUNS)
    async with Client(build_server(home)) as client:
        listed = {one.name: one for one in (await client.list_prompts()).prompts}
        assert list(listed) == [recipe.name for recipe in RECIPES]
        for recipe in RECIPES:
            given = {name.removesuffix("?"): f"<<{name}>>" for name in recipe.arguments}
            (message,) = (await client.get_prompt(recipe.name, given)).messages
            assert isinstance(message.content, TextContent)
            text = message.content.text
            assert all(value in text for value in given.values())
            named = set(re.findall(rf"\b(?:stack|{nouns})_[a-z_]+\b", recipe.text))
            assert named
            assert named <= tools, recipe.name
        assert "(not said)" in str(await client.get_prompt("specialise", {"request": "x"}))
        for name, given in (("specialise", {"model": "m"}), ("no_such", {})):
            with pytest.raises(MCPError) as caught:
                await client.get_prompt(name, given)
            assert caught.value.code == -32602


async def values(client: Client, ref: Any, name: str, written: str) -> list[str]:
    found = await client.complete(ref, {"name": name, "value": written})
    return found.completion.values


async def test_arguments_are_completed_from_what_there_is(stack: Stack) -> None:
    first, second = await stage.start(stack), await stage.start(stack)
    prompt = PromptReference(name="read_result")
    template = ResourceTemplateReference(uri="practicum://datasets/{+dataset}")
    async with Client(build_server(stack.home)) as client:
        assert await values(client, prompt, "run", "run_") == [second, first]
        assert await values(client, prompt, "run", first[:20]) in ([first], [second, first])
        assert await values(client, template, "dataset", DATASET[:2]) == [DATASET]
        assert await values(client, template, "dataset", "zzz") == []
        assert await values(client, prompt, "model", "ti") == ["tiny"]
        assert "run_start" in await values(client, template, "name", "run_")
        assert await values(client, prompt, "unheard_of", "") == []


async def test_a_completion_starts_no_stack_and_has_nothing_to_say_without_one(home: Home) -> None:
    async with Client(build_server(home)) as client:
        assert await values(client, PromptReference(name="read_result"), "run", "") == []
    assert not home.root.exists()


def test_the_instructions_fit_what_clients_show_and_name_tools_that_exist() -> None:
    tools = {one.name for one in operations() if one.traits.agent}
    assert len(INSTRUCTIONS.encode()) <= 2048
    named = set(re.findall(r"\b(?:run|train|model_spec|journal)_[a-z]+\b", INSTRUCTIONS))
    assert named <= tools
