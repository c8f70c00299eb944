"""Plans: how an experiment runs. The amount of work is apart from concurrency and resources.

`num_batches × tasks × trials_per_task` is the number of planned trial slots and nothing
more: not distinct tasks, not optimizer steps, not checkpoints.
"""

import json
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from specs import canonical
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput
from specs.grant import GatewayAccess
from specs.model import LoraSpec, Optimizer
from specs.objective import (
    CLIP_DEFAULTS,
    Advantages,
    Checks,
    Clip,
    Credit,
    Eligibility,
    KlPenalty,
    PolicyLoss,
)
from specs.sources import SOURCE_TAGS, Source, Validation


class Budget(Contract):
    """A hard stop; unset means that there is none."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Prompt and output tokens of all model calls, counted as each trial's evidence is sealed."""
    max_sec: float | None = Field(default=None, gt=0)
    """Seconds during which a worker has the run; waiting for one is free."""


class Limits(Contract):
    """Bounds on each trial, each update and the run; unset leaves the task's own, then none.

    A trial that reaches its bound ends. A run that reaches the budget of an update or its own
    stops at once and is blocked, `budget_exhausted`: what is recorded stays, and `run extend`
    lets it go on from there.
    """

    max_calls: int | None = Field(default=None, ge=1, le=10_000)
    """Model calls of one trial."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Sampled tokens of one trial, over all its calls."""
    update: Budget = Budget()
    """Of one batch: from its start until its update is over."""
    run: Budget = Budget()


class Resources(Contract):
    """What a run may use at once."""

    concurrency: int | None = Field(default=None, ge=1, le=256)
    """Trials at work at the same time."""
    cpus: float | None = Field(default=None, gt=0, le=64)
    memory_mb: int | None = Field(default=None, ge=16)


class Timeouts(Contract):
    """Seconds; unset leaves the task's own."""

    setup_sec: float | None = Field(default=None, gt=0)
    agent_sec: float | None = Field(default=None, gt=0)
    verifier_sec: float | None = Field(default=None, gt=0)
    trial_sec: float | None = Field(default=None, gt=0)
    """Wall clock of a whole trial, everything included; its credential expires then."""


class Selection(Contract):
    """Which tasks of the dataset, in the dataset's order; both given = names, then limit."""

    names: tuple[str, ...] | None = None
    limit: int | None = Field(default=None, ge=1)


class _Plan(Contract):
    limits: Limits = Limits()
    resources: Resources = Resources()
    timeouts: Timeouts = Timeouts()
    seed: int = Field(default=0, ge=0, le=2**31)
    """Orders tasks and rows, and seeds the sampling of each trial's calls."""


class EvaluationPlan(_Plan):
    """Attempts at every selected task with one fixed setup."""

    kind: Literal["evaluation"] = "evaluation"
    trials_per_task: int = Field(ge=1, le=1024)
    tasks: Selection = Selection()
    scoring: Literal["verifier", "none"] = "verifier"
    gateway: GatewayAccess | None = None
    """What the agent of each trial may ask of this gateway; unset: it reaches none."""

    @field_validator("limits")
    @classmethod
    def _has_no_updates(cls, limits: Limits) -> Limits:
        if limits.update != Budget():
            raise ValueError("an evaluation has no updates; set limits.run")
        return limits


class BatchShape(Contract):
    """One batch: `tasks` groups of `trials_per_task` trials, all on one sampler."""

    tasks: int = Field(ge=1, le=4096)
    trials_per_task: int = Field(ge=1, le=1024)


class CheckpointRules(Contract):
    """What is kept of each update."""

    state_ttl_sec: float | None = Field(default=None, gt=0)
    """How long trainer state is kept after the update, for a later `resume`; None = for good.
    Weights never expire."""


class TrainingPlan(_Plan):
    """Reinforcement learning on scored attempts; one optimizer step per batch."""

    kind: Literal["training"] = "training"
    num_batches: int = Field(ge=1, le=100_000)
    batch: BatchShape
    order: Literal["shuffled", "dataset"] = "shuffled"
    """Which tasks a batch takes: a new permutation of the dataset for each epoch, or the
    dataset's own order over and over, where its author has laid out what belongs together."""
    optimizer_initialization: Literal["fresh", "resume"] = "fresh"
    loss: PolicyLoss = "importance_sampling"
    clip: Clip | None = None
    """Of a loss that clips; unset, the loss's own."""
    learning_rate: float = Field(default=1e-4, ge=0, le=1)
    grad_clip_norm: float = Field(default=0.0, ge=0)
    optimizer: Optimizer = Optimizer()
    lora: LoraSpec = LoraSpec()
    checkpoints: CheckpointRules = CheckpointRules()
    advantages: Advantages = Advantages()
    credit: Credit = Credit()
    kl: KlPenalty | None = None
    eligibility: Eligibility = Eligibility()
    checks: Checks = Checks()
    gateway: GatewayAccess | None = None
    """What the agent of each trial may ask of this gateway; unset: it reaches none."""

    @model_validator(mode="after")
    def _clip_fits_loss(self) -> Self:
        """A loss that clips has bounds, also where the plan leaves them to it."""
        default = CLIP_DEFAULTS.get(self.loss)
        if default is None and self.clip is not None:
            raise ValueError(f"the loss {self.loss} does not clip; leave `clip` out")
        if default is not None and self.clip is None:
            object.__setattr__(self, "clip", default)
            self.model_fields_set.add("clip")
        return self

    @property
    def planned_slots(self) -> int:
        return self.num_batches * self.batch.tasks * self.batch.trials_per_task


class SupervisedPlan(_Plan):
    """Cross-entropy on target tokens: what selected trials of an earlier run sampled, or what the
    assistant says in the rows of a file.

    Each token's weight is 1 / (target tokens of its batch): the mean over the batch.
    """

    kind: Literal["supervised"] = "supervised"
    source: Source
    validation: Validation | None = None
    epochs: int = Field(default=1, ge=1, le=1000)
    batch_size: int = Field(ge=1, le=4096)
    """Examples (trials or rows) per optimizer step."""
    optimizer_initialization: Literal["fresh", "resume"] = "fresh"
    learning_rate: float = Field(default=1e-4, ge=0, le=1)
    grad_clip_norm: float = Field(default=0.0, ge=0)
    optimizer: Optimizer = Optimizer()
    lora: LoraSpec = LoraSpec()
    checkpoints: CheckpointRules = CheckpointRules()


Plan = Annotated[EvaluationPlan | TrainingPlan | SupervisedPlan, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[EvaluationPlan | TrainingPlan | SupervisedPlan] = TypeAdapter(Plan)


def gateway_access(plan: EvaluationPlan | TrainingPlan | SupervisedPlan) -> GatewayAccess | None:
    """What trials of a plan may ask of the gateway; a supervised plan has none."""
    return None if isinstance(plan, SupervisedPlan) else plan.gateway


def parse_plan(value: JsonValue) -> EvaluationPlan | TrainingPlan | SupervisedPlan:
    """Validate a plan; a missing `kind` is inferred from its keys and then stored.

    Raises:
        InvalidInput: naming the field; unknown keys are errors.
    """
    if not isinstance(value, dict):
        raise InvalidInput(
            "The plan must be a JSON object.",
            object=ErrorObject(type="plan", pointer="/"),
            next="See docs/plans.md for the three kinds of plan.",
        )
    document = dict(value)
    if "kind" not in document:
        document["kind"] = _infer_kind(document)
    try:
        return _ADAPTER.validate_json(json.dumps(_with_clip(document)), strict=True)
    except ValidationError as error:
        raise canonical.invalid(_without_kind(error), "plan") from None


def _with_clip(document: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The document with both bounds of a loss that clips, where it states one of them.

    Not a validator of the plan: behind one, pydantic no longer reads JSON, and strict tuples and
    enumerations refuse what JSON has for them.
    """
    default, clip = CLIP_DEFAULTS.get(str(document.get("loss"))), document.get("clip")
    if default is None or not isinstance(clip, dict):
        return document
    return {**document, "clip": {**default.model_dump(), **clip}}


def _infer_kind(document: dict[str, JsonValue]) -> str:
    if "source" in document:
        return "supervised"
    if "num_batches" in document or "batch" in document:
        return "training"
    return "evaluation"


def _without_kind(error: ValidationError) -> ValidationError:
    """Drop the discriminators from each location, so that pointers fit the document."""
    kinds = {"evaluation", "training", "supervised"}
    details = cast(list[Any], error.errors(include_url=False, include_input=True))
    for detail in details:
        if detail["loc"] and detail["loc"][0] in kinds:
            detail["loc"] = detail["loc"][1:]
        match detail["loc"]:
            case ("source", tag, *rest) if tag in SOURCE_TAGS:
                detail["loc"] = ("source", *rest)
            case _:
                pass
        if detail["type"] == "value_error":
            detail["ctx"] = {"error": detail["ctx"]["error"]}
    return ValidationError.from_exception_data(error.title, details)
