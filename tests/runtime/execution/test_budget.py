"""The meter of a claim: what it counts, and when it stops a run."""

import anyio
import pytest

from runtime.execution.budget import Meter
from specs.assessment import Assessment, NoReward
from specs.errors import ErrorCode, Problem
from specs.ids import Prefix, new_id
from specs.interaction import Seal
from specs.plans import Budget, Limits
from specs.records import TrialOutcome, TrialSettled
from specs.worker_api import BatchStarted, TrialSettledWrite, UpdateSkipped, Usage

pytestmark = pytest.mark.anyio
RUN = new_id(Prefix.RUN)


def settled(prompt: int, output: int) -> TrialSettledWrite:
    trial = new_id(Prefix.TRIAL)
    seal = Seal(
        trial=trial,
        run=RUN,
        fence=1,
        interactions=1,
        states={},
        object=None,
        size=0,
        complete=True,
        prompt_tokens=prompt,
        output_tokens=output,
    )
    return TrialSettledWrite(
        settled=TrialSettled(trial=trial, outcome=TrialOutcome.COMPLETED, seal=seal),
        assessment=Assessment(
            id=new_id(Prefix.ASSESSMENT),
            trial=trial,
            assessor="verifier",
            reason=NoReward.VERIFIER_FAILED,
        ),
    )


def started(batch: int) -> BatchStarted:
    return BatchStarted(batch=batch, sampler=new_id(Prefix.SAMPLER), tasks=())


def skipped(batch: int) -> UpdateSkipped:
    return UpdateSkipped(
        update=new_id(Prefix.UPDATE),
        batch=batch,
        sampler=new_id(Prefix.SAMPLER),
        census={},
        reason="nothing to learn",
    )


def meter(*, run: Budget | None = None, update: Budget | None = None, **usage: float) -> Meter:
    limits = Limits(run=run or Budget(), update=update or Budget())
    return Meter(RUN, Usage.model_validate({**usage, "limits": limits}))


async def test_without_budgets_nothing_stops_a_run() -> None:
    made = meter()
    made.count([started(0), *(settled(10**9, 10**9) for _ in range(3))])
    assert made.problem() is None
    with anyio.move_on_after(0.05) as waited:
        await made.watch()
    assert waited.cancelled_caught


async def test_tokens_of_earlier_claims_count_and_the_last_one_stops_the_run() -> None:
    made = meter(run=Budget(max_tokens=100), tokens=60)
    made.count([settled(30, 9)])
    assert made.problem() is None
    made.count([settled(1, 0)])
    problem = made.problem()
    assert problem is not None
    assert problem.code is ErrorCode.BUDGET_EXHAUSTED
    assert problem.object is not None
    assert problem.object.pointer == "/plan/limits/run/max_tokens"
    assert "has spent 100 tokens" in problem.detail
    assert f"practicum run extend {RUN} --run-tokens" in (problem.next or "")


async def test_an_updates_budget_begins_anew_with_each_batch_and_ends_with_its_update() -> None:
    made = meter(update=Budget(max_tokens=50), batch=0, batch_tokens=40)
    made.count([settled(5, 4)])
    assert made.problem() is None
    made.count([skipped(0), settled(500, 0)])
    assert made.problem() is None, "no update is under way"
    made.count([started(1), settled(20, 29)])
    assert made.problem() is None
    made.count([settled(1, 0)])
    problem = made.problem()
    assert problem is not None
    assert "--update-tokens" in (problem.next or "")


@pytest.mark.parametrize("level", ["run", "update"])
async def test_time_stops_a_run_without_any_write(level: str) -> None:
    budget = Budget(max_sec=60.0)
    usage = {"seconds": 59.9} if level == "run" else {"batch": 0, "batch_seconds": 59.9}
    made = meter(**{level: budget}, **usage)  # pyright: ignore[reportArgumentType]
    assert made.problem() is None
    with anyio.fail_after(30):
        problem = await made.watch()
    assert problem.object is not None
    assert problem.object.pointer == f"/plan/limits/{level}/max_sec"


async def test_who_watches_is_woken_by_what_is_recorded() -> None:
    made = meter(run=Budget(max_tokens=10, max_sec=3600.0))
    found: list[Problem] = []

    async def watch() -> None:
        found.append(await made.watch())

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            made.count([settled(5, 4)])
            await anyio.wait_all_tasks_blocked()
            assert not found
            made.count([settled(1, 0)])
    assert found[0].code is ErrorCode.BUDGET_EXHAUSTED
