"""What a training plan says about its objective: loss, advantages, credit, and self-checks.

Every normaliser is a planned constant or a value of the group itself, so that a group can be
submitted before its batch is complete (design: normalisers).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from specs.base import Contract

PolicyLoss = Literal["importance_sampling", "ppo", "cispo"]


class Clip(Contract):
    """Bounds of the importance ratio, as ratios: `ppo` cuts the gain outside of them, `cispo` the
    weight of a token."""

    low: float = Field(ge=0, le=1)
    high: float = Field(ge=1, le=1e6)


CLIP_DEFAULTS: Mapping[str, Clip] = MappingProxyType(
    {"ppo": Clip(low=0.8, high=1.2), "cispo": Clip(low=0.0, high=4.0)}
)
"""By loss, as in Tinker; a loss that is not here does not clip."""


class Advantages(Contract):
    """How rewards of a group become advantages.

    Centred on the group's mean; `std` also divides by the group's population standard
    deviation (GRPO, arXiv:2402.03300). Centring alone is the default, as in Dr. GRPO
    (arXiv:2503.20783): dividing by the spread weighs tasks that are nearly always or nearly
    never solved more than the others.
    """

    normalise: Literal["none", "std"] = "none"
    per_token: Literal["planned", "length", "group"] = "planned"
    """Divisor of each token's advantage: `planned` = the batch's planned slots, so that every
    token weighs the same (Dr. GRPO); `length` = these times the trial's own generated tokens, so
    that long and short trials weigh the same (GRPO); `group` = the batch's planned groups times
    the generated tokens of the group's eligible trials (the token-level loss of DAPO,
    arXiv:2503.14476, within a group)."""


class Credit(Contract):
    """Which calls of a trial its reward moves, and how much.

    A delegated agent is one that its harness names; its calls are chains of their own, and its
    answer is context in its parent. A helper is a call that offers the model no tool of the
    harness, beside other calls of the same agent that do: titles, web searches, summaries made
    apart. Calls left out are context where others extend them, and nothing is learnt from them.
    """

    discount: float = Field(default=1.0, gt=0, le=1)
    """A call's weight is this to the power of the number of later calls of its agent: the return
    of a reward that comes at the end, one step per call (Sutton and Barto, §3.3)."""
    delegated: Literal["train", "exclude"] = "train"
    helpers: Literal["train", "exclude"] = "exclude"


class KlPenalty(Contract):
    """A penalty, inside the advantages, for moving away from a reference model.

    Each generated token's advantage gets coefficient · (mean − (logp_sampled − logp_reference)),
    with the mean over all generated tokens of the group's eligible trials, then the divisor of
    `advantages.per_token`. It needs no difference in reward. As the Tinker cookbook's
    `incorporate_kl_penalty`, whose mean is over the batch; see also arXiv:2009.01325.
    """

    coefficient: float = Field(gt=0, le=1e3)
    reference: str = Field(default="base", min_length=1, max_length=128)
    """`base`, the model that the policy's adapter lies on; or the id of a checkpoint of it."""
    discount: float = Field(default=0.0, ge=0, le=1)
    """Above 0, each token gets the discounted sum of the terms from it to the end of its
    sequence, so that it answers for what it leads to."""


class Eligibility(Contract):
    """Which trials may learn; what is excluded is recorded with its reason.

    Trials without a valid reward or without complete evidence never learn, whatever is said here.
    """

    overlong: Literal["exclude", "keep"] = "keep"
    """A trial with an answer cut at `max_tokens` (overlong filtering, arXiv:2503.14476)."""
    missing_output: Literal["exclude", "keep"] = "exclude"
    """A trial without a required output."""
    parse_error: Literal["exclude", "keep"] = "keep"
    """A trial with an answer that could not be read whole, such as a malformed tool call."""
    agent_failed: Literal["exclude", "keep"] = "keep"
    """A trial whose harness exited with an error."""
    agent_timeout: Literal["exclude", "keep"] = "keep"
    """A trial whose harness ran out of time."""


class Checks(Contract):
    """What must hold of an update before its step is enqueued; else the run stops.

    Both compare the sampler's log-probs of the generated tokens with the trainer's; before a
    step they are the same policy, so what differs is error of the backend or of the record.
    """

    max_logprob_difference: float | None = Field(default=None, gt=0)
    """Largest difference of one token. Unset: that of the backend (`LOGPROB_DIFFERENCE`)."""
    max_kl_sample_train: float | None = Field(default=0.1, gt=0)
    """Mean of half the squared difference, an estimate of KL(sampler‖trainer); null = no limit."""


NO_CHECKS = Checks(max_kl_sample_train=None)
"""Of learning from tokens that another policy sampled."""

LOGPROB_DIFFERENCE: Mapping[str, float] = MappingProxyType({"torch": 0.01})
"""By backend: the largest difference that is still rounding. Others promise none: a server that
samples in another precision than it trains differs much more in single tokens."""
