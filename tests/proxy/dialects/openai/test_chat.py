"""Chat Completions, read and driven by OpenAI's own SDK over the proxy's socket."""

import math
from pathlib import Path
from typing import Any

import openai
import pytest

from specs import evidence
from specs.errors import Internal, Unavailable
from specs.interaction import BranchReason, CallState, LimitedBy
from tests.proxy.dialects.openai.clients import FUNCTION, calls_of, chat, client_of
from tests.proxy.test_history import call
from tests.proxy.world import Dice, ids_text, user, world

pytestmark = pytest.mark.anyio

TOOLS: Any = [{"type": "function", "function": FUNCTION}]
ASK: Any = {"model": "m", "tools": TOOLS}


def tool(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_and_results_extend_the_exact_tokens(short_dir: Path, stream: bool) -> None:
    """Invariants 1 and 3: the SDK's own echo continues what was sampled, streamed or not."""
    replies = [f"Look.\n{call('ls')}\n{call('pwd')}", "done"]
    async with world(short_dir, compute=Dice(replies)) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            turns: list[Any] = [{"role": "system", "content": "Work."}, user("Go.")]
            if stream:
                async with chat(client).stream(messages=turns, **ASK) as events:
                    first: Any = await events.get_final_completion()
            else:
                first = await chat(client).create(messages=turns, **ASK)
            (choice,) = first.choices
            assert choice.finish_reason == "tool_calls" and choice.message.content == "Look."
            one, two = choice.message.tool_calls
            assert (one.function.name, one.function.arguments) == ("Bash", '{"command": "ls"}')
            echo = choice.message.model_dump(exclude_none=True, exclude={"parsed"})
            turns += [echo, tool(two.id, "/"), tool(one.id, "a b")]
            last = await chat(client).create(messages=turns, **ASK)
        before, after = calls_of(stack, claims)
    assert last.choices[0].message.content == "done" and last.choices[0].finish_reason == "stop"
    assert last.usage is not None and last.usage.completion_tokens == len(after.output)
    assert after.exact and "reordered_results" in after.intent.normalisations
    assert after.prompt[: len(before.prompt) + len(before.output)] == before.prompt + before.output
    assert ids_text(after.prompt).endswith(
        "<|im_start|>user\n<tool_response>\na b\n</tool_response>\n"
        "<tool_response>\n/\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert before.intent.dialect == "openai-chat"


async def test_system_texts_lead_or_stay_where_they_were_sent(short_dir: Path) -> None:
    turns: list[Any] = [
        {"role": "system", "content": "A."},
        {"role": "developer", "content": [{"type": "text", "text": "B."}]},
        user("u"),
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "developer", "content": "C."},
        {"role": "user", "content": [{"type": "text", "text": "v"}], "name": "bob"},
    ]
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            await chat(client).create(messages=turns, model="m")
            only: Any = [{"role": "system", "content": "Say something."}]
            await chat(client).create(messages=only, model="m")
        record, short = calls_of(stack, claims)
    assert ids_text(record.prompt) == (
        "<|im_start|>system\nA.\n\nB.<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
        "<|im_start|>assistant\nno<|im_end|>\n<|im_start|>system\nC.<|im_end|>\n"
        "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n"
    )
    assert record.intent.normalisations == ("ignored:messages.name",)
    assert ids_text(short.prompt).startswith("<|im_start|>system\nSay something.<|im_end|>")


async def test_logprobs_are_the_recorded_ones(short_dir: Path) -> None:
    """Invariant 1: asked for, they are those of the sampling path, streamed or not."""
    async with world(short_dir, compute=Dice(["häh", "x"])) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            ask: Any = {"model": "m", "messages": [user("u")], "logprobs": True, "top_logprobs": 2}
            whole = await chat(client).create(**ask)
            chunks = [part async for part in await chat(client).create(
                stream=True, stream_options={"include_usage": True}, **{**ask, "seed": 5}
            )]  # fmt: skip
        one, two = calls_of(stack, claims)
    assert one.logprobs is not None and two.logprobs is not None
    found = whole.choices[0].logprobs
    assert found is not None and found.content is not None
    assert b"".join(bytes(token.bytes or []) for token in found.content) == "häh<|im_end|>".encode()
    assert [token.logprob for token in found.content] == list(one.logprobs)
    assert "unenforced:top_logprobs" in one.intent.normalisations
    scored = chunks[-2].choices[0].logprobs
    assert scored is not None and scored.content is not None
    assert [token.logprob for token in scored.content] == list(two.logprobs)
    assert chunks[-1].usage is not None and not chunks[-1].choices
    assert chunks[-1].usage.prompt_tokens == len(two.prompt)
    assert two.intent.sampling.seed == 5 and all(map(math.isfinite, two.logprobs))


async def test_sampling_fields_and_limits(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["one STOP two", "x" * 5000, "abcdef"])) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            ask: Any = {"model": "m", "messages": [user("u")]}
            create = chat(client).create
            stopped = await create(
                **ask, stop="STOP", temperature=0.5, top_p=0.9, extra_body={"top_k": 4, "zzz": 1}
            )
            full = await create(**ask, frequency_penalty=1)
            cut = await create(**ask, max_tokens=9, max_completion_tokens=3)
        one, two, three = calls_of(stack, claims)
    assert stopped.choices[0].message.content == "one "
    assert stopped.choices[0].finish_reason == "stop"
    used = one.intent.sampling
    assert (used.temperature, used.top_p, used.top_k) == (0.5, 0.9, 4)
    assert used.stop_sequences == ("STOP",) and "ignored:zzz" in one.intent.normalisations
    assert full.choices[0].finish_reason == "length"
    assert two.intent.sampling.limited_by is LimitedBy.WINDOW
    assert two.intent.normalisations == ("unenforced:frequency_penalty",)
    assert cut.choices[0].message.content == "abc" and len(three.output) == 3


async def test_media_becomes_a_marker(short_dir: Path) -> None:
    parts: list[Any] = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "AAAA"}},
    ]
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            turns: Any = [{"role": "user", "content": parts}]
            await chat(client).create(model="m", messages=turns)
        (record,) = calls_of(stack, claims)
    prompt = ids_text(record.prompt)
    for kind, about in (
        ("image", "image/png"),
        ("image", "url"),
        ("audio", "wav"),
        ("file", "a.pdf"),
    ):
        assert f"[{kind} not shown: {about}; this model reads text only]" in prompt
    assert record.intent.normalisations == ("replaced:audio", "replaced:file", "replaced:image")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "zzz"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"temperature": 9}, "temperature"),
        ({"stop": ["a", ""]}, "stop.1"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"max_tokens": "many"}, "max_tokens"),
    ],
)
async def test_a_bad_field_is_refused_by_name(
    short_dir: Path, change: dict[str, Any], param: str
) -> None:
    """Invariant 2: the refusal is on record, and nothing was sampled."""
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            with pytest.raises(openai.BadRequestError) as caught:
                await client.post(
                    "/chat/completions",
                    body={"model": "m", "messages": [user("u")], **change},
                    cast_to=object,
                )
        (refusal,) = evidence.refusals(stack.segment(claims["trial"]))
    assert caught.value.param == param and caught.value.type == "invalid_request_error"
    assert refusal.detail and not stack.compute.prompts


@pytest.mark.parametrize("stream", [False, True])
async def test_errors_are_those_that_clients_act_on(short_dir: Path, stream: bool) -> None:
    async with world(short_dir, patience=0) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            ask: Any = {"model": "m", "stream": stream}
            long: Any = [user("x" * 5000)]
            with pytest.raises(
                openai.BadRequestError, match="maximum context length is 4096 tok"
            ) as e:
                await chat(client).create(messages=long, **ask)
            assert e.value.code == "context_length_exceeded"
            stack.compute.failures = [Internal("defect")]
            short: Any = [user("u")]
            answer: Any = await chat(client).create(messages=short, **ask)
            if stream:
                with pytest.raises(openai.APIError, match="defect"):
                    _ = [part async for part in answer]
        bad = client_of(stack, {**claims, "exp": 1})
        async with bad:
            with pytest.raises(openai.PermissionDeniedError):
                await chat(bad).create(messages=short, **ask)
            stack.gateway.down = True
            other = client_of(stack, stack.gateway.claims(), max_retries=0)
            async with other:
                with pytest.raises(openai.InternalServerError) as away:
                    await chat(other).create(messages=short, **ask)
            assert away.value.status_code == 503
        none = await stack.client.post("/v1/chat/completions", json={})
    assert none.status_code == 401 and none.json()["error"]["code"] == "invalid_api_key"


async def test_a_repeated_request_is_answered_from_the_record(short_dir: Path) -> None:
    """Invariant 2: the SDK's own retry never samples again."""
    async with world(short_dir, compute=Dice(["first", "second"])) as stack:
        claims = stack.gateway.claims()
        body = {"model": "m", "messages": [user("u")]}
        token = {"authorization": f"Bearer {stack.gateway.token(claims)}"}
        one = await stack.client.post("/v1/chat/completions", json=body, headers=token)
        again = {**token, "x-stainless-retry-count": "1"}
        two = await stack.client.post("/v1/chat/completions", json=body, headers=again)
        (record,) = calls_of(stack, claims)
    assert one.json() == two.json() and record.intent.branch is BranchReason.ROOT


async def test_chains_and_answers_survive_a_restart(short_dir: Path) -> None:
    """Invariant 3: the segment is read back in its own dialect."""
    async with world(short_dir, compute=Dice([call("ls")])) as stack:
        claims, gateway = stack.gateway.claims(), stack.gateway
        async with client_of(stack, claims) as client:
            first: Any = await chat(client).create(messages=[user("u")], **ASK)
    async with world(short_dir, gateway=gateway, compute=Dice(["done"])) as stack:
        echo = first.choices[0].message.model_dump(exclude_none=True)
        turns: Any = [user("u"), echo, tool(echo["tool_calls"][0]["id"], "a")]
        async with client_of(stack, claims) as client:
            await chat(client).create(messages=turns, **ASK)
        one, two = calls_of(stack, claims)
    assert two.exact and two.prompt[: len(one.prompt)] == one.prompt


async def test_models_come_in_the_shape_that_the_client_asks_for(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            assert [one.id async for one in client.models.list()] == ["tiny"]
            assert (await client.models.retrieve("tiny")).object == "model"
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("gpt-x")
        headers = {"x-api-key": stack.gateway.token(claims)}
        other = await stack.client.get("/v1/models", headers=headers)
    assert other.json()["data"][0]["type"] == "model"


async def test_a_service_that_is_full_is_asked_again(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["late"]), patience=0) as stack:
        claims = stack.gateway.claims()
        stack.compute.failures = [Unavailable("busy")]
        async with client_of(stack, claims) as client:
            messages: Any = [user("u")]
            answer = await chat(client).create(model="m", messages=messages)
        lost, record = calls_of(stack, claims)
    assert answer.choices[0].message.content == "late"
    assert lost.state is CallState.LOST and record.state is CallState.ANSWERED
