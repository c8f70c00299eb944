"""Whatever a harness sends, the answer is an Anthropic error that names the field, never a 500."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from specs import evidence
from tests.proxy.world import Dice, ids_text, user, world

pytestmark = pytest.mark.anyio

GOOD: dict[str, Any] = {"model": "m", "max_tokens": 8, "messages": [user("u")]}
CALL: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}


def blocks(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(content)}]}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [7]}, "messages.0"),
        ({"messages": [{"role": "robot", "content": "u"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content"),
        (blocks({"type": "text"}), "messages.0.content.0.text"),
        (blocks({"type": "text", "text": 7}), "messages.0.content.0.text"),
        (blocks({"type": "image", "source": {}}), "messages.0.content.0"),
        (blocks({"type": "hologram"}), "messages.0.content.0"),
        (blocks({"no": "type"}), "messages.0.content.0"),
        (blocks("text"), "messages.0.content.0"),
        (blocks(CALL), "messages.0.content.0"),
        (blocks({"type": "tool_result", "tool_use_id": "t9"}), "messages.0.content.0"),
        (blocks(CALL, role="assistant"), "messages.0"),
        ({"system": 7}, "system"),
        ({"system": [{"type": "image"}]}, "system.0"),
        ({"tools": [{"description": "x"}]}, "tools.0.name"),
        ({"tools": [{"name": "x"}]}, "tools.0.input_schema"),
        ({"tools": [{"name": "x", "type": "custom"}]}, "tools.0.input_schema"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": ["x", " \n"]}, "stop_sequences.1"),
        ({"stop_sequences": ["x"] * 65}, "stop_sequences"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"model": ""}, "model"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice"),
    ],
)
async def test_a_bad_field_is_named_and_the_refusal_is_on_record(
    short_dir: Path, changes: dict[str, Any], named: str
) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        body = {**GOOD, **changes}
        response = await stack.client.post("/v1/messages", json=body, headers=harness.headers)
        (refusal,) = evidence.refusals(stack.segment(claims["trial"]))
        seal = (await stack.seal(claims["trial"])).json()
    error = response.json()
    assert response.status_code == 400, error
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert error["error"]["message"].startswith(named), error
    assert refusal.detail == error["error"]["message"]
    assert seal["complete"] and seal["states"]["refused"] == 1 and seal["interactions"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"model": NaN}',
        b'{"model": "m", "max_tokens": 8, "max_tokens": 9, "messages": []}',
        b'{"model":"m","max_tokens":' + b"9" * 30 + b',"messages":[]}',
        b'{"model":"m","max_tokens":' + b"9" * 9999 + b',"messages":[]}',
        b'{"model":"m","max_tokens":1e999,"messages":[]}',
        b"[" * 100_000,
        b'{"model":"m","max_tokens":8,"messages":' + b"[" * 500 + b"]" * 500 + b"}",
    ],
)
async def test_a_body_that_is_no_strict_json_is_refused(short_dir: Path, body: bytes) -> None:
    async with world(short_dir) as stack:
        harness = stack.harness()
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            response = await stack.client.post(path, content=body, headers=harness.headers)
            assert response.status_code == 400, response.text
            assert response.json()["error"]["type"] == "invalid_request_error"
        assert (await harness.post([user("u")])).status_code == 200


async def test_a_body_of_100_mb_is_refused_without_being_kept(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        harness = stack.harness()

        async def endless() -> AsyncGenerator[bytes]:
            for _ in range(100):
                yield b" " * (1 << 20)

        response = await stack.client.post(
            "/v1/messages", content=endless(), headers=harness.headers
        )
        assert response.status_code == 413
        assert response.json()["error"]["type"] == "request_too_large"
        assert (await harness.post([user("u")])).status_code == 200


async def test_odd_but_legal_content_is_answered(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        harness = stack.harness()
        for content in ("", [], "\x00", "\U0001f600" * 50, [{"type": "text", "text": ""}]):
            response = await harness.post([{"role": "user", "content": content}])
            assert response.status_code == 200, response.text
        unknown = await harness.post(
            [user("u")], headers={"anthropic-beta": "no-such-beta"}, some_new_field={"a": [1]}
        )
        assert unknown.status_code == 200


async def test_half_a_character_of_a_text_that_was_cut_is_replaced_and_said_so(
    short_dir: Path,
) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        body = json.dumps({**GOOD, "messages": [user("a\ud83d")]}).encode()
        response = await stack.client.post(
            "/v1/messages", content=body, headers=stack.harness(**claims).headers
        )
        (call,) = stack.interactions(claims["trial"])
    assert response.status_code == 200
    assert "a\ufffd<|im_end|>" in ids_text(call.prompt)
    assert call.intent.normalisations == ("replaced:lone_surrogates",)


async def test_a_prompt_that_is_too_long_is_refused_in_the_words_harnesses_know(
    short_dir: Path,
) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        response = await stack.harness(**claims).post([user("x" * 5000)])
        (refusal,) = evidence.refusals(stack.segment(claims["trial"]))
    assert response.status_code == 400
    assert response.json()["error"]["message"] == ("prompt is too long: 5019 tokens > 4095 maximum")
    assert refusal.code == "prompt_too_long"
    assert not stack.compute.prompts


async def test_the_answer_is_cut_to_what_the_context_leaves(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        await stack.harness().say([user("x" * 4000)], max_tokens=4000)
        prompt, params = stack.compute.prompts[0], stack.compute.params[0]
    assert len(prompt) + params.max_tokens == 4096


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"max_calls": 1}, "max_calls"), ({"max_output_tokens": 3}, "max_output_tokens")],
)
async def test_a_limit_of_the_trial_is_final(
    short_dir: Path, limits: dict[str, int], code: str
) -> None:
    async with world(short_dir, compute=Dice(["abcdef"])) as stack:
        claims = stack.gateway.claims(**limits)
        harness = stack.harness(**claims)
        await harness.say([user("u")])
        response = await harness.post([user("v")])
        (refusal,) = evidence.refusals(stack.segment(claims["trial"]))
        if code == "max_output_tokens":
            assert stack.compute.params[0].max_tokens == 3
    assert response.status_code == 403 and code in response.json()["error"]["message"]
    assert response.headers["x-should-retry"] == "false"
    assert refusal.code == code


async def test_the_profiles_sampling_beats_the_requests_and_both_are_recorded(
    short_dir: Path,
) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims(sampling={"temperature": 0.5, "top_k": 3}, seed=7)
        harness = stack.harness(**claims)
        for _ in range(2):
            await harness.say([user("u")], temperature=1.5, top_p=0.9)
        one, two = stack.interactions(claims["trial"])
    used, asked = one.intent.sampling, one.intent.requested
    assert (used.temperature, used.top_p, used.top_k) == (0.5, 0.9, 3)
    assert (asked["temperature"], asked["top_p"], asked["model"]) == (1.5, 0.9, "any")
    assert used.seed is not None and used.seed != two.intent.sampling.seed
    assert stack.compute.params[0].seed == used.seed
    assert [one.call for one in stack.compute.contexts] == [0, 1]
    assert stack.compute.contexts[0].task == "acme/count"


async def test_routes_that_do_not_exist_answer_in_the_same_shape(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        for method, path, status in (
            ("GET", "/v1/nothing", 404),
            ("GET", "/v1/messages", 405),
            ("HEAD", "/", 200),
        ):
            response = await stack.client.request(method, path)
            assert response.status_code == status
            if status != 200:
                assert json.loads(response.content)["type"] == "error"
                assert response.headers["request-id"].startswith("req_")
