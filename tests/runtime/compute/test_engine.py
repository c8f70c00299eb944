"""Continuous batching and the prefix cache change the work, never the result."""

from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future
from typing import Any, cast

import numpy as np
import pytest
import torch

from runtime.compute import models
from runtime.compute.engine import PREFILL_TOKENS, Engine, Sampler
from runtime.compute.llama import Llama
from runtime.compute.lora import Layout, Pair
from runtime.compute.protocol import IntArray, Sampled, SamplerSpec
from runtime.compute.scoring import sequence_logprobs
from specs.errors import InvalidInput
from tests.runtime.compute.samples import TINY, ids, params, prompt

PREFIX_BYTES = 64 << 20


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    """`tiny` with an adapter that is not zero."""
    model = Llama(models.model_path(TINY))
    layout = Layout(model.fused(), 8)
    generator = torch.Generator().manual_seed(5)
    flat = layout.initial(0) + torch.randn(layout.size, generator=generator) * 0.02
    with torch.no_grad():
        return Sampler(SamplerSpec(TINY, "adapter"), model, layout.pairs(flat, 4.0))


@pytest.fixture
def engine() -> Generator[Engine]:
    engine = Engine(threads=1, max_batch=8, prefix_bytes=PREFIX_BYTES)
    yield engine
    engine.close()


def one_at_a_time(
    sampler: Sampler, prompts: list[IntArray], *, prefix_bytes: int = 0
) -> list[Sampled]:
    engine = Engine(threads=1, max_batch=1, prefix_bytes=prefix_bytes)
    try:
        return [
            engine.submit(sampler, tokens, params(20 + 3 * i, seed=i), 1).result(60)[0]
            for i, tokens in enumerate(prompts)
        ]
    finally:
        engine.close()


def assert_same(left: list[Sampled], right: list[Sampled]) -> None:
    for a, b in zip(left, right, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        assert a.logprobs is not None
        assert b.logprobs is not None
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


def test_a_batch_of_ragged_sequences_equals_one_at_a_time(engine: Engine, sampler: Sampler) -> None:
    """Different lengths, more sequences than places, joining and leaving on the way."""
    prompts = [prompt(n, seed=n) for n in (1, 2, 7, 30, 31, 90, 200, 3, 64, 5, 11, 1)]
    futures = [
        engine.submit(sampler, tokens, params(20 + 3 * i, seed=i), 1)
        for i, tokens in enumerate(prompts)
    ]
    batched = [future.result(60)[0] for future in futures]
    assert_same(batched, one_at_a_time(sampler, prompts))
    assert engine.decode_steps < engine.decoded_tokens / 3


def test_memory_that_was_never_written_is_never_read(
    engine: Engine, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uninitialised memory holds NaN here; every result must stay finite."""
    empty = cast(Callable[..., torch.Tensor], torch.empty)

    def poisoned(*args: Any, **options: Any) -> torch.Tensor:
        made = empty(*args, **options)
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)
    prompts = [prompt(n, seed=n) for n in (1, 2, 150, 40)]
    futures = [engine.submit(sampler, tokens, params(9), 2) for tokens in prompts]
    for future in futures:
        for sampled in future.result(60):
            assert sampled.logprobs is not None
            assert np.isfinite(sampled.logprobs).all()


def test_returned_logprobs_are_those_of_a_whole_pass(engine: Engine, sampler: Sampler) -> None:
    prompts = [prompt(n, seed=n) for n in (4, 50, 51, 700)]
    futures = [engine.submit(sampler, tokens, params(15, seed=1), 2) for tokens in prompts]
    for tokens, future in zip(prompts, futures, strict=True):
        for sampled in future.result(60):
            full = np.concatenate((tokens, sampled.tokens))
            whole = sequence_logprobs(sampler.model, sampler.lora, full)[len(tokens) :]
            assert sampled.logprobs is not None
            assert np.abs(whole - sampled.logprobs).max() <= 1e-4


def test_concurrent_trials_compute_a_common_prompt_once(engine: Engine, sampler: Sampler) -> None:
    common = prompt(300)
    futures = [engine.submit(sampler, common, params(5, seed=i), 1) for i in range(8)]
    together = [future.result(60)[0] for future in futures]
    assert engine.prefill_tokens == len(common) - 1
    later = engine.submit(sampler, common, params(5, seed=0), 1).result(60)
    assert engine.prefill_tokens == len(common) - 1
    assert_same([together[0]], later)


def test_tasks_with_a_common_beginning_compute_it_once(engine: Engine, sampler: Sampler) -> None:
    system = prompt(200)
    prompts = [np.concatenate((system, prompt(20, seed=n))) for n in range(6)]
    futures = [engine.submit(sampler, tokens, params(4), 1) for tokens in prompts]
    for future in futures:
        future.result(60)
    assert engine.prefill_tokens <= 200 + 6 * 20


def test_a_later_turn_continues_the_earlier_one(engine: Engine, sampler: Sampler) -> None:
    first = prompt(100)
    answer = engine.submit(sampler, first, params(30), 1).result(60)[0]
    second = np.concatenate((first, answer.tokens, prompt(10, seed=9)))
    before = engine.prefill_tokens
    continued = engine.submit(sampler, second, params(10), 1).result(60)
    # The answer's last token was never fed, and the prompt's last one is fed by decoding.
    assert engine.prefill_tokens - before == 10
    alone = Engine(threads=1, max_batch=1, prefix_bytes=0)
    assert_same(continued, alone.submit(sampler, second, params(10), 1).result(60))
    alone.close()


def test_the_prefix_cache_changes_no_result(sampler: Sampler) -> None:
    common = prompt(60)
    prompts = [np.concatenate((common, prompt(n, seed=n))) for n in (1, 9, 30)] + [common, common]
    with_cache = one_at_a_time(sampler, prompts, prefix_bytes=PREFIX_BYTES)
    assert_same(with_cache, one_at_a_time(sampler, prompts, prefix_bytes=0))


def test_the_prefix_cache_stays_within_its_bytes(sampler: Sampler) -> None:
    engine = Engine(threads=1, max_batch=8, prefix_bytes=300_000)
    for n in range(12):
        engine.submit(sampler, prompt(60, seed=n), params(3), 1).result(60)
    assert 0 < engine.cache.bytes <= 300_000
    engine.close()


def test_a_cancelled_request_leaves_the_batch_and_the_others_go_on(
    engine: Engine, sampler: Sampler
) -> None:
    endless = engine.submit(sampler, prompt(10), params(4000), 4)
    other = engine.submit(sampler, prompt(12), params(40, seed=3), 1)
    assert endless.cancel()
    assert len(other.result(60)[0].tokens) == 40
    # All eight places are free again: eight sequences are decoded in one batch.
    steps = engine.decode_steps
    engine.submit(sampler, prompt(10), params(5), 8).result(60)
    assert engine.decode_steps - steps <= 6


def test_a_failing_sampler_fails_its_own_requests_alone(engine: Engine, sampler: Sampler) -> None:
    broken = Sampler(SamplerSpec(TINY, "broken"), sampler.model, [])
    bad: Future[list[Sampled]] = engine.submit(broken, prompt(10), params(5), 2)
    good = engine.submit(sampler, prompt(10), params(5), 1)
    with pytest.raises(IndexError):
        bad.result(60)
    assert len(good.result(60)[0].tokens) == 5


def test_a_distribution_that_is_not_finite_fails_the_call(engine: Engine, sampler: Sampler) -> None:
    """Never a token drawn from NaN (invariant 1: what was sampled is what is recorded)."""
    assert sampler.lora is not None
    broken = [Pair(pair.a * float("nan"), pair.b_t) for pair in sampler.lora]
    lost = Sampler(SamplerSpec(TINY, "nan"), sampler.model, broken)
    with pytest.raises(InvalidInput, match="no finite distribution"):
        engine.submit(lost, prompt(10), params(5), 3).result(60)
    assert len(engine.submit(sampler, prompt(10), params(5), 1).result(60)) == 1


@pytest.mark.parametrize("shared", [20, PREFILL_TOKENS + 20])
def test_a_prompt_that_is_not_finite_spoils_no_prompt_that_begins_alike(
    shared: int, engine: Engine
) -> None:
    model = Llama(models.model_path(TINY))
    model.embedding = model.embedding.clone()
    model.embedding[1] = float("nan")
    lost = Sampler(SamplerSpec(TINY, "lost"), model, None)
    common = prompt(shared)
    with pytest.raises(InvalidInput, match="no finite distribution"):
        engine.submit(lost, np.concatenate((common, ids(1, 5))), params(1), 1).result(60)
    assert len(engine.submit(lost, np.concatenate((common, ids(5))), params(1), 1).result(60)) == 1


def test_closing_cancels_what_is_unfinished(sampler: Sampler) -> None:
    engine = Engine(threads=1, max_batch=8, prefix_bytes=0)
    future = engine.submit(sampler, prompt(10), params(4000), 1)
    engine.close()
    with pytest.raises(CancelledError):
        future.result(60)
