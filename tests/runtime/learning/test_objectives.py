"""Objectives and self-checks through the whole boundary, with the real backend."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.compute.losses import Loss
from runtime.compute.protocol import AdamParams
from runtime.learning.evidence import EvidenceReader
from runtime.learning.reference import Recorded
from runtime.learning.work import Row, Terms, pieces
from specs.errors import Conflict, ErrorCode
from specs.objective import Checks, Clip, KlPenalty
from specs.records import Update, UpdateState
from tests.runtime.learning.bench import Bench, Fate, Killed, training_bench

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

KL = KlPenalty(coefficient=0.2)


async def trained(folder: Path, **plan: Any) -> Bench:
    bench = await training_bench(folder, **plan)
    await bench.train(await bench.claim())
    await bench.compute.aclose()
    return bench


def updates(bench: Bench) -> list[Update]:
    return list(bench.records.updates.values())


@pytest.mark.parametrize(
    ("plan", "config"),
    [
        ({"loss": "ppo"}, {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
        (
            {"loss": "cispo", "clip": Clip(low=0.5, high=2.0)},
            {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0},
        ),
    ],
)
async def test_a_clipped_loss_trains_as_planned_and_says_how_much_it_cut(
    tmp_path: Path, plan: Mapping[str, Any], config: dict[str, float]
) -> None:
    bench = await trained(tmp_path, **plan)
    for update in updates(bench):
        assert update.state is UpdateState.ACKNOWLEDGED
        assert (update.loss, update.loss_config) == (plan["loss"], config)
        assert update.metrics["clip_fraction"] == 0  # on policy: no ratio is far from 1
        assert update.metrics["importance_ratio_up_to_0.99"] == 0
        assert update.metrics["importance_ratio_up_to_1.01"] == 1
        assert update.metrics["grad_norm"] > 0


async def test_on_policy_ppo_and_importance_sampling_take_the_same_step(tmp_path: Path) -> None:
    """Inside its bounds ppo is importance sampling: the same gradient to the last bit."""
    losses = ("ppo", "importance_sampling")
    runs = [await trained(tmp_path / loss, batches=1, loss=loss) for loss in losses]
    adapters = [bench.records.checkpoints[0].adapter for bench in runs]
    assert adapters[0] == adapters[1]


async def test_a_kl_penalty_moves_groups_without_difference_in_reward_invariant_5(
    tmp_path: Path,
) -> None:
    bench = await training_bench(tmp_path, kl=KL)
    bench.reward = 0.5
    await bench.train(await bench.claim())
    first, second = updates(bench)
    assert first.census["groups_zero_variance"] == 2
    assert len(first.contributions) == 4
    assert [c.weight for c in first.contributions] == [0.0] * 4
    # The first policy is the reference itself; the step that its rounding gave is not.
    assert abs(first.metrics["kl_reference"]) <= 1e-4
    assert abs(second.metrics["kl_reference"]) > 0
    await bench.compute.aclose()


async def test_the_datums_of_a_penalised_update_follow_from_what_is_stored(
    tmp_path: Path,
) -> None:
    bench = await trained(tmp_path, kl=KL, loss="ppo")
    plan = bench.spec.plan
    for update in updates(bench):
        stored = {c.trial or "": c.reference or "" for c in update.contributions}
        assert all(stored.values())
        evidence = EvidenceReader(bench.records)
        rows = [
            Row(bench.records.attempts[c.trial or ""], c.group, c.weight, divisor=4.0)
            for c in update.contributions
        ]
        again = pieces(rows, Loss.PPO, evidence, Terms.of(plan), Recorded(bench.records, stored))  # pyright: ignore[reportArgumentType]
        assert tuple([p.contribution async for p in again]) == update.contributions


async def test_without_penalty_nothing_is_asked_of_a_reference(tmp_path: Path) -> None:
    bench = await training_bench(tmp_path, batches=1)
    fate = Fate()
    await bench.train(await bench.claim(fate))
    assert "logprobs" not in fate.calls
    assert all(c.reference is None for update in updates(bench) for c in update.contributions)
    await bench.compute.aclose()


async def test_a_crash_under_a_penalty_ends_as_if_there_had_been_none_invariant_8(
    tmp_path: Path,
) -> None:
    shape: dict[str, Any] = {"batches": 1, "kl": KL}
    whole = await trained(tmp_path / "whole", **shape)
    fate = Fate()
    counting = await training_bench(tmp_path / "counting", **shape)
    await counting.train(await counting.claim(fate))
    await counting.compute.aclose()
    for name in ("logprobs", "upload", "forward"):
        bench = await training_bench(tmp_path / name, **shape)
        with pytest.raises(Killed):
            await bench.train(await bench.claim(Fate(fate.calls.index(name), "after")))
        await bench.train(await bench.claim())
        assert bench.records.states() == whole.records.states()
        expected = [checkpoint.adapter for checkpoint in whole.records.checkpoints]
        assert [checkpoint.adapter for checkpoint in bench.records.checkpoints] == expected, name
        await bench.compute.aclose()


@pytest.mark.parametrize(
    ("checks", "measure"),
    [
        (Checks(max_logprob_difference=0.01), "max_logprob_difference"),
        (Checks(max_kl_sample_train=0.001), "kl_sample_train_v2"),
    ],
)
async def test_a_sampler_that_is_not_the_trainers_policy_stops_the_run_before_the_step(
    tmp_path: Path, checks: Checks, measure: str
) -> None:
    bench = await training_bench(tmp_path, checks=checks)
    bench.skew = 0.25
    fate = Fate()
    with pytest.raises(Conflict) as stopped:
        await bench.train(await bench.claim(fate))
    assert stopped.value.problem.code == ErrorCode.LOGPROB_MISMATCH
    assert "optim_step" not in fate.calls
    (update,) = updates(bench)
    assert update.state is UpdateState.FAILED
    assert update.metrics[measure] > 0.01
    assert update.reason is not None
    assert measure in update.reason
    assert bench.records.checkpoints == []
    await bench.compute.aclose()


async def test_the_same_difference_within_the_plan_goes_on(tmp_path: Path) -> None:
    bench = await training_bench(tmp_path, batches=1, checks=Checks(max_logprob_difference=0.5))
    bench.skew = 0.25
    await bench.train(await bench.claim())
    (update,) = updates(bench)
    assert update.metrics["max_logprob_difference"] == pytest.approx(0.25, abs=1e-3)
    assert update.metrics["importance_ratio_mean"] == pytest.approx(np.exp(-0.25), abs=1e-3)
    await bench.compute.aclose()


async def test_a_step_with_learning_rate_0_changes_nothing_and_says_so(tmp_path: Path) -> None:
    bench = await trained(tmp_path, learning_rate=0.0)
    for update in updates(bench):
        assert update.metrics["weights_unchanged"] == 1
        assert update.metrics["logprob_change"] == 0
        assert update.metrics["grad_norm"] > 0
    first, second = bench.records.checkpoints
    assert first.adapter == second.adapter


async def test_a_backend_that_moves_weights_at_learning_rate_0_stops_the_run(
    tmp_path: Path,
) -> None:
    bench = await training_bench(tmp_path, learning_rate=0.0)
    ctx = await bench.claim()
    target: Any = ctx.compute

    async def moving(trainer: str, params: AdamParams) -> Any:
        return await bench.compute.optim_step(trainer, AdamParams(learning_rate=0.01))

    target.optim_step = moving
    with pytest.raises(Conflict) as stopped:
        await bench.train(ctx)
    assert stopped.value.problem.code == ErrorCode.WEIGHTS_CHANGED
    (update,) = updates(bench)
    assert update.state is UpdateState.FAILED
    assert update.metrics["weights_unchanged"] == 0
    assert bench.records.checkpoints == []
    await bench.compute.aclose()


async def test_a_skipped_batch_keeps_what_was_measured_of_its_rewards(tmp_path: Path) -> None:
    bench = await training_bench(tmp_path, batches=1)
    bench.reward = 0.25
    await bench.train(await bench.claim())
    (update,) = updates(bench)
    assert update.state is UpdateState.SKIPPED
    assert update.metrics["reward_mean"] == 0.25
    assert update.metrics["groups_zero_variance"] == 2
    assert update.reason == "no group of the batch has a learnable difference in reward"
    await bench.compute.aclose()
