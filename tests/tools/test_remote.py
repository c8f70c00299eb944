"""Operations over a forwarded port with a grant: as from inside a sandbox."""

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from runtime.execution.sandbox.forward import Forwarder
from runtime.execution.sandbox.options import Forward
from runtime.home import Home
from specs.base import Contract
from specs.errors import ErrorCode, PracticumError
from tests.runtime.gateway import stage
from tests.runtime.gateway.test_grants import ACCESS, begun
from tools import registry
from tools.context import Context

pytestmark = pytest.mark.anyio

ROWS = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


@dataclass
class Inside:
    """What a command inside a sandbox sees: a port, a token, and a folder without a home."""

    context: Context
    run: str

    async def ask(self, noun: str, verb: str, **values: object) -> Contract:
        chosen = registry.find(noun, verb)
        result = await registry.call(chosen, self.context, values)
        assert isinstance(result, Contract)
        assert chosen.text(result)
        return result

    async def problem(self, noun: str, verb: str, **values: object) -> ErrorCode:
        with pytest.raises(PracticumError) as caught:
            await self.ask(noun, verb, **values)
        return caught.value.problem.code


@pytest.fixture
async def inside(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inside]:
    home = stage.prepared_home(short_dir, stage.migrated(short_dir))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with stage.running(home) as stack, begun(stack, {**ACCESS, "max_slots": 9}) as episode:
        target = f"unix:{home.gateway_socket}"
        forwarder = Forwarder(listener, Forward(port=port, target=target))
        monkeypatch.setenv("PRACTICUM_GATEWAY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("PRACTICUM_TOKEN", episode.token.token)
        try:
            yield Inside(Context(Home.at(short_dir / "nowhere")), episode.run)
        finally:
            await anyio.wait_all_tasks_blocked()  # connections of the last operation are closed
            await forwarder.close()


async def test_operations_reach_a_gateway_elsewhere_and_need_no_home(
    inside: Inside, tmp_path: Path
) -> None:
    listed = await inside.ask("run", "list")
    assert inside.run in listed.model_dump_json()
    plan = {"trials_per_task": 1}
    start = {"dataset": stage.DATASET, "actor": stage.profile(), "plan": plan}
    dry = await inside.ask("run", "start", **start, dry_run=True)
    started = await inside.ask("run", "start", **start)
    assert json.loads(dry.model_dump_json())["run"] is None
    run = json.loads(started.model_dump_json())["run"]
    shown = await inside.ask("run", "show", run=run)
    assert inside.run in shown.model_dump_json(), "its starter is told"
    assert await inside.problem("run", "start", **{**start, "plan": {"trials_per_task": 3}}) == (
        ErrorCode.GRANT_LIMIT
    )
    (tmp_path / "rows.jsonl").write_text(ROWS * 3)
    supervised = {
        "actor": stage.profile(),
        "plan": {"source": {"file": str(tmp_path / "rows.jsonl")}, "batch_size": 2},
    }
    trained = json.loads((await inside.ask("train", "start", **supervised)).model_dump_json())
    assert trained["admission"]["plan"]["source"]["rows"] == 3
    assert not inside.context.home.root.exists()


async def test_what_belongs_to_the_stack_of_a_machine_says_so(inside: Inside) -> None:
    for noun, verb, values in (
        ("stack", "up", {}),
        ("stack", "status", {}),
        ("stack", "down", {}),
        ("model", "pull", {"name": "tiny"}),
        ("run", "verify", {"run": inside.run}),
    ):
        assert await inside.problem(noun, verb, **values) == ErrorCode.NOT_LOCAL, verb
    assert not inside.context.home.root.exists()


async def test_a_gateway_that_is_not_there_is_named(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRACTICUM_GATEWAY", "unix:/nowhere/gateway.sock")
    monkeypatch.setattr("tools.context.PATIENCE_SEC", 0.0)
    assert await inside.problem("run", "list") == ErrorCode.STACK_UNAVAILABLE
