"""Plans: checking one before anything starts, and seeing everything that it leaves to defaults."""

from typing import Annotated, cast

from pydantic import Field, JsonValue

from specs import canonical
from specs.base import Contract
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan
from tools.context import Context
from tools.fields import Cli, Input
from tools.registry import READ_LOCAL, operation
from tools.start import read_plan
from tools.tables import pairs


class Validate(Input):
    plan: Annotated[
        dict[str, JsonValue] | str,
        Field(description="The plan itself, or @file.json"),
        Cli(positional=True, metavar="@FILE"),
    ]


class PlanView(Contract):
    """A plan as it would be stored with a run."""

    kind: str
    digest: str
    planned_slots: int | None
    """Trials of a training plan; an evaluation's follow from its dataset."""
    plan: dict[str, JsonValue]
    """With every default filled in."""
    defaults: list[str]
    """Pointers of what the document does not say."""
    start: str


def _text(view: PlanView) -> str:
    said = _leaves(view.plan)
    return pairs(
        {
            "kind": view.kind,
            "digest": view.digest,
            "planned trial slots": view.planned_slots,
            **{
                pointer: f"{value}{'  (default)' if pointer in view.defaults else ''}"
                for pointer, value in said.items()
            },
            "start": view.start,
        }
    )


@operation("plan", "validate", READ_LOCAL, text=_text)
async def validate(_: Context, request: Validate) -> PlanView:
    """Check a plan and show it with its defaults; nothing is started."""
    given, plan = read_plan(request.plan)
    whole = cast(dict[str, JsonValue], plan.model_dump(mode="json"))
    stated = _leaves(given)
    defaults = [
        pointer
        for pointer in _leaves(whole)
        if not any(pointer == one or pointer.startswith(f"{one}/") for one in stated)
    ]
    return PlanView(
        kind=plan.kind,
        digest=canonical.digest(plan),
        planned_slots=_slots(plan),
        plan=whole,
        defaults=defaults,
        start=f"practicum {'run' if plan.kind == 'evaluation' else 'train'} start",
    )


def _slots(plan: EvaluationPlan | TrainingPlan | SupervisedPlan) -> int | None:
    match plan:
        case TrainingPlan():
            return plan.planned_slots
        case SupervisedPlan():
            return 0
        case EvaluationPlan(tasks=tasks) if tasks.names is not None:
            return plan.trials_per_task * len(tasks.names[: tasks.limit])
        case EvaluationPlan():
            return None


def _leaves(value: dict[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """Every value that is no object, by its JSON pointer."""
    found: dict[str, JsonValue] = {}
    for key, item in value.items():
        pointer = f"{prefix}/{key}"
        if isinstance(item, dict):
            found |= _leaves(item, pointer)
        else:
            found[pointer] = item
    return found
