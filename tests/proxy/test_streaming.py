"""Server-sent events in the order that strict clients ask for."""

import errno
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from proxy import reply
from proxy.admission import Limits
from proxy.spool import Segment
from specs import evidence
from specs.canonical import digest_bytes
from specs.errors import Conflict, ErrorCode, Internal, InvalidInput, PracticumError, Unavailable
from specs.interaction import CallState
from tests.proxy.test_history import BASH, call
from tests.proxy.world import Dice, Harness, World, echo, ids_text, until, user, world

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
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found[0]["message"]["usage"]["input_tokens"] == len(record.prompt)
    assert found[3]["delta"] == {"type": "text_delta", "text": "Loo"}
    assert found[4]["delta"] == {"type": "text_delta", "text": "k."}
    assert found[6]["content_block"]["input"] == {}
    assert json.loads(found[7]["delta"]["partial_json"]) == {"command": "ls"}
    assert found[9]["delta"]["stop_reason"] == "tool_use"
    assert found[9]["usage"]["output_tokens"] == len(record.output)


async def test_pings_keep_the_connection_while_sampling(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "PING_SEC", 0.02)
    async with world(short_dir, compute=Dice(["a"])) as stack:
        stack.compute.delay = 0.3
        response = await stack.harness().post([user("u")], stream=True)
    kinds = [event["type"] for event in events(response.text)]
    assert kinds.count("ping") >= 3 and kinds[-1] == "message_stop"


class Steps:
    """Lets a sampled answer through chunk by chunk."""

    def __init__(self, stack: World) -> None:
        self.allowed = 0
        self.failure: Exception | None = None
        self._changed = anyio.Event()
        stack.compute.before = self._wait

    def allow(self, chunks: int, *, then: Exception | None = None) -> None:
        self.allowed, self.failure = chunks, then
        self._changed.set()
        self._changed = anyio.Event()

    async def _wait(self, number: int) -> None:
        while number >= self.allowed:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()


class Listener:
    """A client that reads events as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()
        self.seen: list[str] = []

    async def until(self, text: str) -> str:
        """The line that holds `text`; fails when the stream ends without it."""
        with anyio.fail_after(30):
            async for line in self._lines:
                if text in line:
                    return line
        raise AssertionError(f"no {text}")

    async def rest(self) -> list[str]:
        async for line in self._lines:
            self.seen += [line] if line.startswith("data: ") else []
        return self.seen


def streamed(stack: World, harness: Harness, **fields: Any) -> AbstractAsyncContextManager[Any]:
    body = {"model": "m", "max_tokens": 99, "messages": [user("u")], "stream": True, **fields}
    return stack.client.stream("POST", "/v1/messages", json=body, headers=harness.headers)


async def test_text_leaves_while_sampling_and_its_end_only_once_durable(short_dir: Path) -> None:
    """Invariant 2: at `message_start` the intent is on disk; text is seen while no answer is
    there yet; when a block or the message ends the whole record is."""
    async with world(short_dir, compute=Dice(["abcdef"])) as stack:
        claims = stack.gateway.claims()
        steps = Steps(stack)
        async with streamed(stack, stack.harness(**claims)) as response:
            listener = Listener(response)
            await listener.until("message_start")
            (before,) = stack.interactions(claims["trial"])
            assert before.answer is None and before.state is CallState.LOST
            steps.allow(1)
            assert '"text":"abc"' in await listener.until("text_delta")
            (during,) = stack.interactions(claims["trial"])
            assert during.answer is None
            steps.allow(99)
            await listener.until("content_block_stop")
            (after,) = stack.interactions(claims["trial"])
            assert after.answer is not None and len(after.output) == 7
            assert (await listener.rest())[-1] == 'data: {"type":"message_stop"}'


async def test_one_who_joins_while_sampling_gets_the_whole_answer(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["abcdef"])) as stack:
        harness = stack.harness()
        steps = Steps(stack)
        steps.allow(1)
        async with streamed(stack, harness) as first:
            one = Listener(first)
            await one.until('"text":"abc"')
            async with streamed(stack, harness) as second:
                two = Listener(second)
                await two.until('"text":"abc"')
                steps.allow(99)
                assert await one.rest() == await two.rest()
        assert len(stack.compute.prompts) == 1


@pytest.mark.parametrize("failure", [Unavailable("away"), Internal("defect")])
async def test_a_call_that_fails_after_content_is_cut_off_and_lost(
    short_dir: Path, failure: PracticumError
) -> None:
    """What a client saw is never sampled again under the same name: the call is lost, the
    connection breaks, and the harness's one more try is a call of its own."""
    async with world(short_dir, compute=Dice(["abcdef", "again"]), patience=30) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        steps = Steps(stack)
        steps.allow(1)
        with pytest.raises(httpx.RemoteProtocolError):
            async with streamed(stack, harness) as response:
                listener = Listener(response)
                await listener.until('"text":"abc"')
                steps.allow(1, then=failure)
                await listener.rest()
        stack.compute.before = None
        again = await harness.say([user("u")], max_tokens=99)
        one, two = stack.interactions(claims["trial"])
    assert again["content"][0]["text"] == "again"
    assert (one.state, two.state) == (CallState.LOST, CallState.ANSWERED)


async def test_an_answer_of_which_nothing_was_given_out_is_sampled_again(short_dir: Path) -> None:
    """A compute process that ends in the middle costs a client that waits for the whole
    answer nothing."""
    async with world(short_dir, compute=Dice(["abcdef"] * 99), patience=30) as stack:
        claims = stack.gateway.claims()
        steps = Steps(stack)
        answers: list[dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await stack.harness(**claims).say([user("u")]))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await until(lambda: len(stack.compute.prompts) == 1)
            steps.allow(2, then=Unavailable("away"))
            await until(lambda: len(stack.compute.prompts) == 2)
            steps.allow(99)
        (record,) = stack.interactions(claims["trial"])
    assert answers[0]["content"][0]["text"] == ids_text(record.output[:-1]) == "abcdef"
    assert record.state is CallState.ANSWERED


@pytest.mark.parametrize("stream", [False, True])
async def test_a_connection_that_a_script_drops_breaks_and_costs_no_evidence(
    short_dir: Path, stream: bool
) -> None:
    async with world(short_dir, compute=Dice(["a"]), patience=30) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.failures = [Unavailable("drop", code=ErrorCode.CONNECTION_DROPPED)]
        with pytest.raises(httpx.RemoteProtocolError):
            await harness.post([user("u")], stream=stream)
        await harness.say([user("u")])
        seal = (await stack.seal(claims["trial"])).json()
    assert seal["complete"] and seal["states"]["refused"] == 1


async def test_a_scenario_that_has_no_reply_has_sampled_nothing_and_loses_no_evidence(
    short_dir: Path,
) -> None:
    async with world(short_dir, compute=Dice(["a"]), patience=30) as stack:
        claims = stack.gateway.claims()
        stack.compute.failures = [Conflict("no reply", code=ErrorCode.SCENARIO_EXHAUSTED)]
        response = await stack.harness(**claims).post([user("u")])
        seal = (await stack.seal(claims["trial"])).json()
    assert response.status_code >= 400
    assert seal["complete"] and seal["states"]["refused"] == 1 and seal["states"]["lost"] == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_is_full_has_sampled_nothing_and_costs_no_evidence(
    short_dir: Path, stream: bool
) -> None:
    async with world(short_dir, compute=Dice(["a"]), patience=30) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.failures = [Unavailable("full", code=ErrorCode.OVERLOADED)]
        busy = await harness.post([user("u")], stream=stream)
        assert "overloaded_error" in busy.text
        assert busy.status_code == (200 if stream else 529)
        await harness.say([user("u")])
        (record,) = stack.interactions(claims["trial"])
        (refusal,) = evidence.refusals(stack.segment(claims["trial"]))
        seal = (await stack.seal(claims["trial"])).json()
    assert (record.intent.sequence, refusal.sequence) == (1, 0)
    assert refusal.code == "overloaded"
    assert seal["complete"] and seal["interactions"] == 1
    assert (seal["states"]["refused"], seal["states"]["lost"]) == (1, 0)


async def test_an_answer_that_cannot_be_made_durable_never_ends(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 2: text has left, the disk is full: no end of a block, no end of the message."""
    async with world(short_dir, compute=Dice(["abcdef"])) as stack:
        claims = stack.gateway.claims()
        steps = Steps(stack)
        async with streamed(stack, stack.harness(**claims)) as response:
            listener = Listener(response)
            steps.allow(1)
            await listener.until('"text":"abc"')

            def full(_segment: Segment) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            monkeypatch.setattr(Segment, "sync", full)
            steps.allow(99)
            with pytest.raises(httpx.RemoteProtocolError):
                await listener.rest()
        monkeypatch.undo()
        for end in ("content_block_stop", "message_delta", "message_stop"):
            assert end not in "".join(listener.seen)


async def test_a_stop_sequence_ends_sampling_and_the_next_turn_is_exact(short_dir: Path) -> None:
    """Invariants 1 and 3: the sampled tokens are kept whole, the text ends before it."""
    async with world(short_dir, compute=Dice(["one STOP two three", "next"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        first = await harness.say([user("u")], stop_sequences=["STOP"])
        await harness.say([user("u"), echo(first), user("v")])
        one, two = stack.interactions(claims["trial"])
    assert first["content"] == [{"type": "text", "text": "one "}]
    assert (first["stop_reason"], first["stop_sequence"]) == ("stop_sequence", "STOP")
    assert ids_text(one.output) == "one STOP"
    assert one.answer is not None and one.answer.stop_reason == "sequence"
    assert one.logprobs is not None and len(one.logprobs) == len(one.output)
    assert two.exact and two.prompt[: len(one.prompt) + 8] == one.prompt + one.output
    assert ids_text(two.prompt[len(one.prompt) + 8 :]).startswith("<|im_end|>\n<|im_start|>user")


async def test_beyond_its_limit_the_proxy_sends_harnesses_away_for_a_while(
    short_dir: Path,
) -> None:
    limits = Limits(calls=2, counts=1, waiting_counts=0)
    async with world(short_dir, compute=Dice(["a", "b", "c"]), limits=limits) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for text in "ab":
                tasks.start_soon(harness.say, [user(text)])
            await until(lambda: len(stack.compute.prompts) == 2)
            for stream in (False, True):
                busy = await harness.post([user("c")], stream=stream)
                assert busy.status_code == 529 and int(busy.headers["retry-after"]) > 0
                assert busy.json()["error"]["type"] == "overloaded_error"
            stack.compute.gate.set()
        assert (await harness.post([user("c")])).status_code == 200
        counted = await stack.client.post(
            "/v1/messages/count_tokens",
            json={"model": "m", "messages": [user("u")]},
            headers=harness.headers,
        )
        assert counted.status_code == 529
        calls = stack.interactions(claims["trial"])
    assert [one.state for one in calls] == [CallState.ANSWERED] * 3


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
        digest = digest_bytes(b"adapter")
        stack.gateway.objects[digest] = b"adapter"
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
        headers = stack.harness().headers
        response = await stack.client.get("/v1/models?limit=1000", headers=headers)
        one = await stack.client.get("/v1/models/tiny", headers=headers)
        other = await stack.client.get("/v1/models/claude-x", headers=headers)
    assert [model["id"] for model in response.json()["data"]] == ["tiny"]
    assert one.json() == response.json()["data"][0]
    assert other.status_code == 404


@pytest.mark.parametrize(
    "name",
    ["tinker/Qwen/Qwen3-8B", "tinker%2FQwen%2FQwen3-8B"],
    ids=["as it is", "quoted"],
)
async def test_a_model_is_found_whatever_slashes_its_name_has(short_dir: Path, name: str) -> None:
    async with world(short_dir) as stack:
        headers = stack.harness(model="tinker/Qwen/Qwen3-8B").headers
        one = await stack.client.get(f"/v1/models/{name}", headers=headers)
        other = await stack.client.get(f"/v1/models/{name}/x", headers=headers)
    assert (one.status_code, one.json().get("id")) == (200, "tinker/Qwen/Qwen3-8B")
    assert other.json()["error"]["message"] == "The trial has no other model than its own."
