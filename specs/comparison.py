"""A comparison of two evaluations as it is recorded: what was measured, and what was decided.

The unit is the task: attempts are averaged first, and differences are candidate minus baseline
over the tasks that both sides scored. What failed under the work is counted apart and never is
a zero (invariant 4).
"""

from typing import Literal

from pydantic import Field, JsonValue

from specs.base import Contract
from specs.ids import Digest, Id

type Verdict = Literal["better", "worse", "inconclusive"]
type Change = Literal["model", "recipe", "dataset", "plan", "environment", "platform"]
"""What differs between two sides: `recipe` is the profile apart from its model, `platform` the
pinned fingerprints, `environment` what the tasks ran in."""


class Interval(Contract):
    """An estimate with its confidence interval; no bounds for fewer than two clusters."""

    estimate: float
    low: float | None
    high: float | None
    n: int
    """Units, that is tasks."""
    clusters: int
    """Groups of units taken as independent; as many as units where each stands alone."""


class Difference(Contract):
    """A place where two JSON documents differ; None = absent on that side."""

    pointer: str
    left: JsonValue
    right: JsonValue


class PassRate(Contract):
    """Estimates over tasks with at least `k` scored attempts."""

    k: int
    tasks: int
    any_of_k: float
    """pass@k: at least one of k attempts passes."""
    all_of_k: float
    """pass^k: all of k attempts pass."""


class Side(Contract):
    """One of the two runs."""

    run: Id
    state: str
    model: str
    actor: Digest
    dataset: str | None
    success: float | None
    """Mean over its scored tasks."""
    tasks_scored: int
    attempts: int
    attempts_scored: int
    attempts_unscored: int
    no_reward: dict[str, int]
    """Attempts without a reward, by reason: infrastructure and verifiers, not the agent."""
    outcomes: dict[str, int]
    """How the work ended, by `TrialOutcome`."""
    pass_rates: list[PassRate]
    prompt_tokens: int
    output_tokens: int
    calls: int
    """Model calls."""
    tools: dict[str, int] | None
    """Tool calls by name; None where the evidence was not read."""
    agent_seconds: float | None
    """Mean over attempts."""
    seconds: float | None
    """Of the whole run."""
    cost: float | None
    """Of its tokens at the prices that were given."""


class TaskRow(Contract):
    """One task that both sides scored."""

    task: str
    baseline: float
    candidate: float
    baseline_attempts: int
    candidate_attempts: int
    difference: float
    result: Literal["win", "loss", "tie"]
    flip: Literal["fixed", "broken"] | None
    """Most attempts passed on one side, and not on the other."""


class MetricRow(Contract):
    """One named metric of the assessments, over the tasks where both sides have it."""

    metric: str
    baseline: float
    candidate: float
    difference: Interval


class AttributeRow(Contract):
    """The tasks with one value of a task attribute."""

    attribute: str
    value: str
    baseline: float
    candidate: float
    difference: Interval


class Seen(Contract):
    """A compared task that a side's model was trained on."""

    task: str
    side: Literal["baseline", "candidate"]
    run: Id
    """The run that trained on it."""
    same_version: bool
    """Its package has the same digest; otherwise it has the same name."""


class Comparison(Contract):
    """Candidate minus baseline."""

    baseline: Side
    candidate: Side
    dataset_digest: Digest | None
    """Of the baseline."""
    confidence: float
    pass_mark: float
    """An attempt passes at this reward."""
    cluster: str
    """What tasks are clustered by; `task` = each alone."""
    filters: dict[str, tuple[str, ...]]
    tasks: int
    """Tasks that both sides scored."""
    only_baseline: list[str]
    only_candidate: list[str]
    difference: Interval | None
    verdict: Verdict
    advice: str
    wins: int
    ties: int
    losses: int
    fixed: int
    broken: int
    by_task: list[TaskRow]
    by_metric: list[MetricRow]
    by_attribute: list[AttributeRow]
    changed: list[Change]
    differences: list[Difference]
    """Every field in which the pinned specs differ, the profiles embedded."""
    expected: bool
    """Only the model changed, or only the recipe: the difference has one cause."""
    trained_on: list[Seen]
    caveats: list[str]
    """What to know beside the number, in words."""


class ComparisonRecord(Contract):
    """A recorded comparison."""

    id: Id
    created_at: str
    earlier: int = Field(ge=0)
    """Comparisons of other pairs that this dataset had served before this one."""
    comparison: Comparison


class ComparisonSubmission(Contract):
    """`POST /v1/comparisons`: what was found; the same again is the same record."""

    id: Id
    comparison: Comparison


class ComparisonPage(Contract):
    items: list[ComparisonRecord]
    next: str | None = None
