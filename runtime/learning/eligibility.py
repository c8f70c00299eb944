"""Which counted trials may learn, settled before any advantage exists (invariant 5).

Pure: a trial, its evidence and the plan's rules give a verdict; nothing is guessed. The first
reason that applies is recorded. A valid reward of zero is eligible, a missing reward never is
(invariant 4). Reinforcement learning needs tokens that the batch's own sampler drew from its
untempered distribution; supervised learning takes recorded tokens of any provenance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from runtime.learning.packing import acted_upon
from specs.eligibility import drawn_unfit, logprobs_unfit
from specs.interaction import CallState, Interaction, Seal
from specs.objective import Eligibility
from specs.records import Trial, TrialOutcome, TrialState

MAX_REWARD = 2.0**52
"""Two rewards of larger magnitude can have an advantage that no record holds."""


class Reason(StrEnum):
    """Why a counted trial does not learn; a closed set, listed in the order of the checks."""

    NOT_SETTLED = "not_settled"
    CANCELLED = "cancelled"
    LAUNCH_FAILED = "launch_failed"
    INFRASTRUCTURE = "infrastructure"
    NO_REWARD = "no_reward"
    """The detail is the assessment's own reason (`specs.assessment.NoReward`)."""
    REWARD_OUT_OF_RANGE = "reward_out_of_range"
    EVIDENCE_INCOMPLETE = "evidence_incomplete"
    """No seal, or a call is `lost` (invariant 2)."""
    EVIDENCE_MISMATCH = "evidence_mismatch"
    """The segment is not the one that was sealed for this trial and fence."""
    EVIDENCE_DAMAGED = "evidence_damaged"
    """The stored bytes cannot be trusted; the detail says where."""
    NO_INTERACTIONS = "no_interactions"
    """No generated token that was acted upon."""
    NOT_SAMPLED = "not_sampled"
    SAMPLING_ALTERED = "sampling_altered"
    """Temperature or top_p other than 1, or a top_k."""
    WRONG_SAMPLER = "wrong_sampler"
    LOGPROBS_MISSING = "logprobs_missing"
    LOGPROBS_MISALIGNED = "logprobs_misaligned"
    LOGPROBS_NOT_FINITE = "logprobs_not_finite"
    MISSING_OUTPUT = "missing_output"
    AGENT_FAILED = "agent_failed"
    AGENT_TIMEOUT = "agent_timeout"
    OVERLONG = "overlong"
    PARSE_ERROR = "parse_error"
    NO_CREDIT = "no_credit"
    """The plan's credit leaves out every call that has a token."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Eligible where `reason` is None."""

    reason: Reason | None = None
    detail: str = ""

    @property
    def eligible(self) -> bool:
        return self.reason is None

    @property
    def text(self) -> str | None:
        """The reason as it is recorded, such as `no_reward: verifier_failed`."""
        if self.reason is None:
            return None
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


ELIGIBLE = Verdict()

_NO_WORK = {
    TrialOutcome.CANCELLED: Reason.CANCELLED,
    TrialOutcome.LAUNCH_FAILED: Reason.LAUNCH_FAILED,
    TrialOutcome.INFRASTRUCTURE: Reason.INFRASTRUCTURE,
}


def for_reinforcement(
    trial: Trial, interactions: Sequence[Interaction], *, sampler: str, rules: Eligibility
) -> Verdict:
    """The verdict for importance ratios: all tokens drawn by `sampler`, with log-probs."""
    verdict = for_imitation(trial, interactions)
    if not verdict.eligible:
        return verdict
    for interaction in interactions:
        reason = _ratio_problem(interaction, sampler)
        if reason is not None:
            return Verdict(reason, interaction.intent.interaction)
    return _plan_rules(trial, interactions, rules)


def for_imitation(trial: Trial, interactions: Sequence[Interaction]) -> Verdict:
    """The verdict for cross-entropy on recorded tokens: scored, complete, not empty."""
    settled = trial.settled
    if trial.state is not TrialState.SETTLED or settled is None:
        return Verdict(Reason.NOT_SETTLED)
    if settled.outcome in _NO_WORK:
        return Verdict(_NO_WORK[settled.outcome])
    assessment = trial.assessment
    if assessment is None or assessment.reward is None:
        return Verdict(Reason.NO_REWARD, str(assessment.reason) if assessment else "not_assessed")
    if not math.isfinite(assessment.reward) or abs(assessment.reward) > MAX_REWARD:
        return Verdict(Reason.REWARD_OUT_OF_RANGE)
    return _evidence(trial, settled.seal, interactions)


def _evidence(trial: Trial, seal: Seal | None, interactions: Sequence[Interaction]) -> Verdict:
    if seal is None or not seal.complete:
        return Verdict(Reason.EVIDENCE_INCOMPLETE)
    if (seal.trial, seal.run, seal.fence) != (trial.id, trial.run, trial.fence):
        return Verdict(Reason.EVIDENCE_MISMATCH, "seal")
    if any(call.state is CallState.LOST for call in interactions):
        return Verdict(Reason.EVIDENCE_INCOMPLETE)
    for call in interactions:
        if (call.intent.trial, call.intent.fence) != (trial.id, trial.fence):
            return Verdict(Reason.EVIDENCE_MISMATCH, call.intent.interaction)
    if not acted_upon(interactions):
        return Verdict(Reason.NO_INTERACTIONS)
    return ELIGIBLE


def _ratio_problem(interaction: Interaction, sampler: str) -> Reason | None:
    drawn = drawn_unfit(interaction)
    if drawn is not None:
        return Reason(drawn)
    if interaction.intent.sampler != sampler:
        return Reason.WRONG_SAMPLER
    found = logprobs_unfit(interaction)
    return None if found is None else Reason(found)


def _plan_rules(trial: Trial, interactions: Sequence[Interaction], rules: Eligibility) -> Verdict:
    assert trial.settled is not None  # checked by for_imitation
    by_outcome = {
        TrialOutcome.MISSING_OUTPUT: (rules.missing_output, Reason.MISSING_OUTPUT),
        TrialOutcome.AGENT_FAILED: (rules.agent_failed, Reason.AGENT_FAILED),
        TrialOutcome.AGENT_TIMEOUT: (rules.agent_timeout, Reason.AGENT_TIMEOUT),
    }
    rule, reason = by_outcome.get(trial.settled.outcome, ("keep", None))
    if rule == "exclude":
        return Verdict(reason)
    answers = [(call.intent.interaction, call.answer) for call in interactions if call.answer]
    cut = any(answer.stop_reason == "length" for _, answer in answers)
    if cut and rules.overlong == "exclude":
        return Verdict(Reason.OVERLONG)
    unread = [name for name, answer in answers if answer.parse_error is not None]
    if unread and rules.parse_error == "exclude":
        return Verdict(Reason.PARSE_ERROR, unread[0])
    return ELIGIBLE
