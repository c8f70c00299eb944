"""Runs under a construction: admitted within the probe's allowance, then within the budget."""

import anyio
import pytest
from pydantic import JsonValue

from specs.construction_records import Construction
from specs.errors import Conflict, ErrorCode, NotFound, PracticumError
from specs.ids import Prefix, new_id
from specs.operator_api import Extend
from specs.plans import Budget
from tests.runtime.gateway import constructing, stage
from tests.runtime.gateway.constructing import PROBE
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio


async def refusal(
    stack: Stack, made: Construction, document: dict[str, JsonValue]
) -> tuple[ErrorCode, str]:
    with pytest.raises(Conflict) as refused:
        await constructing.start(stack, made.id, document)
    problem = refused.value.problem
    assert problem.next and problem.object is not None
    return problem.code, problem.object.pointer or ""


async def test_before_approval_runs_fit_the_probe_and_never_train(stack: Stack) -> None:
    await constructing.prepared(stack)
    draft = await constructing.created(stack)
    not_approved = (ErrorCode.CONSTRUCTION_NOT_APPROVED, "")
    assert await refusal(stack, draft, PROBE) == not_approved
    made = await constructing.proposed(stack)
    assert await refusal(stack, made, stage.TRAINING) == not_approved
    over = (ErrorCode.CONSTRUCTION_OVER_BUDGET, "/budget/probe/trial_slots")
    assert await refusal(stack, made, stage.EVALUATION) == over  # 6 slots of 4
    run = await constructing.start(stack, made.id, PROBE)
    assert await refusal(stack, made, PROBE) == over
    (listed,) = (await stack.operator.construction(made.id)).runs
    assert (listed.run, listed.planned_slots, listed.construction.use) == (run, 3, "probe")
    shown = await stack.operator.run(run)
    assert shown.construction == listed.construction
    await constructing.ended(stack, run)  # it used one slot of three
    await constructing.start(stack, made.id, PROBE)
    with pytest.raises(NotFound):
        await constructing.start(stack, new_id(Prefix.CONSTRUCTION), PROBE)


async def test_of_probes_that_race_for_the_allowance_one_is_admitted(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.proposed(stack)
    admitted: list[str] = []
    refused: list[ErrorCode] = []

    async def probe() -> None:
        try:
            admitted.append(await constructing.start(stack, made.id, PROBE))
        except PracticumError as error:
            refused.append(error.problem.code)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(probe)
    assert len(admitted) == 1
    assert refused == [ErrorCode.CONSTRUCTION_OVER_BUDGET] * 4


async def test_the_construction_is_part_of_what_an_idempotency_key_names(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.proposed(stack)
    plain = stage.submission(PROBE)
    under = plain.model_copy(update={"construction": made.id})
    first = await stack.operator.start(under, idempotency_key="once")
    again = await stack.operator.start(under, idempotency_key="once")
    assert (again.run, again.created, again.admission) == (first.run, False, first.admission)
    assert first.admission.construction is not None
    with pytest.raises(Conflict) as other:
        await stack.operator.start(plain, idempotency_key="once")
    assert other.value.problem.code is ErrorCode.IDEMPOTENCY_CONFLICT
    with pytest.raises(Conflict):  # a dry run tells the same
        await stack.operator.dry_run(under)


async def test_after_approval_runs_fit_the_budget_and_the_method(stack: Stack) -> None:
    await constructing.prepared(stack)
    made = await constructing.approved(stack)
    digest = await stack.operator.upload(b'{"messages": []}\n')
    source: dict[str, JsonValue] = {"file": "r.jsonl", "digest": digest, "size": 17, "rows": 1}
    with pytest.raises(Conflict, match="approved method is grpo"):
        await constructing.start(stack, made.id, {"source": source, "batch_size": 1}, dataset=None)
    run = await constructing.start(stack, made.id, stage.TRAINING)  # 4 slots, 2 updates
    over = (ErrorCode.CONSTRUCTION_OVER_BUDGET, "/budget/updates")
    assert await refusal(stack, made, stage.TRAINING) == over
    slots = (ErrorCode.CONSTRUCTION_OVER_BUDGET, "/budget/trial_slots")
    assert await refusal(stack, made, {"trials_per_task": 13}) == slots
    await constructing.start(stack, made.id, {"trials_per_task": 12})
    read = await stack.operator.construction(made.id)
    assert (read.total_spend.spent.trial_slots, read.total_spend.spent.updates) == (40, 2)
    await stack.operator.cancel(run)  # nothing of it was done
    read = await stack.operator.construction(made.id)
    assert (read.total_spend.spent.trial_slots, read.total_spend.spent.updates) == (36, 0)


async def test_a_bound_on_tokens_holds_for_runs_and_for_their_extension(stack: Stack) -> None:
    await constructing.prepared(stack)
    budget = {
        "trial_slots": 40,
        "updates": 2,
        "rows": 40,
        "tokens": 1000,
        "probe": {"trial_slots": 4, "rows": 10, "tokens": 100},
    }
    made = await constructing.proposed(stack, budget=budget)
    needs = (ErrorCode.CONSTRUCTION_OVER_BUDGET, "/limits/run/max_tokens")
    assert await refusal(stack, made, PROBE) == needs
    bounded: dict[str, JsonValue] = {**PROBE, "limits": {"run": {"max_tokens": 60}}}
    run = await constructing.start(stack, made.id, bounded)
    hand = await Hand.take(stack)
    hand.last_event = (await stack.operator.run(run)).last_event
    spent = Conflict("It is spent.", code=ErrorCode.BUDGET_EXHAUSTED).problem
    await hand.complete("blocked", spent)
    with pytest.raises(Conflict) as over:
        await stack.operator.extend(run, Extend(run=Budget(max_tokens=101)))
    assert over.value.problem.code is ErrorCode.CONSTRUCTION_OVER_BUDGET
    await stack.operator.extend(run, Extend(run=Budget(max_tokens=100)))
