"""Choosing the next token of each row of a batch.

Every sequence has its own random stream and takes one uniform number per token, which is
inverted through the row's distribution. So a seeded sequence does not depend on what else is
in the batch. Log-probabilities are of the model's own distribution: untempered, unfiltered.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from runtime.compute.protocol import SamplingParams
from specs.errors import ErrorObject, InvalidInput


def random_stream(seed: int | None, sample: int) -> np.random.Generator:
    """The stream of sample number `sample` of a call; without a seed, of fresh entropy."""
    if seed is None:
        return np.random.default_rng()
    return np.random.default_rng([seed % (1 << 64), sample])


def check_params(params: SamplingParams, vocabulary: int) -> None:
    """Refuse parameters that have no meaning.

    Raises:
        InvalidInput: naming the first bad one.
    """
    problems = (
        ("max_tokens", params.max_tokens < 1),
        ("temperature", not 0 <= params.temperature < float("inf")),
        ("top_p", not 0 < params.top_p <= 1),
        ("top_k", params.top_k == 0 or params.top_k < -1),
        ("stop", any(not 0 <= token < vocabulary for token in params.stop)),
    )
    for name, bad in problems:
        if bad:
            raise InvalidInput(
                f"Sampling parameter {name} cannot be {getattr(params, name)!r}.",
                object=ErrorObject(type="sampling", pointer=f"/{name}"),
                next=f"Correct {name}.",
            )


def choose(
    logits: torch.Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Next token and its log-probability for each row of `logits` [B, V]."""
    normalizer = logits.logsumexp(-1, keepdim=True)
    chosen = torch.empty(len(params), dtype=torch.int64)
    plain = [i for i, p in enumerate(params) if p.temperature == 1 and not _filters(p)]
    if len(plain) == len(params):
        probabilities = (logits - normalizer).exp_()
        chosen = _invert(probabilities, torch.tensor(uniforms, dtype=torch.float64))
    else:
        for index, (row, param) in enumerate(zip(logits, params, strict=True)):
            chosen[index] = _choose_one(row, param, uniforms[index])
    logprobs = (logits.gather(1, chosen[:, None]) - normalizer)[:, 0]
    return cast(list[int], chosen.tolist()), cast(list[float], logprobs.tolist())


def _filters(params: SamplingParams) -> bool:
    return params.top_p < 1 or params.top_k > 0


def _choose_one(logits: torch.Tensor, params: SamplingParams, uniform: float) -> int:
    if params.temperature == 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits / params.temperature, -1)
    target = torch.tensor([uniform], dtype=torch.float64)
    if not _filters(params):
        return int(_invert(probabilities[None], target))
    ordered, ids = probabilities.sort(descending=True, stable=True)
    if params.top_k > 0:
        ordered[params.top_k :] = 0
    if params.top_p < 1:
        # Keep the smallest set of most likely tokens whose mass reaches top_p.
        before = ordered.cumsum(-1) - ordered
        ordered[before >= params.top_p * ordered.sum()] = 0
    return int(ids[_invert(ordered[None], target)])


def _invert(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Index per row where the cumulated probability passes the uniform number.

    Cumulated in float64, so that even the rarest token keeps its probability; a token of
    probability zero is never chosen.
    """
    cumulated = probabilities.cumsum(-1, dtype=torch.float64)
    targets = uniforms[:, None] * cumulated[:, -1:]
    return torch.searchsorted(cumulated, targets, right=True)[:, 0].clamp_(
        max=probabilities.shape[-1] - 1
    )
