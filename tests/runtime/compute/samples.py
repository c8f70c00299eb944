"""Prompts and datums for the compute tests."""

from collections.abc import Sequence

import numpy as np

from runtime.compute.protocol import (
    AdamParams,
    Compute,
    Datum,
    FloatArray,
    IntArray,
    Loss,
    Sampled,
    SamplerSpec,
    SamplingParams,
    TrainerInit,
)
from specs.model import LoraSpec

TINY = "tiny"
BASE = SamplerSpec(TINY)


def ids(*tokens: int) -> IntArray:
    return np.array(tokens, np.int32)


def prompt(length: int, seed: int = 0) -> IntArray:
    return np.random.RandomState(seed).randint(3, 259, length).astype(np.int32)


def params(
    max_tokens: int = 12, *, stop: tuple[int, ...] = (), seed: int | None = 7
) -> SamplingParams:
    return SamplingParams(max_tokens, stop, seed=seed)


def floats(values: Sequence[float]) -> FloatArray:
    return np.array(values, np.float32)


def policy_datum(start: IntArray, sampled: Sampled, advantage: float) -> Datum:
    """A sampled sequence as an importance-sampling datum."""
    full = np.concatenate((start, sampled.tokens))
    size, generated = len(full) - 1, len(sampled.tokens)
    advantages, logprobs = np.zeros(size, np.float32), np.zeros(size, np.float32)
    advantages[-generated:] = advantage
    assert sampled.logprobs is not None
    logprobs[-generated:] = sampled.logprobs
    return Datum(full[:-1], full[1:], {"logprobs": logprobs, "advantages": advantages})


def target_datum(tokens: IntArray, weights: Sequence[float] | None = None) -> Datum:
    """A supervised datum; every target weighs 1 unless told."""
    size = len(tokens) - 1
    values = np.ones(size, np.float32) if weights is None else floats(weights)
    return Datum(tokens[:-1], tokens[1:], {"weights": values})


async def trained_adapter(
    compute: Compute, trainer: str = "warmup", *, seed: int = 3, model: str = TINY
) -> SamplerSpec:
    """A sampler with an adapter that clearly differs from its base."""
    await compute.create_trainer(trainer, TrainerInit(model, LoraSpec(seed=seed)))
    data = [target_datum(prompt(40, seed))]
    for _ in range(3):
        await compute.forward(trainer, data, Loss.CROSS_ENTROPY, backward=True)
        await compute.optim_step(trainer, AdamParams(1e-2))
    return SamplerSpec(model, (await compute.save_adapter(trainer)).digest)
