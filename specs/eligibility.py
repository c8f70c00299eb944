"""What a call's own record says about learning from it; the trial's verdict comes on top.

Delivered, published and eligible are three facts of a call, none of which follows from another:
an answer may be published and never have arrived, or have arrived and be unfit to learn from.
"""

import math
from enum import StrEnum

from specs.interaction import CallState, Interaction


class Unfit(StrEnum):
    """Why nothing is learnt from a call; in the order of the checks."""

    LOST = "lost"
    NO_TOKENS = "no_tokens"
    EMPTY_REPLY = "empty_reply"
    """The harness threw it away and asked again."""
    NOT_DELIVERED = "not_delivered"
    """It reached nobody: it is kept, and the reward says nothing about it."""
    NOT_SAMPLED = "not_sampled"
    SAMPLING_ALTERED = "sampling_altered"
    """Temperature or top_p other than 1, or a top_k."""
    LOGPROBS_MISSING = "logprobs_missing"
    LOGPROBS_MISALIGNED = "logprobs_misaligned"
    LOGPROBS_NOT_FINITE = "logprobs_not_finite"


def unfit(call: Interaction, *, extended: bool) -> Unfit | None:
    """Why a call cannot be learnt from by importance ratios, or None.

    `extended`: another call goes on from it, so its answer had arrived.
    """
    if call.state is CallState.LOST:
        return Unfit.LOST
    if not call.output:
        return Unfit.NO_TOKENS
    if not extended and not call.acted_upon:
        return Unfit.EMPTY_REPLY if call.replaced else Unfit.NOT_DELIVERED
    return drawn_unfit(call) or logprobs_unfit(call)


def drawn_unfit(call: Interaction) -> Unfit | None:
    """Whether the tokens were not drawn from the sampler's own distribution."""
    used = call.intent.sampling
    if call.answer is None or call.answer.provenance != "sampled":
        return Unfit.NOT_SAMPLED
    if used.temperature != 1.0 or used.top_p != 1.0 or used.top_k > 0:
        return Unfit.SAMPLING_ALTERED
    return None


def logprobs_unfit(call: Interaction) -> Unfit | None:
    """Whether the log-probs do not go with the tokens."""
    if call.logprobs is None:
        return Unfit.LOGPROBS_MISSING
    if len(call.logprobs) != len(call.output):
        return Unfit.LOGPROBS_MISALIGNED
    return None if all(map(math.isfinite, call.logprobs)) else Unfit.LOGPROBS_NOT_FINITE
