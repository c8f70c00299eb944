"""Whole runs through the real gateway, each found sound by `verify`."""

import pytest
from pydantic import JsonValue

from runtime.learning.verify import verify_run
from specs.records import UpdateState
from specs.run import RunState
from specs.verify import VerifyReport
from tests.runtime.learning.live import PLAN, Live

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


def failures(report: VerifyReport) -> dict[str, tuple[str, ...]]:
    return {check.id: check.violations for check in report.checks if check.violated}


async def test_a_training_run_is_what_its_records_say(running: Live) -> None:
    run = await running.start(PLAN)
    await running.work(run)
    reads = running.stack.operator
    assert (await reads.run(run)).state is RunState.COMPLETED
    result = await reads.result(run)
    assert (result.trials_settled, result.trials_eligible) == (12, 8)
    assert result.updates["acknowledged"] == 2
    report = await verify_run(reads, running.compute, run, samples=None)
    assert failures(report) == {}
    assert report.ok
    assert report.interactions == report.logprobs_recomputed == 36
    assert report.max_logprob_difference is not None
    assert report.max_logprob_difference <= 1e-4
    assert all(check.checked for check in report.checks), report.checks


async def test_a_run_with_every_term_is_what_its_records_say(running: Live) -> None:
    reads = running.stack.operator
    first = await running.start({**PLAN, "num_batches": 1})
    await running.work(first)
    (reference,) = (await reads.checkpoints(first)).items
    run = await running.start(
        {
            **PLAN,
            "loss": "ppo",
            "clip": {"high": 1.28},
            "kl": {"coefficient": 0.1, "reference": reference.id, "discount": 0.5},
            "credit": {"discount": 0.9},
            "advantages": {"normalise": "std", "per_token": "group"},
        }
    )
    await running.work(run)
    spec = (await reads.run(run)).spec
    assert spec.reference is not None
    assert spec.reference.adapter == reference.adapter
    for update in (await reads.updates(run)).items:
        assert update.loss_config == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}
        assert update.metrics["kl_reference"] != 0
        for contribution in update.contributions:
            assert contribution.reference is not None
            assert await reads.object(contribution.reference)
    assert failures(await verify_run(reads, running.compute, run, samples=None)) == {}


async def test_a_supervised_run_learns_the_selected_trials_of_its_source(running: Live) -> None:
    source = await running.start(PLAN)
    await running.work(source)
    run = await running.start(
        {
            "source": {"run": source, "select": "reward >= 0"},
            "epochs": 2,
            "batch_size": 5,
            "learning_rate": 0.01,
            "lora": {"rank": 2, "alpha": 8.0, "seed": 3},
        }
    )
    await running.work(run)
    reads = running.stack.operator
    updates = (await reads.updates(run)).items
    assert [len({c.trial for c in update.contributions}) for update in updates] == [5, 3, 5, 3]
    for update in updates:
        weights = sum(c.weight * c.trained_tokens for c in update.contributions)
        assert weights == pytest.approx(1.0)
    assert updates[-1].metrics["loss"] < updates[0].metrics["loss"]
    assert [item.final for item in (await reads.checkpoints(run)).items] == [False] * 3 + [True]
    report = await verify_run(reads, running.compute, run)
    assert failures(report) == {}


async def test_what_is_not_selected_of_a_source_hides_nothing_after_it(running: Live) -> None:
    source = await running.start(PLAN)
    await running.work(source)
    reads = running.stack.operator
    rewards = [
        trial.assessment.reward
        for trial in (await reads.trials(source, counted=True)).items
        if trial.assessment is not None and trial.assessment.reward is not None
    ]
    higher = sum(reward > rewards[0] for reward in rewards)
    lower = sum(reward < rewards[0] for reward in rewards)
    chosen, size = (">", higher) if higher else ("<", lower)
    plan: dict[str, JsonValue] = {
        "source": {"run": source, "select": f"reward {chosen} {rewards[0]}"},
        "epochs": 1,
        "batch_size": len(rewards),
        "lora": {"rank": 2},
    }
    run = await running.start(plan)
    await running.work(run)
    (update,) = (await reads.updates(run)).items
    assert len({c.trial for c in update.contributions}) == size > 0
    assert update.census["not_selected"] == len(rewards) - size


async def test_training_goes_on_from_a_checkpoint_with_or_without_its_optimizer(
    running: Live,
) -> None:
    first = await running.start({**PLAN, "num_batches": 1})
    await running.work(first)
    reads = running.stack.operator
    (checkpoint,) = (await reads.checkpoints(first)).items
    for start in ("fresh", "resume"):
        plan = {**PLAN, "num_batches": 1, "optimizer_initialization": start}
        run = await running.start(plan, model=checkpoint.id)
        await running.work(run)
        (update,) = (await reads.updates(run)).items
        assert update.state is UpdateState.ACKNOWLEDGED
        assert update.sampler == checkpoint.sampler
        assert update.from_state == (checkpoint.id if start == "resume" else None)
        (after,) = (await reads.checkpoints(run)).items
        assert after.parent == checkpoint.id
        assert after.adapter != checkpoint.adapter
        assert failures(await verify_run(reads, running.compute, run)) == {}


async def test_evaluation_and_its_verification_never_open_a_trainer(running: Live) -> None:
    run = await running.start({"trials_per_task": 2})
    await running.work(run)
    report = await verify_run(running.stack.operator, running.compute, run)
    assert failures(report) == {}
    assert (await running.compute.health()).trainers_created == 0


async def test_without_compute_the_rest_is_checked_and_the_skip_is_told(running: Live) -> None:
    run = await running.start({"trials_per_task": 2})
    await running.work(run)
    report = await verify_run(running.stack.operator, None, run)
    assert report.ok
    skipped = {check.id for check in report.checks if check.skipped}
    assert skipped == {"evidence.logprobs"}
