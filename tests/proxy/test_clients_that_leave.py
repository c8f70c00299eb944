"""Clients that go away, come back, or come twice (invariant 2)."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from runtime.learning.packing import acted_upon
from specs import evidence
from specs.eligibility import Unfit, unfit
from specs.interaction import CallState, Delivery
from tests.proxy.world import Dice, Harness, World, echo, until, user, world

pytestmark = pytest.mark.anyio


async def _ask_and_leave(stack: World, harness: Harness, *, stream: bool, **headers: str) -> None:
    """Send a request, wait until it is being sampled, and drop the connection."""
    body = json.dumps(
        {"model": "any", "max_tokens": 512, "messages": [user("u")], "stream": stream}
    ).encode()
    before = len(stack.compute.prompts)
    head = ["POST /v1/messages HTTP/1.1", "host: proxy", f"content-length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in {**harness.headers, **headers}.items()]
    async with await anyio.connect_unix(stack.socket) as stream_:
        await stream_.send("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        await until(lambda: len(stack.compute.prompts) > before)


async def _settled(stack: World, trial: str) -> CallState:
    with anyio.fail_after(20):
        while True:
            calls = stack.interactions(trial)
            if calls and calls[0].state is not CallState.LOST:
                return calls[0].state
            await anyio.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stream_again", [False, True])
async def test_an_answer_that_reached_nobody_is_kept_and_given_to_the_retry(
    short_dir: Path, stream: bool, stream_again: bool
) -> None:
    async with world(short_dir, compute=Dice(["first", "second"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.gate = anyio.Event()
        await _ask_and_leave(stack, harness, stream=stream)
        await anyio.sleep(0.1)
        stack.compute.gate.set()
        assert await _settled(stack, claims["trial"]) is CallState.SUPERSEDED
        for _ in range(2):
            again = await harness.post([user("u")], stream=stream_again)
            assert "".join(re.findall(r'"text": ?"(.*?)"', again.text)) == "first"
        assert len(stack.compute.prompts) == 1
        seal = (await stack.seal(claims["trial"])).json()
    assert seal["complete"] and seal["states"]["superseded"] == 1


async def test_a_retry_that_comes_while_sampling_joins_the_same_call(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["one"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.gate = anyio.Event()
        answers: list[dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await harness.say([user("u")]))

        async with anyio.create_task_group() as tasks:
            await _ask_and_leave(stack, harness, stream=False)
            for _ in range(5):
                tasks.start_soon(ask)
            await anyio.sleep(0.1)
            stack.compute.gate.set()
        (call,) = stack.interactions(claims["trial"])
    assert call.state is CallState.ANSWERED
    assert len({answer["id"] for answer in answers}) == 1 and len(answers) == 5


async def test_another_agent_or_session_gets_a_call_of_its_own(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["one", "two", "three"])) as stack:
        harness = stack.harness()
        stack.compute.gate = anyio.Event()
        await _ask_and_leave(stack, harness, stream=False)
        stack.compute.gate.set()
        for name in ("x-claude-code-agent-id", "x-claude-code-session-id"):
            other = await harness.say([user("u")], headers={name: "a1"})
            assert other["content"][0]["text"] != "one"


async def test_asking_again_after_an_answer_arrived_samples_again(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["one", "two"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        assert (await harness.say([user("u")]))["content"][0]["text"] == "one"
        marked = await harness.say([user("u")], headers={"x-stainless-retry-count": "1"})
        assert marked["content"][0]["text"] == "one"
        assert (await harness.say([user("u")]))["content"][0]["text"] == "two"
        assert len(stack.interactions(claims["trial"])) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_last_answer_is_given_again_after_a_restart(short_dir: Path, stream: bool) -> None:
    """Also as events, however often, and for a repetition of what was continued."""
    compute = Dice(["one", "two", "three"])
    async with world(short_dir, compute=compute) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        first = await stack.harness(**claims).say([user("u")])
        await stack.harness(**claims).say([user("u"), echo(first), user("v")])
    async with world(short_dir, gateway=gateway, compute=compute) as stack:
        harness = stack.harness(**claims)
        marked = {"x-stainless-retry-count": "1"}
        assert await _text(harness, [user("u")], stream=stream, headers=marked) == "one"
        last = [user("u"), echo(first), user("v")]
        for headers in ({}, marked):
            assert await _text(harness, last, stream=stream, headers=headers) == "two"
        # it was continued, so it had arrived
        assert await _text(harness, [user("u")], stream=stream) == "three"


async def _text(harness: Harness, messages: list[dict[str, Any]], **fields: Any) -> str:
    """What is said in an answer, whole or in events."""
    with anyio.fail_after(30):
        answer = await harness.post(messages, **fields)
    return "".join(re.findall(r'"text": ?"(.*?)"', answer.text))


async def test_a_client_that_never_reads_does_not_stop_the_others(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["x" * 100])) as stack:
        harness = stack.harness()
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(stack.socket)
        silent.send(b"POST /v1/messages HTTP/1.1\r\nhost: p\r\ncontent-length: 10\r\n\r\n{")
        response: httpx.Response = await harness.post([user("u")])
        silent.close()
    assert response.status_code == 200


async def test_the_record_says_whether_an_answer_was_delivered(short_dir: Path) -> None:
    """Delivered, published and eligible are three facts; what reached nobody is not trained."""
    async with world(short_dir, compute=Dice(["one", "two", "three"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")])
        await harness.post([user("u"), echo(first), user("v")], stream=True)
        stack.compute.gate = anyio.Event()
        await _ask_and_leave(stack, harness, stream=True)
        await anyio.sleep(0.1)
        stack.compute.gate.set()
        await until(lambda: not stack_busy(stack, claims["trial"]))
        seal = (await stack.seal(claims["trial"])).json()
        calls = evidence.interactions(stack.gateway.objects[seal["object"]])
    assert [one.delivery for one in calls] == [
        Delivery.SETTLED, Delivery.SETTLED, Delivery.ABORTED,
    ]  # fmt: skip
    assert [unfit(one, extended=False) for one in calls] == [None, None, Unfit.NOT_DELIVERED]
    assert unfit(calls[2], extended=True) is None
    assert acted_upon(calls) == calls[:2]


async def test_an_answer_that_a_retry_came_for_is_delivered(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["first"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.gate = anyio.Event()
        await _ask_and_leave(stack, harness, stream=False)
        await anyio.sleep(0.1)
        stack.compute.gate.set()
        assert await _settled(stack, claims["trial"]) is CallState.SUPERSEDED
        for _ in range(2):
            await harness.say([user("u")])
        seal = (await stack.seal(claims["trial"])).json()
        (call,) = evidence.interactions(stack.gateway.objects[seal["object"]])
    assert (call.state, call.delivery) == (CallState.SUPERSEDED, Delivery.SETTLED)
    assert acted_upon([call]) == [call]


def stack_busy(stack: World, trial: str) -> bool:
    return any(one.state is CallState.LOST for one in stack.interactions(trial))
