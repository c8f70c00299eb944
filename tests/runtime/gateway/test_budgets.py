"""Budgets: admitted, accounted over claims, and raised by an operator."""

from typing import Any

import pytest
import sqlalchemy as sa

from runtime.storage.tables import claims
from specs.errors import Conflict, ErrorCode, InvalidInput, Unavailable
from specs.operator_api import Extend
from specs.plans import Budget
from specs.records import TrialState
from specs.run import RunState
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Hand, Stack

pytestmark = pytest.mark.anyio
PLAN: dict[str, Any] = {
    **stage.TRAINING,
    "limits": {"run": {"max_tokens": 40, "max_sec": 600}, "update": {"max_tokens": 30}},
}
EXHAUSTED = Unavailable("It has spent it.", code=ErrorCode.BUDGET_EXHAUSTED, next="extend").problem


async def spend(stack: Stack, hand: Hand, trial: str) -> None:
    """Seal a trial with 10 prompt and 5 output tokens, as the proxy does."""
    digest = await stack.proxy.upload(trial.encode())
    seal = stage.seal(hand.run, trial, hand.claim.fence, digest, len(trial))
    await stack.proxy.commit_evidence(seal)
    hand.last_event += 1


async def blocked(stack: Stack) -> tuple[str, str]:
    """A run that a budget has stopped, and its trial that was under way."""
    await stage.publish(stack)
    run = await stage.start(stack, PLAN)
    hand = await Hand.take(stack)
    await hand.batch()
    group = await hand.group()
    settled, trial = await hand.trial(group, 0), await hand.trial(group, 1)
    for spending in (settled, trial):
        await spend(stack, hand, spending)
    await hand.settle(settled)
    assert (await hand.complete("blocked", EXHAUSTED)).state is RunState.BLOCKED
    return run, trial


async def test_admission_tells_budgets_and_refuses_those_that_cannot_be(stack: Stack) -> None:
    await stage.publish(stack)
    told = (await stack.operator.dry_run(stage.submission(PLAN))).resources
    assert (told["run.max_tokens"], told["update.max_tokens"]) == (40, 30)
    assert told["update.max_sec"] is None
    for limits, pointer in (
        ({"update": {"max_tokens": 5}}, "/limits"),
        ({"run": {"max_tokens": 0}}, "/limits/run/max_tokens"),
        ({"run": {"max_seconds": 5}}, "/limits/run/max_seconds"),
    ):
        with pytest.raises(InvalidInput) as refused:
            plan: dict[str, Any] = {"trials_per_task": 1, "limits": limits}
            await stack.operator.dry_run(stage.submission(plan))
        assert refused.value.problem.object is not None
        assert refused.value.problem.object.pointer == pointer


async def test_a_blocked_run_keeps_what_settled_and_counts_what_was_under_way(
    stack: Stack,
) -> None:
    run, under_way = await blocked(stack)
    trials = (await stack.operator.trials(run)).items
    assert [trial.state for trial in trials] == [TrialState.SETTLED, TrialState.ABANDONED]
    assert trials[1].id == under_way
    used = {one.name: one for one in (await stack.operator.result(run)).budgets}
    assert used.keys() == {"run.max_tokens", "run.max_sec", "update.max_tokens"}
    assert (used["run.max_tokens"].used, used["run.max_tokens"].limit) == (30, 40)
    assert used["update.max_tokens"].used == 30
    assert not used["run.max_tokens"].extended


async def test_an_extended_run_goes_on_and_its_plan_stays_invariant_14(stack: Stack) -> None:
    run, _ = await blocked(stack)
    before = (await stack.operator.run(run)).spec
    more = Extend(run=Budget(max_tokens=100), update=Budget(max_tokens=90))
    assert (await stack.operator.extend(run, more)).state is RunState.QUEUED
    hand = await Hand.take(stack)
    assert hand.claim.spec == before
    usage = (await stack.worker.records(run)).usage
    assert (usage.tokens, usage.batch, usage.batch_tokens) == (30, 0, 30)
    assert usage.limits.run == Budget(max_tokens=100, max_sec=600)
    assert usage.limits.update.max_tokens == 90
    types = [event.type for event in (await stack.operator.events(run)).events]
    assert types[-3:] == ["run.extended", "run.unblocked", "run.claimed"]
    used = {one.name: one for one in (await stack.operator.result(run)).budgets}
    assert used["run.max_tokens"].extended
    assert not used["run.max_sec"].extended


async def test_only_a_larger_value_of_a_budget_that_is_set_extends_a_run(stack: Stack) -> None:
    run, _ = await blocked(stack)
    for more, cause in (
        (Extend(), "Nothing was added"),
        (Extend(run=Budget(max_tokens=40)), "it is 40 already"),
        (Extend(update=Budget(max_sec=5)), "the plan sets no such budget"),
    ):
        with pytest.raises(InvalidInput, match=cause):
            await stack.operator.extend(run, more)
    assert (await stack.operator.run(run)).state is RunState.BLOCKED


async def test_a_run_that_no_budget_stopped_is_not_extended(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack, PLAN)
    with pytest.raises(Conflict, match="no budget has stopped it"):
        await stack.operator.extend(run, Extend(run=Budget(max_tokens=100)))


async def test_the_time_of_a_dead_worker_ends_with_its_lease(stack: Stack) -> None:
    await stage.publish(stack)
    run = await stage.start(stack, PLAN)
    await Hand.take(stack, lease=50.0)
    await stack.gateway.database.write(
        lambda connection: connection.execute(
            sa.update(claims).values(claimed_at="2026-01-01T00:00:00.000000Z")
        )
    )
    until = 1767225600.0 + 100  # a lease that ended 100 s after that claim
    await stage.expire(stack, run, until)
    await Hand.take(stack)
    usage = (await stack.worker.records(run)).usage
    assert usage.seconds == pytest.approx(100, abs=30)
    assert usage.batch is None
