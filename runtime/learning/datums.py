"""Packed sequences become the arrays that a loss reads, and a digest over those arrays.

The weight of a token is decided here and nowhere else:

* policy losses, at generated tokens: (advantage of the trial · credit of the call + token term)
  / divisor. The divisor is a planned constant or the group's own (design: normalisers), so a
  group can be computed before the rest of its batch. However many datums a trial has, its
  reward is not counted again: each generated token has the trial's one advantage, once.
* cross-entropy: 1 / action tokens of the batch, at generated tokens.

Everything else has weight zero (invariant 6).
"""

import hashlib

import numpy as np

from runtime.compute.protocol import Datum, FloatArray
from runtime.learning.packing import Packed
from specs.errors import Internal


def importance_datum(packed: Packed, weight: float, terms: FloatArray | None = None) -> Datum:
    """`logprobs` and `advantages` for the policy losses.

    `weight` is the trial's advantage per token, divided; `terms` [n] are added at generated tokens.
    """
    if packed.logprobs is None:
        raise Internal(
            f"Interactions {packed.interactions} have no log-probs, and were found eligible.",
            next="Report this: eligibility must have excluded the trial.",
        )
    values = np.float32(weight) * packed.credit
    if terms is not None:
        values = values + terms
    advantages = np.where(packed.generated, values, np.float32(0.0))
    return Datum(
        tokens=packed.tokens,
        targets=packed.targets,
        inputs={"logprobs": packed.logprobs, "advantages": advantages},
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
