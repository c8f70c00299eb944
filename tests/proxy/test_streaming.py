"""Server-sent events in the order that strict clients ask for."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy import reply
from specs.errors import Internal, InvalidInput, Unavailable
from specs.interaction import CallState
from tests.proxy.test_history import BASH, call
from tests.proxy.world import Dice, user, world

pytestmark = pytest.mark.anyio


def events(text: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for part in text.strip().split("\n\n"):
        name, data = part.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        result.append(value)
    return result


async def test_events_come_in_order_with_real_counts(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice([f"Look.\n{call('ls')}"])) as stack:
        claims = stack.gateway.claims()
        response = await stack.harness(**claims).post([user("u")], tools=[BASH], stream=True)
        (record,) = stack.interactions(claims["trial"])
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(response.text)
    assert [event["type"] for event in found] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found[0]["message"]["usage"]["input_tokens"] == len(record.prompt)
    assert found[3]["delta"] == {"type": "text_delta", "text": "Look."}
    assert found[5]["content_block"]["input"] == {}
    assert json.loads(found[6]["delta"]["partial_json"]) == {"command": "ls"}
    assert found[8]["delta"]["stop_reason"] == "tool_use"
    assert found[8]["usage"]["output_tokens"] == len(record.output)


async def test_pings_keep_the_connection_while_sampling(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "PING_SEC", 0.02)
    async with world(short_dir, compute=Dice(["a"])) as stack:
        stack.compute.delay = 0.3
        response = await stack.harness().post([user("u")], stream=True)
    kinds = [event["type"] for event in events(response.text)]
    assert kinds.count("ping") >= 3 and kinds[-1] == "message_stop"


async def test_the_record_is_durable_before_the_answer_leaves(short_dir: Path) -> None:
    """Invariant 2: when `message_start` is seen the intent is on disk, and no answer yet; when
    the first content is seen the whole record is."""
    async with world(short_dir, compute=Dice(["a"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.gate = anyio.Event()
        body = {"model": "m", "max_tokens": 9, "messages": [user("u")], "stream": True}
        async with stack.client.stream(
            "POST", "/v1/messages", json=body, headers=harness.headers
        ) as response:
            lines = response.aiter_lines()
            assert await anext(lines) == "event: message_start"
            (before,) = stack.interactions(claims["trial"])
            assert before.answer is None and before.state is CallState.LOST
            stack.compute.gate.set()
            async for line in lines:
                if line == "event: content_block_start":
                    (after,) = stack.interactions(claims["trial"])
                    assert after.answer is not None and len(after.output) == 2
                    break
            assert [line async for line in lines][-2] == 'data: {"type":"message_stop"}'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (Unavailable("busy"), 529, "overloaded_error"),
        (Internal("defect"), 500, "api_error"),
        (RuntimeError("a bug"), 500, "api_error"),
        (InvalidInput("no"), 400, "invalid_request_error"),
    ],
)
async def test_a_call_that_cannot_be_sampled_is_lost_and_said_so(
    short_dir: Path, stream: bool, failure: Exception, status: int, kind: str
) -> None:
    async with world(short_dir, compute=Dice(["late"]), patience=0) as stack:
        claims = stack.gateway.claims()
        stack.compute.failures = [failure]
        response = await stack.harness(**claims).post([user("u")], stream=stream)
        (record,) = stack.interactions(claims["trial"])
        again = await stack.harness(**claims).say([user("u")])
        seal = (await stack.seal(claims["trial"])).json()
    if stream:
        last = events(response.text)[-1]
        assert response.status_code == 200
        assert last["type"] == "error" and last["error"]["type"] == kind
    else:
        assert response.status_code == status
        assert response.json()["error"]["type"] == kind
    assert "a bug" not in response.text
    assert record.state is CallState.LOST
    assert again["content"][0]["text"] == "late"
    assert not seal["complete"] and seal["states"] == {
        "refused": 0,
        "answered": 1,
        "superseded": 0,
        "lost": 1,
    }


async def test_a_compute_process_that_starts_again_is_waited_for(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["a"]), patience=30) as stack:
        claims = stack.gateway.claims()
        stack.compute.failures = [Unavailable("away"), Unavailable("away")]
        await stack.harness(**claims).say([user("u")])
        (record,) = stack.interactions(claims["trial"])
    assert record.state is CallState.ANSWERED


async def test_a_missing_adapter_is_fetched_and_sent_to_compute(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["a"])) as stack:
        digest = await stack.gateway.upload(b"adapter")
        sampler = stack.gateway.sampler_id(adapter=digest)
        await stack.harness(sampler=sampler).say([user("u")])
        assert stack.compute.adapters == {digest: b"adapter"}
        assert stack.compute.samplers[0].adapter == digest


async def test_count_tokens_is_the_prompt_that_would_be_sent(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        body = {"model": "m", "messages": [user("u")], "tools": [BASH], "system": "s"}
        counted = await stack.client.post(
            "/v1/messages/count_tokens", json=body, headers=harness.headers
        )
        await harness.say([user("u")], tools=[BASH], system="s")
        (record,) = stack.interactions(claims["trial"])
    assert counted.json() == {"input_tokens": len(record.prompt)}


async def test_models_lists_the_trials_model(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        response = await stack.client.get("/v1/models?limit=1000", headers=stack.harness().headers)
    assert [model["id"] for model in response.json()["data"]] == ["tiny"]
