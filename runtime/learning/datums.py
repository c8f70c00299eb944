"""Packed sequences become the arrays that a loss reads, and a digest over those arrays.

The weight of a token is decided here and nowhere else:

* importance sampling: advantage of the trial / divisor, at generated tokens. The divisor is a
  planned constant or the trial's own (design: normalisers), so a group can be computed before
  the rest of its batch. However many datums a trial has, its reward is not counted again:
  each generated token has the trial's one advantage, once.
* cross-entropy: 1 / action tokens of the batch, at generated tokens.

Everything else has weight zero (invariant 6).
"""

import hashlib
from typing import Literal

import numpy as np

from runtime.compute.protocol import Datum, FloatArray
from runtime.learning.packing import Packed
from specs.errors import Internal


def token_weight(
    advantage: float,
    *,
    per_token: Literal["planned", "length"],
    planned_slots: int,
    trial_tokens: int,
) -> float:
    """Advantage of each generated token of a trial that has `trial_tokens` of them."""
    divisor = planned_slots * (trial_tokens if per_token == "length" else 1)
    return advantage / divisor


def importance_datum(packed: Packed, weight: float) -> Datum:
    """`logprobs` and `advantages` for the importance-sampling loss."""
    if packed.logprobs is None:
        raise Internal(
            f"Interactions {packed.interactions} have no log-probs, and were found eligible.",
            next="Report this: eligibility must have excluded the trial.",
        )
    return Datum(
        tokens=packed.tokens,
        targets=packed.targets,
        inputs={"logprobs": packed.logprobs, "advantages": _at_generated(packed, weight)},
    )


def cross_entropy_datum(packed: Packed, weight: float) -> Datum:
    """`weights` for the cross-entropy loss."""
    return Datum(
        tokens=packed.tokens,
        targets=packed.targets,
        inputs={"weights": _at_generated(packed, weight)},
    )


def datum_digest(datum: Datum) -> str:
    """SHA-256 over names, lengths and little-endian bytes of every array."""
    hasher = hashlib.sha256(b"practicum.datum/v1\n")
    arrays = [("tokens", datum.tokens), ("targets", datum.targets), *sorted(datum.inputs.items())]
    for name, data in arrays:
        hasher.update(f"{name} {data.dtype.name} {len(data)}\n".encode())
        hasher.update(np.ascontiguousarray(data, data.dtype.newbyteorder("<")))
    return f"sha256:{hasher.hexdigest()}"


def _at_generated(packed: Packed, weight: float) -> FloatArray:
    return np.where(packed.generated, np.float32(weight), np.float32(0.0))
