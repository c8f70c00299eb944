"""The report of `run verify`: every recorded invariant of a run, derived again."""

from pydantic import Field

from specs.base import Contract
from specs.ids import Id

MAX_VIOLATIONS = 50
"""Of one check that are listed; `violated` counts all."""


class Check(Contract):
    """One promise, and what was found against it."""

    id: str
    invariant: int | None
    """Number in the design; None for bookkeeping that several of them rest on."""
    promise: str
    checked: int
    """How many things were compared; 0 where the run has none of the kind."""
    violated: int = 0
    violations: tuple[str, ...] = Field(default=(), max_length=MAX_VIOLATIONS)
    """The first of them: which object, what is recorded, what was derived."""
    skipped: str | None = None
    """Why it was not made at all."""


class VerifyReport(Contract):
    """Whether a run is what its records say; `ok` means that no check was violated."""

    run: Id
    ok: bool
    checks: tuple[Check, ...]
    interactions: int
    """Of counted trials."""
    spans: dict[str, int] = Field(default_factory=dict[str, int])
    """How many of them are `root`, `exact`, `branched(reason)` or `lost`."""
    logprobs_recomputed: int
    """Interactions whose log-probs compute derived again."""
    max_logprob_difference: float | None = None
