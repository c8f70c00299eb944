"""Construction plans by operation: the whole way, files by digest, and a page to read."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from specs.construction_records import ConstructionPage
from specs.errors import ErrorCode, InvalidInput, PracticumError
from tests.runtime.gateway import constructing, stage
from tests.runtime.gateway.stage import Stack
from tools import registry
from tools.construction import PlanCheck
from tools.construction_view import ConstructionView
from tools.context import Context
from tools.model_spec import SpecView
from tools.start import StartResult
from tools.views import RunView

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).parents[2] / "examples" / "construction" / "plan.json"


@pytest.fixture
async def stack(short_dir: Path) -> AsyncIterator[Stack]:
    home = stage.prepared_home(short_dir, stage.migrated(short_dir))
    async with stage.running(home) as running:
        await constructing.prepared(running)
        yield running


async def ask[T](
    stack: Stack, verb: str, output: type[T], /, *, noun: str = "construction", **values: Any
) -> tuple[T, str]:
    """The result of an operation, and its text."""
    chosen = registry.find(noun, verb)
    result = await registry.call(chosen, Context(stack.home), values)
    assert isinstance(result, output)
    return result, chosen.text(result)


def document() -> dict[str, object]:
    return constructing.plan().model_dump(mode="json", by_alias=True)


async def test_a_plan_goes_from_draft_to_outcome_by_operations(
    stack: Stack, tmp_path: Path
) -> None:
    rows = tmp_path / "probe.jsonl"
    rows.write_text('{"messages": []}\n\n{"messages": []}')
    made, text = await ask(stack, "create", ConstructionView, plan=document())
    assert made.state == "draft" and "construction record" in text and made.plan is None
    name = {"construction": made.id}
    await ask(stack, "record", ConstructionView, **name, kind="propose")
    started, text = await ask(
        stack,
        "start",
        StartResult,
        noun="run",
        dataset=stage.DATASET,
        actor=stage.profile(),
        plan=constructing.PROBE,
        construction=made.id,
    )
    assert f"{made.id} version 1, as probe" in text
    shown, text = await ask(stack, "show", RunView, noun="run", run=started.run)
    assert shown.construction is not None and f"{made.id} version 1" in text
    with pytest.raises(PracticumError) as over:
        await ask(stack, "record", ConstructionView, **name, kind="probe", runs=(started.run,))
    assert over.value.problem.next == f"practicum run wait {started.run}"
    made, _ = await ask(stack, "record", ConstructionView, **name, kind="probe", files=(str(rows),))
    assert made.probe_spend.spent.rows == 2
    made, text = await ask(
        stack,
        "record",
        ConstructionView,
        **name,
        kind="review",
        subject=made.review_subject,
        reviewer="quality-reviewer",
        relevant=True,
        coverage=("count=covered", "largest=covered: two rows"),
        findings=("Rows name only the deployed tool.",),
    )
    assert "approval subject" in text
    made, text = await ask(
        stack,
        "approve",
        ConstructionView,
        **name,
        subject=made.approval_subject,
        approver="small",
        approver_kind="policy",
    )
    assert "policy small" in text
    made, _ = await ask(
        stack, "record", ConstructionView, **name, kind="outcome", result="baseline", note="Stop."
    )
    assert made.state == "finished"
    whole, page = await ask(stack, "show", ConstructionView, construction=made.id[:20])
    assert whole.steps is not None and len(whole.steps) == 6
    for part in ("# acme/shell, version 1: finished", "`largest` **covered**", "held out", "Stop."):
        assert part in page
    assert f"| `{started.run}` | evaluation | queued | probe | 1 | 3 | 3 |" in page
    listed, text = await ask(stack, "list", ConstructionPage)
    assert [one.id for one in listed.items] == [made.id] and "finished" in text


async def test_a_revision_is_shown_as_the_present_plan_and_its_past_on_request(
    stack: Stack,
) -> None:
    made, _ = await ask(stack, "create", ConstructionView, plan=document())
    later, _ = await ask(
        stack,
        "revise",
        ConstructionView,
        construction=made.id,
        plan={**document(), "goal": "Another."},
        replaces=1,
        note="The goal was too wide.",
    )
    assert (later.version, later.state) == (2, "draft")
    present, text = await ask(stack, "show", ConstructionView, construction=made.id)
    assert [step.kind for step in present.steps or ()] == ["revise"]
    assert "Another." in text and "The goal was too wide." in text
    past, _ = await ask(stack, "show", ConstructionView, construction=made.id, history=True)
    assert [step.kind for step in past.steps or ()] == ["create", "revise"]


async def test_what_belongs_to_another_kind_of_record_is_refused(stack: Stack) -> None:
    made, _ = await ask(stack, "create", ConstructionView, plan=document())
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": "propose", "runs": ("run_1",)}, "/runs"),
        ({"kind": "propose", "relevant": True}, "/relevant"),
        ({"kind": "review", "reviewer": "me"}, "/subject"),
        ({"kind": "bulk", "coverage": ("count=covered",)}, "/coverage"),
        ({"kind": "outcome"}, "/result"),
        ({"kind": "training"}, "/runs"),
    ]
    for values, pointer in wrong:
        with pytest.raises(InvalidInput) as refused:
            await ask(stack, "record", ConstructionView, construction=made.id, **values)
        problem = refused.value.problem
        assert problem.object is not None and problem.object.pointer == pointer, values


async def test_the_example_is_a_complete_plan_and_an_incomplete_one_is_told(stack: Stack) -> None:
    check, text = await ask(stack, "validate", PlanCheck, plan=f"@{EXAMPLE}")
    assert check.ok and check.missing == [] and check.digest in text
    file = f"@{EXAMPLE.parents[1] / 'shell-specialist.json'}"
    spec, _ = await ask(stack, "validate", SpecView, noun="model-spec", spec=file)
    assert json.loads(EXAMPLE.read_text())["model_spec"]["digest"] == spec.digest
    draft = {"schema": "practicum.construction-plan/v1", "name": "acme/x", "goal": "Less typing."}
    check, text = await ask(stack, "validate", PlanCheck, plan=draft)
    assert not check.ok and "/assessment" in text
    wrong = json.loads(EXAMPLE.read_text())
    wrong["budget"]["probe"]["rows"] = wrong["budget"]["rows"]
    with pytest.raises(InvalidInput, match=r"probe\.rows is at most a quarter"):
        await ask(stack, "validate", PlanCheck, plan=wrong)
    with pytest.raises(InvalidInput) as refused:
        await ask(stack, "validate", PlanCheck, plan="acme/plan@v1")
    assert refused.value.problem.code is ErrorCode.INVALID_DOCUMENT
