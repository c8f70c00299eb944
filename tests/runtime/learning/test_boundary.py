"""The update state machine with the real backend: a crash behind every call of the worker, with
compute alive or restarted, ends in the same updates and the same parameters (invariants 7, 8)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest

from runtime.execution.context import Blocked, RunCancelled
from runtime.execution.groups import OnSettled, SettledGroup
from specs.errors import ErrorCode, PracticumError, Unavailable
from specs.plans import BatchShape
from specs.records import Trial, UpdateState
from tests.runtime.learning.bench import Bench, Fate, Killed, training_bench

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

BATCHES = 2


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = await training_bench(tmp_path, batches=BATCHES)
    yield made
    await made.compute.aclose()


def adapters(bench: Bench) -> list[str]:
    return [checkpoint.adapter for checkpoint in bench.records.checkpoints]


async def test_a_run_takes_one_acknowledged_update_per_batch_and_saves_each(bench: Bench) -> None:
    await bench.train(await bench.claim())
    assert bench.records.states() == [(b, UpdateState.ACKNOWLEDGED) for b in range(BATCHES)]
    first, last = bench.records.checkpoints
    assert (first.final, last.final) == (False, True)
    assert first.adapter != last.adapter
    health = await bench.compute.health()
    assert health.trainers == ()
    assert health.trainers_created == 1


async def test_the_next_batch_samples_from_the_sampler_that_the_update_saved_invariant_7(
    bench: Bench,
) -> None:
    await bench.train(await bench.claim())
    first, second = bench.records.updates.values()
    assert bench.records.batches[0].sampler == bench.spec.sampler.id == first.sampler
    assert bench.records.batches[1].sampler == first.sampler_after == second.sampler
    for batch in bench.records.batches.values():
        of_batch = [t for t in bench.records.attempts.values() if t.batch == batch.batch]
        assert {trial.sampler for trial in of_batch} == {batch.sampler}


async def test_sampler_and_trainer_agree_on_the_log_probs(bench: Bench) -> None:
    await bench.train(await bench.claim())
    for update in bench.records.updates.values():
        assert update.metrics["max_logprob_difference"] <= 1e-4
        assert abs(update.metrics["kl_sample_train_v1"]) <= 1e-4
        assert update.metrics["grad_norm"] > 0


async def test_unresolved_is_durable_before_the_step_is_enqueued_invariant_8(
    bench: Bench,
) -> None:
    fate = Fate()
    await bench.train(await bench.claim(fate))
    steps = [index for index, name in enumerate(fate.calls) if name == "optim_step"]
    assert len(steps) == BATCHES
    for step in steps:
        assert fate.calls[step - 1] == "write"
        assert fate.calls[step + 1] == "save_state"
    kinds = [
        kind for kind in bench.records.written if kind.startswith(("update", "sampler", "che"))
    ]
    assert kinds[:9] == [
        "update.prepared",
        *["update.contributed", "update.accumulated"] * 2,
        "update.unresolved",
        "sampler.saved",
        "update.acknowledged",
        "checkpoint.saved",
    ]


@pytest.mark.parametrize("compute", ["alive", "restarted"])
async def test_a_crash_behind_any_call_ends_as_if_there_had_been_none_invariant_8(
    tmp_path: Path, compute: str
) -> None:
    whole = await small(tmp_path / "whole")
    fate = Fate()
    await whole.train(await whole.claim(fate))
    await whole.compute.aclose()
    for at, name in enumerate(fate.calls):
        if name in ("object", "trainer"):
            continue  # reads change nothing, and the calls around them are tried
        bench = await small(tmp_path / f"{at}")
        with pytest.raises(Killed):
            await bench.train(await bench.claim(Fate(at, "after")))
        if compute == "restarted":
            await bench.restart_compute()
        await bench.train(await bench.claim())
        where = f"after call {at} ({name})"
        assert bench.records.states() == whole.records.states(), where
        assert adapters(bench) == adapters(whole), where
        assert bench.attempts == whole.attempts, where
        assert (await bench.compute.health()).trainers == (), where
        await bench.compute.aclose()


async def small(folder: Path) -> Bench:
    """Two batches of one group with two trials: few tokens, every call."""
    return await training_bench(folder, batch=BatchShape(tasks=1, trials_per_task=2))


async def test_a_compute_that_restarts_under_the_worker_costs_one_void_update(
    bench: Bench, tmp_path: Path
) -> None:
    whole = await training_bench(tmp_path / "whole", batches=BATCHES)
    await whole.train(await whole.claim())
    ctx = await bench.claim()
    target: Any = ctx.compute

    forward = target.forward
    seen: list[str] = []

    async def dying(*args: Any, **options: Any) -> Any:
        """At the batch's last group: what is sampled with another cache has other last bits."""
        seen.append(args[0])
        if len(seen) < 2:
            return await forward(*args, **options)
        del target.forward
        await bench.restart_compute()
        target._target = bench.compute
        return await target.forward(*args, **options)

    target.forward = dying
    await bench.train(ctx)
    voids = [u for u in bench.records.updates.values() if u.state is UpdateState.VOID]
    assert len(voids) == 1
    assert bench.records.states() == whole.records.states()
    assert adapters(bench) == adapters(whole)
    await whole.compute.aclose()


async def test_a_connection_that_breaks_behind_any_call_of_compute_changes_nothing_invariant_8(
    tmp_path: Path,
) -> None:
    whole = await small(tmp_path / "whole")
    fate = Fate()
    await whole.train(await whole.claim(fate))
    await whole.compute.aclose()
    names = [name for name in dict.fromkeys(fate.calls) if hasattr(whole.compute, name)]
    for name in names:
        bench = await small(tmp_path / name)
        ctx = await bench.claim()
        target: Any = ctx.compute
        setattr(target, name, _breaking(target, name))
        await bench.train(ctx)
        assert bench.records.states() == whole.records.states(), name
        assert adapters(bench) == adapters(whole), name
        assert (await bench.compute.health()).trainers == (), name
        await bench.compute.aclose()


async def test_compute_on_a_new_machine_gets_what_it_lacks_from_the_store(
    tmp_path: Path,
) -> None:
    fate = Fate()
    whole = await training_bench(tmp_path / "whole", batches=BATCHES)
    await whole.train(await whole.claim(fate))
    bench = await training_bench(tmp_path / "old", batches=BATCHES)
    second = [index for index, name in enumerate(fate.calls) if name == "forward"][1]
    with pytest.raises(Killed):
        await bench.train(await bench.claim(Fate(second)))
    await bench.compute.aclose()
    bench.folder = tmp_path / "new"
    await bench.restart_compute()
    for sampler in bench.records.samplers.values():
        if sampler.adapter is not None:
            await bench.compute.put_adapter(sampler.adapter, bench.records.objects[sampler.adapter])
    await bench.train(await bench.claim())
    assert adapters(bench) == adapters(whole)
    await whole.compute.aclose()
    await bench.compute.aclose()


async def test_an_update_whose_fate_nobody_can_tell_blocks_and_names_the_command_invariant_8(
    bench: Bench,
) -> None:
    await _die_at(bench, "save_state", "before")
    ctx = await bench.claim()
    _cut_off(ctx)
    with pytest.raises(Blocked) as caught:
        await bench.train(ctx)
    (update,) = bench.records.updates.values()
    assert update.state is UpdateState.UNRESOLVED
    problem = caught.value.problem
    assert problem.code is ErrorCode.UPDATE_UNRESOLVED
    assert problem.next is not None
    assert f"update resolve {bench.spec.id} {update.id} --as" in problem.next


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_blocked_run_completes_once_compute_can_tell(
    bench: Bench, when: Literal["before", "after"]
) -> None:
    await _die_at(bench, "save_state", when)
    ctx = await bench.claim()
    _cut_off(ctx)
    with pytest.raises(Blocked):
        await bench.train(ctx)
    await bench.train(await bench.claim())
    assert bench.records.states() == [(b, UpdateState.ACKNOWLEDGED) for b in range(BATCHES)]
    voids = [u for u in bench.records.updates.values() if u.state is UpdateState.VOID]
    assert len(voids) == (when == "before")


async def test_an_operators_not_applied_is_honoured(bench: Bench) -> None:
    await _die_at(bench, "save_state", "before")
    await bench.restart_compute()
    _resolve(bench, "not-applied")
    await bench.train(await bench.claim())
    assert sum(u.state is UpdateState.VOID for u in bench.records.updates.values()) == 1
    assert bench.records.states() == [(b, UpdateState.ACKNOWLEDGED) for b in range(BATCHES)]


async def test_an_operators_not_applied_beside_a_saved_state_blocks_again(bench: Bench) -> None:
    await _die_at(bench, "save_state", "after")
    _resolve(bench, "not-applied")
    with pytest.raises(Blocked, match="a state has its id"):
        await bench.train(await bench.claim())
    _resolve(bench, "applied")
    await bench.train(await bench.claim())
    assert bench.records.states() == [(b, UpdateState.ACKNOWLEDGED) for b in range(BATCHES)]
    assert all(u.state is UpdateState.ACKNOWLEDGED for u in bench.records.updates.values())


async def test_an_operators_applied_without_a_state_blocks_again(bench: Bench) -> None:
    await _die_at(bench, "save_state", "before")
    await bench.restart_compute()
    _resolve(bench, "applied")
    with pytest.raises(Blocked, match="no state has its id"):
        await bench.train(await bench.claim())


async def test_cancelling_between_attempts_and_step_settles_every_record_invariant_16(
    bench: Bench,
) -> None:
    ctx = await bench.claim()
    target: Any = ctx.compute
    forward = target.forward

    async def cancelled(*args: Any, **options: Any) -> Any:
        ctx.cancelling.set()
        return await forward(*args, **options)

    target.forward = cancelled
    target.create_trainer = _cancelling(ctx, target.create_trainer)
    with pytest.raises(RunCancelled):
        await bench.train(ctx)
    assert [u.state for u in bench.records.updates.values()] == [UpdateState.VOID]
    assert (await bench.compute.health()).trainers == ()


async def test_a_cancelled_run_that_is_claimed_again_settles_its_update(bench: Bench) -> None:
    await _die_at(bench, "save_state", "after")
    ctx = await bench.claim()
    ctx.cancelling.set()
    with pytest.raises(RunCancelled):
        await bench.train(ctx)
    assert bench.records.states() == [(0, UpdateState.ACKNOWLEDGED)]
    assert len(bench.records.checkpoints) == 1


async def test_a_run_cancelled_while_nobody_can_tell_keeps_that_its_step_may_count(
    bench: Bench,
) -> None:
    await _die_at(bench, "save_state", "before")
    ctx = await bench.claim()
    _cut_off(ctx)
    ctx.cancelling.set()
    with pytest.raises(RunCancelled):
        await bench.train(ctx)
    (update,) = bench.records.updates.values()
    assert update.state is UpdateState.FAILED
    assert update.reason == "cancelled before it was known whether it was applied"


async def test_a_step_that_is_not_finite_fails_the_update_and_keeps_checkpoints(
    bench: Bench,
) -> None:
    ctx = await bench.claim()
    target: Any = ctx.compute
    forward = target.forward
    seen: list[str] = []

    async def poisoned(trainer: str, data: Any, loss: Any, **others: Any) -> Any:
        seen.append(trainer)
        if len(seen) == 3:  # the first group of the second batch
            for datum in data:
                datum.inputs["advantages"][:] = float("nan")
        return await forward(trainer, data, loss, **others)

    target.forward = poisoned
    with pytest.raises(PracticumError):
        await bench.train(ctx)
    assert bench.records.states() == [(0, UpdateState.ACKNOWLEDGED), (1, UpdateState.FAILED)]
    assert len(bench.records.checkpoints) == 1
    assert (await bench.compute.health()).trainers == ()
    kept = [await bench.compute.find_state(update) for update in bench.records.updates]
    assert kept == [None, None]


async def test_a_batch_without_variance_is_skipped_and_the_next_stays_on_the_sampler_invariant_7(
    bench: Bench,
) -> None:
    ctx = await bench.claim()
    run_groups = bench.run_groups

    async def flat(*args: Any, on_settled: OnSettled) -> Any:
        async def rewarded(group: SettledGroup) -> None:
            trials = tuple(_rewarded(trial, 1.0) for trial in group.trials)
            await on_settled(SettledGroup(group.group, trials))

        await run_groups(*args, on_settled=rewarded)

    bench.run_groups = flat  # pyright: ignore[reportAttributeAccessIssue]
    await bench.train(ctx)
    assert bench.records.states() == [(b, UpdateState.SKIPPED) for b in range(BATCHES)]
    assert {b.sampler for b in bench.records.batches.values()} == {bench.spec.sampler.id}
    census = next(iter(bench.records.updates.values())).census
    assert census["groups_zero_variance"] == 2
    assert (await bench.compute.health()).trainers_created == 0


def _rewarded(trial: Trial, reward: float) -> Trial:
    assert trial.assessment is not None
    assessment = trial.assessment.model_copy(update={"reward": reward})
    return trial.model_copy(update={"assessment": assessment})


def _breaking(target: Any, name: str) -> Any:
    """The call takes effect, and its first answer is lost."""
    call = getattr(target, name)

    async def wrapped(*args: Any, **options: Any) -> Any:
        delattr(target, name)
        await call(*args, **options)
        raise Unavailable("The connection broke.", code=ErrorCode.COMPUTE_UNAVAILABLE)

    return wrapped


def _cancelling(ctx: Any, call: Any) -> Any:
    async def wrapped(*args: Any, **options: Any) -> Any:
        result = await call(*args, **options)
        ctx.cancelling.set()
        return result

    return wrapped


def _cut_off(ctx: Any) -> None:
    """Let compute be unreachable for this claim."""

    async def away(*args: Any, **options: Any) -> Any:
        raise Unavailable("Compute cannot be reached.", code=ErrorCode.COMPUTE_UNAVAILABLE)

    for name in ("health", "find_state", "close_trainer"):
        setattr(ctx.compute, name, away)


def _resolve(bench: Bench, decision: str) -> None:
    (update,) = bench.records.updates.values()
    bench.records.updates[update.id] = update.model_copy(update={"resolution": decision})


async def _die_at(bench: Bench, call: str, when: Literal["before", "after"]) -> None:
    """Kill a first claim at its first call of that name."""
    fate = Fate()
    other = await training_bench(bench.folder / "rehearsal", batches=1)
    await other.train(await other.claim(fate))
    await other.compute.aclose()
    with pytest.raises(Killed):
        await bench.train(await bench.claim(Fate(fate.calls.index(call), when)))
