"""Log-probabilities of targets, and their gradient, with bounded memory.

The vocabulary is large and the hidden state small, so logits are never kept: they are computed
chunk by chunk and, where a gradient is wanted, the derivative of a row's log-normaliser
(softmax · head, of hidden size) is kept in their place. Rows without a gradient skip
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


class _TargetLogprobs(torch.autograd.Function):
    """log p(target) for pairs of a row of `hidden` and a target.

    The target's logit is taken from the same product as the normaliser, so that rounding
    cancels where the target is likely, and equals what the sampler computes.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, head: Linear, rows: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        result = hidden.new_empty(len(rows))
        derivatives: list[torch.Tensor] = []
        start = 0
        for chunk in split(hidden, CHUNK_ROWS):
            logits = head(chunk)
            normalizer = logits.logsumexp(-1)
            inside = ((rows >= start) & (rows < start + len(chunk))).nonzero()[:, 0]
            local = rows[inside] - start
            result[inside] = logits[local, targets[inside]] - normalizer[local]
            if ctx.needs_input_grad[0]:
                logits.sub_(normalizer[:, None]).exp_()
                derivatives.append(logits @ head.weight)
            start += len(chunk)
        if derivatives:
            ctx.head = head
            ctx.save_for_backward(torch.cat(derivatives), rows, targets)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        derivative, rows, targets = ctx.saved_tensors
        (grad,) = grads
        weights = grad.new_zeros(len(derivative)).index_add_(0, rows, grad)
        result = weights[:, None] * -derivative
        result.index_add_(0, rows, grad[:, None] * ctx.head.weight[targets])
        return result, None, None, None


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
    """Log-probability of `targets` at `rows` of `hidden`; a shared row is computed once."""
    distinct, inverse = unique(rows)
    return cast(torch.Tensor, _TargetLogprobs.apply(hidden[distinct], model.head, inverse, targets))


def sequence_logprobs(model: Llama, lora: Lora | None, tokens: IntArray) -> FloatArray:
    """Log-probability of each token given those before it; the first is NaN."""
    result = np.full(len(tokens), np.nan, np.float32)
    if len(tokens) > 1:
        (packed,) = pack([tokens[:-1]], budget=len(tokens))
        none = np.zeros(len(tokens) - 1, np.bool_)
        with torch.inference_mode():
            result[1:] = pack_logprobs(model, lora, packed, [tokens[1:]], [none]).numpy()
    return result
