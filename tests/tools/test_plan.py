"""A plan is checked where it stands, and what it leaves to defaults is told apart."""

import json
from pathlib import Path

import pytest

from runtime.home import Home
from specs import canonical
from specs.errors import ErrorCode, InvalidInput
from specs.plans import parse_plan
from tools import registry
from tools.context import Context
from tools.plan import PlanView

pytestmark = pytest.mark.anyio
TRAINING = {"num_batches": 3, "batch": {"tasks": 2, "trials_per_task": 4}, "clip": {"low": 0.5}}


async def validate(plan: object) -> PlanView:
    result = await registry.call(
        registry.find("plan", "validate"), Context(Home.at(Path("/nowhere"))), {"plan": plan}
    )
    assert isinstance(result, PlanView)
    return result


async def test_a_plan_is_shown_with_its_defaults_and_its_digest(tmp_path: Path) -> None:
    document = {**TRAINING, "loss": "ppo", "limits": {}}
    view = await validate(document)
    assert (view.kind, view.planned_slots, view.start) == ("training", 24, "practicum train start")
    assert view.digest == canonical.digest(parse_plan(json.loads(json.dumps(document))))
    assert {"/clip/high", "/limits/max_calls", "/optimizer/beta1"} <= set(view.defaults)
    assert not {"/clip/low", "/num_batches", "/batch/tasks", "/loss"} & set(view.defaults)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert await validate(f"@{path}") == view


@pytest.mark.parametrize(
    ("plan", "kind", "slots"),
    [
        ({"trials_per_task": 2}, "evaluation", None),
        ({"trials_per_task": 2, "tasks": {"names": ["a", "b", "c"], "limit": 2}}, "evaluation", 4),
        ({"source": {"file": "rows.jsonl"}, "batch_size": 4}, "supervised", 0),
    ],
)
async def test_every_kind_is_told_from_its_keys(
    plan: dict[str, object], kind: str, slots: int | None
) -> None:
    view = await validate(plan)
    assert (view.kind, view.planned_slots) == (kind, slots)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"zeal": 1}, "/zeal"),
        ({"batch": {"tasks": 2, "trials_per_task": 4, "zeal": 1}}, "/batch/zeal"),
        ({"loss": "ppo", "clip": {"low": 2}}, "/clip/low"),
        ({"learning_rate": "much"}, "/learning_rate"),
    ],
)
async def test_what_is_wrong_is_named(changes: dict[str, object], pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await validate({**TRAINING, "loss": "ppo", **changes})
    found = caught.value.problem
    assert found.code is ErrorCode.INVALID_DOCUMENT
    assert found.object is not None and found.object.pointer == pointer
    assert found.next
