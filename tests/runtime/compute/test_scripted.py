"""A scripted model answers what its scenario says, in real tokens, and nothing else."""

import json
from typing import Any, cast

import numpy as np
import pytest
from tokenizers import Tokenizer

from runtime.compute import models
from runtime.compute.chunks import fold
from runtime.compute.protocol import Compute, SampleContext, SamplerSpec, TrainerInit
from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.formats.codec import Mark
from runtime.formats.families import family_named
from specs.errors import Conflict, ErrorCode, InvalidInput, Unavailable
from tests.runtime.compute.samples import params, prompt

pytestmark = pytest.mark.anyio

MODEL = SamplerSpec("scripted/demo")
SCENARIO = {
    "schema": "practicum.scenario/v1",
    "tokenizer": "tiny",
    "replies": {"acme/one": ["look", "act ☃"], "acme/none": [], "acme/long": ["x" * 60]},
}


@pytest.fixture(autouse=True)
def registered(model_cache: object) -> None:
    models.pull_scripted("demo", json.dumps(SCENARIO).encode())


async def test_replies_come_by_task_and_call_and_end_with_the_stop_token(
    compute: Compute,
) -> None:
    tokenizer = cast(Any, Tokenizer).from_str((await compute.tokenizer(MODEL.base_model)).decode())
    for call, text in enumerate(("look", "act ☃")):
        context = SampleContext("acme/one", call)
        first, second = await compute.sample(
            MODEL, prompt(5), params(100), num_samples=2, context=context
        )
        assert tokenizer.decode(first.tokens.tolist()) == text
        assert (first.tokens[-1], first.stop_reason, first.provenance) == (2, "stop", "scripted")
        assert first.logprobs is None
        np.testing.assert_array_equal(first.tokens, second.tokens)


async def test_max_tokens_cuts_a_reply_off(compute: Compute) -> None:
    context = SampleContext("acme/one", 0)
    (cut,) = await compute.sample(MODEL, prompt(5), params(4), context=context)
    assert (len(cut.tokens), cut.stop_reason) == (4, "length")


async def test_a_reply_streams_in_chunks(compute: Compute) -> None:
    context = SampleContext("acme/long", 0)
    async with compute.stream(MODEL, prompt(5), params(100), context=context) as arriving:
        chunks = [chunk async for chunk in arriving]
    (whole,) = await compute.sample(MODEL, prompt(5), params(100), context=context)
    assert len(chunks) > 2 and len(whole.tokens) == 61
    assert fold(chunks).tokens.tolist() == whole.tokens.tolist()
    assert fold(chunks).provenance == "scripted" and fold(chunks).logprobs is None
    with pytest.raises(Conflict):
        async with compute.stream(MODEL, prompt(5), params(), context=SampleContext("x", 0)):
            pass


@pytest.mark.parametrize(("task", "call"), [("acme/one", 2), ("acme/none", 0), ("acme/other", 0)])
async def test_a_call_that_the_scenario_does_not_foresee_is_an_error(
    compute: Compute, task: str, call: int
) -> None:
    with pytest.raises(Conflict) as caught:
        await compute.sample(MODEL, prompt(5), params(), context=SampleContext(task, call))
    assert caught.value.problem.code == ErrorCode.SCENARIO_EXHAUSTED


async def test_it_cannot_be_trained_or_scored(compute: Compute) -> None:
    with pytest.raises(InvalidInput) as caught:
        await compute.create_trainer("t", TrainerInit(MODEL.base_model))
    assert caught.value.problem.code == ErrorCode.MODEL_NOT_TRAINABLE
    with pytest.raises(InvalidInput):
        await compute.logprobs(MODEL, prompt(5))
    with pytest.raises(InvalidInput):
        await compute.sample(
            SamplerSpec(MODEL.base_model, "sha256:" + "0" * 64), prompt(5), params()
        )
    assert (await compute.health()).trainers_created == 0


def register(name: str, **scenario: Any) -> SamplerSpec:
    document: dict[str, Any] = {
        "schema": "practicum.scenario/v1",
        "tokenizer": "qwen3",
        "replies": {},
        **scenario,
    }
    models.pull_scripted(name, json.dumps(document).encode())
    return SamplerSpec(f"scripted/{name}")


async def said(compute: Compute, model: SamplerSpec, **context: Any) -> str:
    """The next answer, with control tokens in brackets."""
    (sampled,) = await compute.sample(
        model, prompt(5), params(500), context=SampleContext(task="t", **context)
    )
    codec = load_codec(await compute.tokenizer(model.base_model))
    return "".join(
        f"[{piece.token}]" if isinstance(piece, Mark) else piece
        for piece in codec.pieces(sampled.tokens.tolist())
    )


async def test_a_scenario_may_make_the_window_smaller_and_never_larger(compute: Compute) -> None:
    for asked, given in ((16_384, 16_384), (1 << 30, 131_072), (None, 131_072)):
        model = register("window", context_tokens=asked)
        assert (await compute.model(model.base_model)).context_tokens == given


async def test_a_reply_in_blocks_is_written_in_the_grammar_of_its_family(compute: Compute) -> None:
    call = {"name": "Bash", "input": {"command": "ls"}}
    reply = {"thinking": "Look.", "text": "I look.", "calls": [call]}
    model = register("blocks", replies={"t": [reply, {"text": "cut", "stop": "length"}]})
    assert await said(compute, model) == (
        "[<think>]\nLook.\n[</think>]\n\nI look.\n[<tool_call>]\n"
        '{"name": "Bash", "arguments": {"command": "ls"}}\n[</tool_call>][<|im_end|>]'
    )
    (cut,) = await compute.sample(model, prompt(5), params(500), context=SampleContext("t", 1))
    assert cut.stop_reason == "length"
    deepseek = register("blocks", tokenizer="deepseek-v3.1", replies={"t": [{"calls": [call]}]})
    info = await compute.model(deepseek.base_model)
    assert (info.family, info.stop_tokens, info.trainable) == ("deepseek-v3.1", (1,), False)
    assert (await said(compute, deepseek)).startswith("[<｜tool▁calls▁begin｜>]")


async def test_exact_text_has_control_tokens_where_it_spells_them(compute: Compute) -> None:
    model = register("raw", replies={"t": ["<think>a</think>b<|endoftext|>", {"raw": "é"}]})
    assert await said(compute, model) == "[<think>]a[</think>]b[<|endoftext|>]"
    assert await said(compute, model, call=1) == "é[<|im_end|>]"


async def test_sub_agents_play_their_own_script_by_text_or_by_order(compute: Compute) -> None:
    model = register(
        "agents",
        replies={"t": ["main 0", "main 1"]},
        agents={
            "t": [
                {"when": {"regex": "count .* files"}, "replies": ["counter"]},
                {"replies": ["first", "first again"]},
                {"replies": ["second"]},
            ]
        },
    )
    assert (await said(compute, model, call=5, agent_call=1)).startswith("main 1")
    first: dict[str, Any] = {"agent": "a", "order": 1, "call": 5}
    assert (await said(compute, model, **first, agent_call=1)).startswith("first again")
    second: dict[str, Any] = {"agent": "b", "order": 2, "agent_call": 0}
    assert (await said(compute, model, **second)).startswith("second")
    counter = {**second, "opening": "count all files"}
    assert (await said(compute, model, **counter)).startswith("counter")


async def test_an_aside_answers_its_request_and_does_not_count(compute: Compute) -> None:
    model = register(
        "asides", replies={"t": ["one", "two"]}, asides=[{"when": "summarise", "text": "summary"}]
    )
    trial: dict[str, Any] = {"trial": "trl_1"}
    assert (await said(compute, model, **trial)).startswith("one")
    aside = await said(compute, model, **trial, call=1, request="please summarise this")
    assert aside.startswith("summary")
    assert (await said(compute, model, **trial, call=2)).startswith("two")
    assert (await said(compute, model, trial="trl_2", call=1)).startswith("two")


async def test_a_reply_says_what_it_and_earlier_ones_captured(compute: Compute) -> None:
    """Of its own trial, in whichever agent, and in every part of a reply."""
    start = {"capture": {"run": '"run": "([^"]*)"', "all": "p.n"}, "text": "${captured.run}"}
    wait = {
        "name": "wait",
        "input": {"runs": ["${captured.run}"], "deep": {"x": "${captured.all}"}},
    }
    model = register(
        "captures",
        replies={"t": [start, {"text": "${HOME}", "calls": [wait]}]},
        agents={"t": [{"replies": [{"raw": "<think>${captured.run}"}]}]},
    )
    for trial in ("trl_1", "trl_2"):
        answered = f'{{"run": "{trial}"}} pin'
        assert (await said(compute, model, trial=trial, request=answered)).startswith(trial)
    later = await said(compute, model, trial="trl_1", call=1)
    assert later.startswith("${HOME}\n[<tool_call>]")
    assert '{"deep": {"x": "pin"}, "runs": ["trl_1"]}' in later
    sub: dict[str, Any] = {"agent": "a", "order": 1, "agent_call": 0}
    assert (await said(compute, model, trial="trl_2", **sub)) == "[<think>]trl_2[<|im_end|>]"
    for missed in ({"trial": "trl_3", "call": 1}, {"trial": "trl_4", "request": '{"run": 1}'}):
        with pytest.raises(Conflict) as caught:
            await said(compute, model, **missed)
        assert caught.value.problem.code == ErrorCode.SCENARIO_UNMATCHED


@pytest.mark.parametrize(
    ("cue", "code"),
    [("overloaded", ErrorCode.OVERLOADED), ("drop", ErrorCode.CONNECTION_DROPPED)],
)
async def test_an_error_on_cue_is_raised_once_and_then_the_reply_follows(
    compute: Compute, cue: str, code: ErrorCode
) -> None:
    model = register("errors", replies={"t": ["one", {"error": cue}, "two"]})
    trial: dict[str, Any] = {"trial": f"trl_{cue}"}
    assert (await said(compute, model, **trial)).startswith("one")
    with pytest.raises(Unavailable) as caught:
        await said(compute, model, **trial, call=1)
    problem = caught.value.problem
    assert problem.code == code and problem.object is not None
    assert (problem.object.type, problem.object.pointer) == ("scenario", f"/error/{cue}")
    assert (await said(compute, model, **trial, call=1)).startswith("two")


@pytest.mark.parametrize(
    "reply",
    [
        {"text": "a", "raw": "b"},
        {"text": "a", "error": "drop"},
        {"when": {"regex": "("}},
        {"capture": {"a": "("}},
        {"text": "${captured.unknown}"},
        {"x": 1},
    ],
)
def test_a_reply_that_means_two_things_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        register("bad", replies={"t": [reply]})


def test_every_format_says_the_stop_tokens_of_its_tokenizer(model_cache: object) -> None:
    for name, known in models.FORMATS.items():
        if name == "qwen3.5":
            continue  # takes long to load; its prompts are checked with the families
        codec = load_codec(carried_tokenizer(known.tokenizer))
        family = family_named(known.family, codec, model=name)
        assert known.stop_tokens == tuple(codec.mark(stop) for stop in family.stops)


async def test_a_reply_goes_on_where_its_prompt_has_begun_it(compute: Compute) -> None:
    """Behind closed thinking without thinking; behind the beginning of its call with the rest."""
    call = {"name": "Bash", "input": {"command": "ls"}}
    reply = {"thinking": "hm", "text": "I look.", "calls": [call]}
    model = register("begun", replies={"t": [reply]})
    whole = '[<tool_call>]\n{"name": "Bash", "arguments": {"command": "ls"}}\n[</tool_call>]'
    end = "[<|im_end|>]"
    assert await said(compute, model, begun="") == f"I look.\n{whole}{end}"
    begun = '<tool_call>\n{"name": "Bash", "arguments":'
    rest = ' {"command": "ls"}}\n[</tool_call>]'
    assert await said(compute, model, begun=begun) == f"{rest}{end}"
    assert await said(compute, model, begun='<tool_call>\n{"name":') == (
        f' "Bash", "arguments":{rest}{end}'
    )
    other = begun.replace("Bash", "Read")
    assert await said(compute, model, begun=other) == f"{whole}{end}"
