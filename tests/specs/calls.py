"""Model calls for tests, as they are read back from a segment."""

from array import array
from typing import Any

from specs.ids import Prefix, new_id
from specs.interaction import Answer, BranchReason, CallState, Intent, Interaction, SamplingUsed
from tests.specs.contracts import DIGEST, TRIAL

AT = "2026-01-01T00:00:00Z"
PLAIN: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": 8, "stop": ()}


def intent(**values: Any) -> Intent:
    sampling = SamplingUsed.model_validate(PLAIN | values.pop("sampling", {}))
    known: dict[str, Any] = {
        "interaction": new_id(Prefix.INTERACTION),
        "trial": TRIAL,
        "fence": 1,
        "sequence": 0,
        "at": AT,
        "parent": None,
        "branch": BranchReason.ROOT,
        "prompt_tokens": 1,
        "prompt_sha256": DIGEST,
        "sampler": new_id(Prefix.SAMPLER),
        "request_digest": DIGEST,
    }
    return Intent.model_validate(known | {"sampling": sampling} | values)


def answer(of: Intent, **values: Any) -> Answer:
    known: dict[str, Any] = {
        "interaction": of.interaction,
        "at": AT,
        "stop_reason": "stop",
        "provenance": "sampled",
        "content": [],
    }
    return Answer.model_validate(known | values)


def call(
    *,
    branch: BranchReason | None = BranchReason.ROOT,
    sampling: dict[str, Any] | None = None,
    provenance: str | None = "sampled",
    **values: Any,
) -> Interaction:
    """An answered call of two tokens; without a provenance there is no answer."""
    begun = intent(branch=branch, sampling=sampling or {})
    known: dict[str, Any] = {
        "state": CallState.ANSWERED,
        "answer": None if provenance is None else answer(begun, provenance=provenance),
        "prompt": array("i", [1]),
        "output": array("i", [5, 2]),
        "logprobs": array("f", [-0.5, -0.25]),
        "request": b"{}",
    }
    return Interaction(intent=begun, **(known | values))
