"""Assessments: a reward, or the reason why there is none. Never a silent zero (invariant 4)."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from specs.base import Contract
from specs.ids import Digest, Id


class NoReward(StrEnum):
    """Why a trial has no reward."""

    NOT_SCORED = "not_scored"
    """The plan asked for none."""
    LAUNCH_FAILED = "launch_failed"
    """The environment, setup or harness never started the work."""
    INFRASTRUCTURE = "infrastructure"
    """Environment, proxy or platform failed under the work."""
    VERIFIER_FAILED = "verifier_failed"
    """The verifier crashed, timed out, or could not be run."""
    REWARD_MISSING = "reward_missing"
    """The verifier left no reward file, or an empty one."""
    REWARD_MALFORMED = "reward_malformed"
    """Not a finite number or an object of finite numbers, or too large to read."""
    CANCELLED = "cancelled"
    """The run was cancelled before the work was assessed."""


class Assessment(Contract):
    """Who assessed a trial, on what, with which result.

    `reward` is the value that learning and reports use: the verifier's `reward` key, or its
    only value. Exactly one of `reward` and `reason` is present.
    """

    id: Id
    trial: Id
    assessor: Literal["verifier", "none"]
    reward: float | None = None
    rewards: dict[str, float] = Field(default_factory=dict[str, float])
    reason: NoReward | None = None
    detail: str = Field(default="", max_length=4096)
    artifacts: dict[str, Digest] = Field(default_factory=dict[str, Digest])
    """Digests of the artifacts that were assessed, by path."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.reward is None) == (self.reason is None):
            raise ValueError("an assessment has either a reward or a reason")
        return self
