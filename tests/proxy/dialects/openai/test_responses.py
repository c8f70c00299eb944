"""The Responses API, read and driven by OpenAI's own SDK over the proxy's socket."""

import json
from pathlib import Path
from typing import Any, cast

import openai
import pytest

from proxy.dialects import RESPONSES
from proxy.dialects.base import Head, Whole
from runtime.formats.families import TextDelta, ThinkingDelta
from specs.errors import Internal, InvalidInput
from tests.proxy.dialects.openai.clients import FUNCTION, calls_of, client_of, responses
from tests.proxy.test_history import call
from tests.proxy.world import Dice, ids_text, user, world

pytestmark = pytest.mark.anyio

TOOLS: Any = [{"type": "function", **FUNCTION}, {"type": "web_search"}]
ASK: Any = {"model": "m", "tools": TOOLS}


def output(item: Any, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": item.call_id, "output": text}


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_and_outputs_extend_the_exact_tokens(short_dir: Path, stream: bool) -> None:
    """Invariants 1 and 3: the SDK's own echo continues what was sampled, streamed or not."""
    replies = [f"Look.\n{call('ls')}\n{call('pwd')}", "done"]
    async with world(short_dir, compute=Dice(replies)) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            ask = {**ASK, "instructions": "Work."}
            turns: list[Any] = [{"role": "developer", "content": "Be brief."}, user("Go.")]
            if stream:
                async with responses(client).stream(input=turns, **ask) as events:
                    first = await events.get_final_response()
            else:
                first = await responses(client).create(input=turns, **ask)
            said, one, two = first.output
            assert first.status == "completed" and first.output_text == "Look."
            assert (said.type, one.type) == ("message", "function_call")
            assert json.loads(two.arguments) == {"command": "pwd"}
            echo = [item.model_dump(exclude_none=True) for item in first.output]
            turns += [*echo, output(two, "/"), output(one, "a b")]
            last = await responses(client).create(input=turns, **ask)
            counted = await responses(client).input_tokens.count(input=turns, **ask)
        before, after = calls_of(stack, claims)
    assert last.output_text == "done" and last.usage.output_tokens == len(after.output)
    assert after.exact and "reordered_results" in after.intent.normalisations
    assert after.prompt[: len(before.prompt) + len(before.output)] == before.prompt + before.output
    assert ids_text(before.prompt).startswith("<|im_start|>system\nWork.\n\nBe brief.")
    assert "dropped:tool:web_search" in before.intent.normalisations
    assert before.intent.dialect == "openai-responses"
    assert counted.input_tokens == len(after.prompt)


async def test_events_come_in_the_order_that_clients_accumulate_by(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice([f"Look.\n{call('ls')}"])) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            stream = await responses(client).create(input="Go.", stream=True, **ASK)
            events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert events[6].text == "Look." == events[-1].response.output_text
    assert events[-2].item.arguments == '{"command": "ls"}'


async def test_a_cut_answer_is_incomplete(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["abcdef"])) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            answer = await responses(client).create(model="m", input="u", max_output_tokens=3)
    assert answer.status == "incomplete" and answer.output_text == "abc"
    assert answer.incomplete_details.reason == "max_output_tokens"


async def test_items_of_others_are_dropped_or_shown_as_text(short_dir: Path) -> None:
    items: list[Any] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_x", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "function_call", "call_id": "c1", "name": "Bash", "arguments": "not json"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call_output", "call_id": "c1",
         "output": [{"type": "input_text", "text": "out"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
    ]  # fmt: skip
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            await responses(client).create(input=items, **ASK)
        (record,) = calls_of(stack, claims)
    assert ids_text(record.prompt).endswith(
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb\n<tool_call>\n"
        '{"name": "Bash", "arguments": {"__unparsed__": "not json"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nout\n"
        "[image not shown: image/png; this model reads text only]\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert set(record.intent.normalisations) == {
        "dropped:item:web_search_call", "dropped:tool:web_search", "replaced:image",
        "unparsed:arguments",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]}, "input.0"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input.0.role"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
    ],
)
async def test_a_bad_field_is_refused_by_name(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RESPONSES.read(json.dumps({"model": "m", "input": "u", **change}).encode())
    body = cast(dict[str, Any], RESPONSES.error(caught.value, "req_1").body["error"])
    assert body["param"] == param and body["type"] == "invalid_request_error"


async def test_errors_are_those_that_clients_act_on(short_dir: Path) -> None:
    async with world(short_dir, patience=0) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims, max_retries=0) as client:
            with pytest.raises(openai.BadRequestError) as long:
                await responses(client).create(model="m", input="x" * 5000)
            stack.compute.failures = [Internal("defect")]
            stream = await responses(client).create(model="m", input="u", stream=True)
            events = [event async for event in stream]
    assert long.value.code == "context_length_exceeded"
    assert events[-1].type == "response.failed" and events[-1].response.error.message == "defect"


@pytest.mark.parametrize("shown", range(6))
async def test_reasoning_streams_to_the_same_response_wherever_it_is_cut(
    short_dir: Path, shown: int
) -> None:
    """Events concatenate to the whole response, also for a model that thinks."""
    async with world(short_dir, compute=Dice(["x"])) as stack:
        claims = stack.gateway.claims()
        async with client_of(stack, claims) as client:
            await responses(client).create(model="m", input="u")
        (record,) = calls_of(stack, claims)
    assert record.answer is not None
    blocks: list[Any] = [
        {"type": "thinking", "thinking": "hmm", "signature": "s"},
        {"type": "text", "text": "yes"},
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
    ]
    answer = record.answer.model_copy(update={"content": blocks})
    whole, head = Whole(answer, 7), Head(record.intent, "tiny")
    deltas = [*(ThinkingDelta(0, one) for one in "hmm"), *(TextDelta(1, one) for one in "yes")]
    events = RESPONSES.events(head)
    data = events.begin() + b"".join(map(events.delta, deltas[:shown])) + events.end(whole)
    lines = [line for line in data.decode().splitlines() if line.startswith("data: ")]
    found = [json.loads(line.removeprefix("data: ")) for line in lines]
    done = [one["item"] for one in found if one["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"] == RESPONSES.message(head, whole)["output"]
    for kind, text in (("reasoning_text", "hmm"), ("output_text", "yes")):
        name = f"response.{kind}.delta"
        assert "".join(one["delta"] for one in found if one["type"] == name) == text
