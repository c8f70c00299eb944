"""The official client over stdio against a real stack: start, tail from a cursor, read."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.e2e.support import Stack, profile, write_tasks

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.timeout(600),
]

ROOT = Path(__file__).parents[2]
PLAN = {"trials_per_task": 2, "limits": {"max_calls": 2}}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with three small tasks; the tiny model comes from its own cache folder."""
    made = Stack(Path(os.path.realpath(tmp_path_factory.mktemp("s"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRACTICUM_MODELS", str(made.root / "models"))
        write_tasks(made.root / "tasks", 3)
        assert made.run("up", timeout=150).code == 0
        assert made.run("model", "pull", "tiny").code == 0
        yield made
        assert made.run("down").code == 0
        assert made.processes() == []


@asynccontextmanager
async def server(stack: Stack) -> AsyncGenerator[Client]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "tools", "mcp", "--home", str(stack.home)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=stack.root,
    )
    async with Client(stdio_client(parameters)) as client:
        yield client


async def ask(client: Client, tool: str, **values: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, values)
    assert not result.is_error, result.structured_content
    return result.structured_content or {}


async def test_an_agent_publishes_starts_tails_and_reads(stack: Stack) -> None:
    stack.write("actor.json", profile())
    told: list[str | None] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with server(stack) as client:
        await ask(client, "dataset_publish", folder="tasks", publish_as="e2e/agent@v1")
        inputs: dict[str, Any] = {"dataset": "e2e/agent@v1", "actor": "@actor.json", "plan": PLAN}
        dry = await ask(client, "run_start", **inputs, dry_run=True)
        assert (dry["run"], dry["admission"]["planned_slots"]) == (None, 6)
        started = await ask(client, "run_start", **inputs, idempotency_key="once")
        again = await ask(client, "run_start", **inputs, idempotency_key="once")
        assert (again["run"], again["created"]) == (started["run"], False)
        run = started["run"]
        waited = await client.call_tool(
            "run_wait", {"run": run, "timeout": "5m"}, progress_callback=listen
        )
        assert (waited.structured_content or {})["state"] == "completed"
        await check_tail(client, run)
        await check_records(client, run)
    assert any("trial.settled" in (message or "") for message in told)


async def check_tail(client: Client, run: str) -> None:
    """Pages from a cursor give every event once, in order, without a gap."""
    seen: list[int] = []
    after, terminal = 0, False
    while not terminal:
        page = await ask(client, "run_events", run=run, after=after, limit=7)
        seen += [event["seq"] for event in page["events"]]
        after, terminal = page["next"], page["terminal"]
    assert seen == list(range(1, len(seen) + 1))
    assert (await ask(client, "run_events", run=run, after=seen[-2]))["events"][0]["seq"] == seen[
        -1
    ]


async def check_records(client: Client, run: str) -> None:
    """Result → trial → interaction → group by tools alone."""
    result = await ask(client, "run_result", run=run)
    assert (result["trials_settled"], result["trials_scored"]) == (6, 6)
    trials = (await ask(client, "run_trials", run=run))["items"]
    groups = (await ask(client, "run_groups", run=run))["items"]
    assert {trial["group"] for trial in trials} == {group["id"] for group in groups}
    calls = await ask(client, "run_interactions", run=run, trial=trials[0]["id"], tokens=True)
    first, second = calls["items"]
    head = first["tokens"]["prompt"] + first["tokens"]["output"]
    assert second["tokens"]["prompt"][: len(head)] == head
    assert (first["span"], second["span"]) == ("root", "exact")
    assert len(first["tokens"]["logprobs"]) == len(first["tokens"]["output"])
    verdict = await ask(client, "run_verify", run=run)
    assert verdict["ok"]
    compared = await ask(client, "run_compare", baseline=run, candidate=run)
    assert compared["difference"]["estimate"] == 0


def argument(stack: Stack, name: str, value: object) -> object:
    """A value as the command line takes it."""
    return value if isinstance(value, str) else stack.write(f"{name}.json", value)


BAD: list[tuple[dict[str, Any], str, str | None]] = [
    ({"dataset": "No Such Name"}, "invalid_reference", "/dataset"),
    ({"plan": {"trials_per_task": 1, "zeal": 2}}, "invalid_document", "/zeal"),
    ({"actor": {"name": "acme/x"}}, "invalid_document", None),
]


@pytest.mark.parametrize(("changes", "code", "pointer"), BAD)
async def test_the_command_line_and_an_agent_get_the_same_refusal(
    stack: Stack, changes: dict[str, Any], code: str, pointer: str | None
) -> None:
    values: dict[str, Any] = {"dataset": "e2e/agent@v1", "actor": profile(), "plan": PLAN}
    values |= changes
    async with server(stack) as client:
        result = await client.call_tool("run_start", values)
    over_mcp: dict[str, Any] = result.structured_content or {}
    words = [f"--{name}={argument(stack, name, value)}" for name, value in values.items()]
    done = stack.run("run", "start", *words, "--json")
    over_cli = json.loads(done.err.splitlines()[-1])
    assert result.is_error
    assert done.code == 2
    assert over_cli["code"] == over_mcp["code"] == code
    assert over_cli["detail"] == over_mcp["detail"]
    assert over_cli["next"] == over_mcp["next"]
    if pointer is not None:
        assert over_mcp["object"]["pointer"] == pointer


async def test_what_is_not_there_is_not_found_over_both(stack: Stack) -> None:
    async with server(stack) as client:
        result = await client.call_tool("dataset_show", {"dataset": "no/such@v1"})
    done = stack.run("dataset", "show", "no/such@v1", "--json")
    assert result.is_error
    assert done.code == 3
    assert json.loads(done.err)["code"] == (result.structured_content or {})["code"] == "not_found"
