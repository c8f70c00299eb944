"""Log-probabilities of targets, and their gradient, with bounded memory.

The vocabulary is large and the hidden state small, so logits are never kept: a row's
log-normaliser is computed chunk by chunk and, where a gradient is wanted, its derivative
(softmax · head, of hidden size) is kept in place of the logits. Rows without a gradient skip
that work.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from runtime.compute.linear import Linear
from runtime.compute.llama import Llama
from runtime.compute.lora import Lora
from runtime.compute.packing import Pack, PackAttention, pack
from runtime.compute.protocol import FloatArray, IntArray
from runtime.compute.tensors import split, unique

CHUNK_ROWS = 256
"""Rows of logits in memory at once: 50 MB for a vocabulary of 49152."""

RECOMPUTE_TOKENS = 1024
"""Longer packs recompute layers in the backward pass, to bound memory."""


class _LogNormalizer(torch.autograd.Function):
    """log Σ exp(h · head) per row of h, saving the derivative instead of the logits."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, head: Linear) -> torch.Tensor:
        normalizers: list[torch.Tensor] = []
        derivatives: list[torch.Tensor] = []
        for chunk in split(hidden, CHUNK_ROWS):
            logits = head(chunk)
            normalizer = logits.logsumexp(-1)
            normalizers.append(normalizer)
            if ctx.needs_input_grad[0]:
                logits.sub_(normalizer[:, None]).exp_()
                derivatives.append(logits @ head.weight)
        if derivatives:
            ctx.save_for_backward(torch.cat(derivatives))
        return torch.cat(normalizers)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return grads[0][:, None] * derivative, None


def log_normalizer(hidden: torch.Tensor, head: Linear) -> torch.Tensor:
    """log Σ exp(h · head) per row [N]; differentiable in `hidden`."""
    return cast(torch.Tensor, _LogNormalizer.apply(hidden, head))


def pack_logprobs(
    model: Llama,
    lora: Lora | None,
    packed: Pack,
    targets: Sequence[IntArray],
    active: Sequence[np.ndarray[Any, np.dtype[np.bool_]]],
) -> torch.Tensor:
    """Log-probabilities of the members' targets, flat in member order.

    Only positions marked in `active` carry a gradient; the others have the same value.
    """
    hidden = model.forward(
        packed.tokens,
        packed.positions,
        PackAttention(packed.segments),
        lora,
        recompute=torch.is_grad_enabled() and len(packed.tokens) > RECOMPUTE_TOKENS,
    )
    rows = torch.from_numpy(np.concatenate(packed.rows))
    target = torch.from_numpy(np.concatenate(targets).astype(np.int64))
    wanted = torch.from_numpy(np.concatenate(active))
    result = hidden.new_zeros(len(rows))
    for mask, grad in ((~wanted, False), (wanted, True)):
        if bool(mask.any()):
            with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
                values = _target_logprobs(model, hidden, rows[mask], target[mask])
            result = result.masked_scatter(mask, values)
    return result


def _target_logprobs(
    model: Llama, hidden: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Log-probability of `targets` at `rows` of `hidden`; a shared row is normalised once."""
    distinct, inverse = unique(rows)
    states = hidden[distinct]
    normalizer = log_normalizer(states, model.head)
    chosen = (states[inverse] * model.head.weight[targets]).sum(-1)
    return chosen - normalizer[inverse]


def sequence_logprobs(model: Llama, lora: Lora | None, tokens: IntArray) -> FloatArray:
    """Log-probability of each token given those before it; the first is NaN."""
    result = np.full(len(tokens), np.nan, np.float32)
    if len(tokens) > 1:
        (packed,) = pack([tokens[:-1]], budget=len(tokens))
        none = np.zeros(len(tokens) - 1, np.bool_)
        with torch.inference_mode():
            result[1:] = pack_logprobs(model, lora, packed, [tokens[1:]], [none]).numpy()
    return result
