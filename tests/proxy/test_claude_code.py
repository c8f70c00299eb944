"""The real Claude Code against the proxy: what it does with what it is sent.

It needs the pinned program in the tool folder (`practicum agent install`), else it is skipped.
"""

import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream

from runtime.native import engines
from specs import evidence
from specs.claude_code import PINNED_VERSION
from specs.errors import ErrorCode, Internal, Unavailable
from specs.interaction import CallState, Interaction
from tests.proxy.test_history import call
from tests.proxy.world import Dice, World, world

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

ARGUMENTS = ("--tools", "Bash", "--system-prompt", "You work in a shell.", "--strict-mcp-config")


@dataclass(frozen=True)
class Ended:
    """A run of the program."""

    code: int
    events: list[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        return self.events[-1]


@pytest.fixture
def program() -> Path:
    found = engines.find(PINNED_VERSION)
    if found is None:
        pytest.skip("run `practicum agent install` first")
    return found.program


@asynccontextmanager
async def forwarded(socket: str) -> AsyncGenerator[int]:
    """A port of this machine that leads to a Unix socket."""

    async def pipe(source: ByteStream, target: ByteStream) -> None:
        try:
            async for data in source:
                await target.send(data)
            await target.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            await target.aclose()

    async def handle(client: SocketStream) -> None:
        async with (
            client,
            await anyio.connect_unix(socket) as inner,
            anyio.create_task_group() as both,
        ):
            both.start_soon(pipe, client, inner)
            await pipe(inner, client)
            both.cancel_scope.cancel()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, handle)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def claude(stack: World, program: Path, token: str, prompt: str, *arguments: str) -> Ended:
    """Run the program headless in a folder of its own."""
    work = stack.folder / "work"
    work.mkdir(exist_ok=True)
    async with forwarded(stack.socket) as port:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(stack.folder),
            "CLAUDE_CONFIG_DIR": str(stack.folder / "config"),
            "CLAUDE_CODE_TMPDIR": str(stack.folder),
            "LANG": "C.UTF-8",
            "IS_SANDBOX": "1",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            "ANTHROPIC_AUTH_TOKEN": token,
            "ANTHROPIC_MODEL": "tiny",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        output = ("-p", "--verbose", "--output-format", "stream-json")
        command = [program, *output, "--dangerously-skip-permissions", *ARGUMENTS, *arguments]
        done = await anyio.run_process(
            [str(part) for part in [*command, prompt]],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    lines = done.stdout.splitlines()
    return Ended(done.returncode, [json.loads(line) for line in lines])


def chained(calls: list[Interaction]) -> bool:
    """Whether each answered call extends the one before it."""
    answered = [one for one in calls if one.state is not CallState.LOST]
    return all(one.exact for one in answered[1:])


async def test_it_works_through_a_streamed_call_a_broken_stream_and_a_stop(
    short_dir: Path, program: Path
) -> None:
    """Invariants 2 and 3: a full backend is asked again, and after a cut it asks once more,
    whole; nothing sampled is silent."""
    compute = Dice([f"I look.\n{call('echo hi > a; cat a')}", "Half of an answer", "It is hi."])
    compute.context = 200_000

    async def breaks(number: int) -> None:
        if len(compute.prompts) == 2 and number == 2:
            raise Internal("a defect in the middle of an answer")

    compute.before = breaks
    compute.failures = [Unavailable("full", code=ErrorCode.OVERLOADED)]
    async with world(short_dir, compute=compute) as stack:
        claims = stack.gateway.claims()
        ended = await claude(stack, program, stack.gateway.token(claims), "What is in a?")
        calls = stack.interactions(claims["trial"])
        assert len(evidence.refusals(stack.segment(claims["trial"]))) == 1
    assert (ended.code, ended.result["is_error"]) == (0, False)
    assert ended.result["result"] == "It is hi."
    assert [one.state for one in calls] == [
        CallState.ANSWERED,
        CallState.LOST,
        CallState.ANSWERED,
    ]
    assert chained(calls)
    assert [one.intent.session != "" for one in calls] == [True] * 3
    said = [event["message"] for event in ended.events if event["type"] == "assistant"]
    assert [block["type"] for message in said for block in message["content"]] == [
        "text",
        "tool_use",
        "text",
    ]


async def test_a_call_that_could_not_be_read_is_asked_for_again(
    short_dir: Path, program: Path
) -> None:
    compute = Dice(["<tool_call>{broken</tool_call>", "Better without."])
    compute.context = 200_000
    async with world(short_dir, compute=compute) as stack:
        claims = stack.gateway.claims()
        ended = await claude(stack, program, stack.gateway.token(claims), "Go.")
        calls = stack.interactions(claims["trial"])
    assert ended.code == 0 and ended.result["result"] == "Better without."
    assert len(calls) == 2 and chained(calls)


async def test_a_credential_that_is_refused_ends_it_at_once(short_dir: Path, program: Path) -> None:
    async with world(short_dir) as stack:
        ended = await claude(stack, program, "not-a-token", "Go.")
        assert not stack.compute.prompts
    assert ended.code == 1 and ended.result["is_error"]
    assert not [one for one in ended.events if one.get("subtype") == "api_retry"]
