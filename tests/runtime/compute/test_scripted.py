"""A scripted model answers what its scenario says, in real tokens, and nothing else."""

import json
from typing import Any, cast

import numpy as np
import pytest
from tokenizers import Tokenizer

from runtime.compute import models
from runtime.compute.chunks import fold
from runtime.compute.protocol import Compute, SampleContext, SamplerSpec, TrainerInit
from specs.errors import Conflict, ErrorCode, InvalidInput
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
