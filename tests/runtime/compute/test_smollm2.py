"""The real model: it makes sense, and sampler and trainer agree on it."""

from pathlib import Path
from typing import Any, cast

import anyio
import numpy as np
import pytest
from tokenizers import Tokenizer

from runtime.compute.protocol import (
    AdamParams,
    Datum,
    IntArray,
    Loss,
    Sampled,
    SamplerSpec,
    SamplingParams,
    TrainerInit,
)
from runtime.compute.router import LocalCompute
from tests.runtime.compute.samples import policy_datum, target_datum

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(300)]


async def _prompts(
    compute: LocalCompute, model: str, *questions: str
) -> tuple[Any, list[IntArray]]:
    tokenizer = cast(Any, Tokenizer).from_str((await compute.tokenizer(model)).decode())
    texts = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in questions]
    return tokenizer, [np.array(tokenizer.encode(text).ids, np.int32) for text in texts]


async def test_it_answers_a_question(smollm2: str, tmp_path: Path) -> None:
    async with LocalCompute(tmp_path) as compute:
        tokenizer, (prompt,) = await _prompts(compute, smollm2, "What is the capital of France?")
        (answer,) = await compute.sample(
            SamplerSpec(smollm2), prompt, SamplingParams(20, (2,), temperature=0)
        )
        assert answer.stop_reason == "stop"
        assert "Paris" in tokenizer.decode(answer.tokens.tolist())


async def test_sampler_and_trainer_agree_within_1e_4(smollm2: str, tmp_path: Path) -> None:
    """With a trained adapter, ragged prompts and all of them in one batch."""
    async with LocalCompute(tmp_path) as compute:
        _, prompts = await _prompts(
            compute, smollm2, "Hi", "Name a colour.", "List three tools of a carpenter, and why."
        )
        await compute.create_trainer("t", TrainerInit(smollm2))
        warm: list[Datum] = [target_datum(prompt) for prompt in prompts[:2]]
        await compute.forward("t", warm, Loss.CROSS_ENTROPY, backward=True)
        await compute.optim_step("t", AdamParams(1e-3))
        sampler = SamplerSpec(smollm2, (await compute.save_adapter("t")).digest)
        sampled: dict[int, Sampled] = {}

        async def one(index: int) -> None:
            params = SamplingParams(16, (2,), seed=index)
            (sampled[index],) = await compute.sample(sampler, prompts[index], params)

        async with anyio.create_task_group() as group:
            for index in range(len(prompts)):
                group.start_soon(one, index)
        data = [policy_datum(prompts[index], sampled[index], 1.0) for index in sampled]
        result = await compute.forward("t", data, Loss.IMPORTANCE_SAMPLING, backward=False)
        for datum, logprobs in zip(data, result.logprobs, strict=True):
            mask = datum.inputs["advantages"] != 0
            assert np.abs(logprobs - datum.inputs["logprobs"])[mask].max() <= 1e-4
