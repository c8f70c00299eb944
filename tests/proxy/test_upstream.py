"""Models of somebody else: real protocols over loopback HTTP, and evidence that says what it is."""

import json
import logging
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from specs.interaction import CallState
from specs.model import ModelInfo
from specs.upstream import Upstream
from tests.proxy.test_history import BASH, result
from tests.proxy.world import Dice, World, echo, ids_text, user, world

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-key"


class Foreign(Dice):
    """A compute that knows the model as one that an upstream serves."""

    async def model(self, name: str) -> ModelInfo:
        info = await super().model(name)
        return info.model_copy(
            update={"name": "upstream/judge", "backend": "upstream", "trainable": False}
        )


@dataclass
class Service:
    """An upstream that answers what it is told to and remembers what it was asked."""

    replies: list[tuple[int, Any]]
    base_url: str = ""
    asked: list[tuple[str, Mapping[str, str], Any]] = field(
        default_factory=list[tuple[str, Mapping[str, str], Any]]
    )

    async def answer(self, request: Request) -> Response:
        self.asked.append((request.url.path, dict(request.headers), await request.json()))
        status, body = self.replies.pop(0)
        if isinstance(body, bytes):
            return Response(body, status, media_type="application/json")
        return JSONResponse(body, status)


@asynccontextmanager
async def serving(*replies: tuple[int, Any]) -> AsyncGenerator[Service]:
    service = Service(list(replies))
    app = Starlette(routes=[Route("/{path:path}", service.answer, methods=["POST"])])
    web = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(web.serve, [listener])
            while not web.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await anyio.sleep(0.005)
            try:
                yield service
            finally:
                web.should_exit = True


def upstream(service: Service, kind: Any) -> Upstream:
    return Upstream(
        name="judge",
        kind=kind,
        base_url=service.base_url + ("/v1" if kind == "openai" else ""),
        model="judge-1",
        key_env="JUDGE_KEY",
        context_tokens=4096,
    )


def chat(message: dict[str, Any], reason: str = "stop") -> tuple[int, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return 200, {"id": "c", "object": "chat.completion", "choices": [choice]}


def message(*content: dict[str, Any], reason: str = "end_turn") -> tuple[int, Any]:
    return 200, {"type": "message", "content": list(content), "stop_reason": reason}


FIRST: dict[str, tuple[int, Any]] = {
    "openai": chat(
        {
            "content": "Look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "theirs",
                    "type": "function",
                    "function": {"name": "Bash", "arguments": '{"command": "ls"}'},
                }
            ],
        },
        "tool_calls",
    ),
    "anthropic": message(
        {"type": "thinking", "thinking": "hm", "signature": "theirs"},
        {"type": "text", "text": "Look."},
        {"type": "tool_use", "id": "theirs", "name": "Bash", "input": {"command": "ls"}},
        reason="tool_use",
    ),
}
LAST = {
    "openai": chat({"content": "done"}, "length"),
    "anthropic": message({"type": "text", "text": "done"}, reason="max_tokens"),
}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_conversation_with_tools_keeps_text_and_counts_tokens(
    short_dir: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Invariants 1 and 13: tokens only count and say so; the key is nowhere but in the request."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    async with (
        serving(FIRST[kind], LAST[kind]) as service,
        world(short_dir, compute=Foreign(), upstreams=[upstream(service, kind)]) as stack,
    ):
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        ask: dict[str, Any] = {"system": "Judge.", "tools": [BASH], "temperature": 0.5}
        first = await harness.say([user("Go.")], **ask)
        thinking, text, use = first["content"]
        assert (thinking["thinking"], text["text"]) == ("hm", "Look.")
        assert use["id"].startswith("toolu_") and use["input"] == {"command": "ls"}
        turns = [user("Go."), echo(first), {"role": "user", "content": [result(use, "a b")]}]
        last = await harness.say(turns, **ask)
        one, two = stack.interactions(claims["trial"])
        segment = stack.segment(claims["trial"])
    assert last["content"][0]["text"] == "done" and last["stop_reason"] == "max_tokens"
    assert one.answer is not None and one.answer.provenance == "upstream"
    assert one.logprobs is None and two.logprobs is None
    assert ids_text(one.output).startswith("Look.\n<tool_call>") and two.exact
    assert not stack.compute.prompts, "nothing was sampled here"
    path, headers, body = service.asked[1]
    assert path == ("/v1/chat/completions" if kind == "openai" else "/v1/messages")
    assert KEY in (headers.get("authorization", "") + headers.get("x-api-key", ""))
    assert body["model"] == "judge-1" and body["temperature"] == 0.5 and "top_p" not in body
    told = json.dumps(body)
    assert "Judge." in told and "a b" in told and "theirs" not in told
    secret = KEY.encode()
    assert secret not in segment and KEY not in json.dumps(one.intent.model_dump(mode="json"))
    assert KEY not in caplog.text


REFUSALS: list[Any] = [
    ((429, {}), 529, "busy", CallState.REFUSED),
    ((503, {}), 529, "busy", CallState.REFUSED),
    ((401, {"error": KEY}), 500, "JUDGE_KEY", CallState.REFUSED),
    ((400, {"error": f"no such thing, {KEY}"}), 400, "no such thing", CallState.REFUSED),
    ((400, {"error": "maximum context length is 9"}), 400, "prompt is too long", None),
    ((200, {"choices": []}), 500, "IndexError", CallState.LOST),
]


@pytest.mark.parametrize(("reply", "status", "says", "state"), REFUSALS)
async def test_what_an_upstream_refuses_is_told_without_the_key(
    short_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    reply: tuple[int, Any],
    status: int,
    says: str,
    state: CallState | None,
) -> None:
    """Invariant 13, and no answer that was never given makes the evidence incomplete."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    async with (
        serving(reply) as service,
        world(
            short_dir, compute=Foreign(), upstreams=[upstream(service, "openai")], patience=0
        ) as stack,
    ):
        claims = stack.gateway.claims()
        response = await stack.harness(**claims).post([user("u")])
        segment = stack.segment(claims["trial"])
        seal = (await stack.seal(claims["trial"])).json()
    assert response.status_code == status and says in response.text
    assert KEY not in response.text and KEY.encode() not in segment
    assert seal["complete"] == (state is not CallState.LOST)


async def test_an_upstream_without_its_key_or_service_says_so(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    async with serving() as service:
        known = upstream(service, "openai")
    async with world(short_dir, compute=Foreign(), upstreams=[known], patience=0) as stack:
        unset = await stack.harness().post([user("u")])
        monkeypatch.setenv("JUDGE_KEY", KEY)
        away = await stack.harness().post([user("v")])
    assert unset.status_code == 500 and "JUDGE_KEY is not set" in unset.text
    assert away.status_code == 529 and "cannot be reached" in away.text


@asynccontextmanager
async def behind(folder: Path, kind: str, reply: tuple[int, Any]) -> AsyncGenerator[World]:
    """A proxy whose model is an upstream that gives one answer."""
    async with (
        serving(reply) as service,
        world(folder, compute=Foreign(), upstreams=[upstream(service, kind)]) as stack,
    ):
        yield stack


def odd(kind: str, arguments: str) -> tuple[int, bytes]:
    """An answer with one call, and arguments as the upstream spells them."""
    if kind == "openai":
        function = {"name": "Bash", "arguments": arguments}
        call = {"id": "theirs", "type": "function", "function": function}
        _, whole = chat({"content": "a\ud83d", "tool_calls": [call]}, "tool_calls")
        return 200, json.dumps(whole).encode()
    use = {"type": "tool_use", "id": "theirs", "name": "Bash", "input": "HERE"}
    _, whole = message({"type": "text", "text": "a\ud83d"}, use, reason="tool_use")
    return 200, json.dumps(whole).replace('"HERE"', arguments).encode()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_half_a_character_of_an_upstream_is_replaced(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    async with behind(short_dir, kind, odd(kind, r'{"command": "\ud83d"}')) as stack:
        claims = stack.gateway.claims()
        text, use = (await stack.harness(**claims).say([user("u")], tools=[BASH]))["content"]
        (record,) = stack.interactions(claims["trial"])
    assert (text["text"], use["input"]) == ("a\ufffd", {"command": "\ufffd"})
    assert record.state is CallState.ANSWERED


NO_NUMBERS = ['{"n": NaN}', '{"n": [-Infinity]}', '{"n": 1e999}']


@pytest.mark.parametrize("arguments", [*NO_NUMBERS, '{"n": 1, "n": 2}', "[1]"])
async def test_arguments_of_an_upstream_that_are_none_stay_text(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    """They are never executed, and what the harness is sent is JSON."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    async with behind(short_dir, "openai", odd("openai", arguments)) as stack:
        message = await stack.harness().say([user("u")], tools=[BASH])
    assert "".join(one["text"] for one in message["content"]).endswith(f"Bash({arguments})")


@pytest.mark.parametrize("arguments", NO_NUMBERS)
async def test_an_answer_with_a_number_that_is_none_is_no_answer(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    async with behind(short_dir, "anthropic", odd("anthropic", arguments)) as stack:
        response = await stack.harness().post([user("u")], tools=[BASH])
    assert response.status_code == 500 and "sent no JSON" in response.text
