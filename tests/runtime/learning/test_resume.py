"""Going on from a checkpoint: Adam comes back or the run ends, and the new run is its own."""

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from runtime.compute.protocol import TrainerInfo, TrainerInit
from runtime.compute.router import LocalCompute
from runtime.learning.verify import verify_run
from specs.errors import ErrorCode, InvalidInput
from specs.records import Checkpoint
from tests.runtime.learning.live import Live
from tests.runtime.learning.test_files import LORA, failures, rows, stated

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

ROW = rows("the one row")
PLAN: dict[str, JsonValue] = {
    "source": stated(ROW),
    "batch_size": 1,
    "learning_rate": 0.01,
    "lora": LORA,
    "optimizer": {"beta1": 0.8},
}


async def trained(running: Live, *, model: str = "tiny", **changes: JsonValue) -> list[Checkpoint]:
    """The checkpoints of a run on the one row, in order."""
    await running.stack.operator.upload(ROW)
    run = await running.start({**PLAN, **changes}, model=model)
    await running.work(run)
    report = await verify_run(running.stack.operator, running.compute, run)
    assert failures(report) == {}
    return (await running.stack.operator.checkpoints(run)).items


async def test_a_resumed_run_ends_with_the_weights_of_one_that_was_never_interrupted(
    running: Live,
) -> None:
    whole = await trained(running, epochs=2)
    (half,) = await trained(running)
    (resumed,) = await trained(running, model=half.id, optimizer_initialization="resume")
    (fresh,) = await trained(running, model=half.id)
    assert half.adapter == whole[0].adapter
    assert resumed.adapter == whole[1].adapter  # to the last bit
    assert resumed.state == whole[1].state
    assert fresh.adapter != resumed.adapter
    contexts = [item.context for item in (half, resumed, fresh)]
    assert [context and context.steps for context in contexts] == [1, 2, 1]
    assert [context and context.batches for context in contexts] == [1, 1, 1]
    assert [context and context.examples for context in contexts] == [1, 1, 1]
    assert all(context and context.optimizer.beta1 == 0.8 for context in contexts)
    reads = running.stack.operator
    (update,) = (await reads.updates(resumed.run)).items
    assert update.metrics["resume_steps"] == 1
    assert update.metrics["resume_warm_difference"] > 1e-4
    (cold,) = (await reads.updates(fresh.run)).items
    assert "resume_steps" not in cold.metrics
    assert (await running.compute.health()).trainers == ()
    runs = {half.run, resumed.run, fresh.run}
    assert len(runs) == 3
    assert (resumed.parent, fresh.parent, half.parent) == (half.id, half.id, None)
    listed = [item.id for item in (await reads.checkpoints(resumed.run)).items]
    assert listed == [resumed.id]


async def test_a_run_that_resumes_a_checkpoint_takes_its_state_from_no_other(
    running: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second run goes its whole way where the first has its state and no trainer yet."""
    (half,) = await trained(running)
    plan: dict[str, JsonValue] = {**PLAN, "optimizer_initialization": "resume"}
    first = await running.start(plan, model=half.id)
    second = await running.start(plan, model=half.id)
    create = LocalCompute.create_trainer
    waiting = [second]

    async def beside(self: LocalCompute, trainer: str, init: TrainerInit) -> TrainerInfo:
        if waiting:
            await running.work(waiting.pop())
        return await create(self, trainer, init)

    monkeypatch.setattr(LocalCompute, "create_trainer", beside)
    await running.work(first)
    reads = running.stack.operator
    (one,), (other,) = [(await reads.checkpoints(run)).items for run in (first, second)]
    assert (one.parent, one.adapter) == (other.parent, other.adapter) == (half.id, one.adapter)
    for run in (first, second):
        (update,) = (await reads.updates(run)).items
        assert update.from_state == half.id
        assert failures(await verify_run(reads, running.compute, run)) == {}
    assert list((tmp_path / "compute" / "states").iterdir()) == []


@pytest.mark.parametrize("counts", [False, True], ids=["no steps", "the right steps"])
async def test_a_state_that_comes_back_cold_ends_the_run_before_its_first_update(
    running: Live, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    """What a backend does that restores weights and loses Adam, with or without the count."""
    (half,) = await trained(running)
    create = LocalCompute.create_trainer

    async def cold(self: LocalCompute, trainer: str, init: TrainerInit) -> TrainerInfo:
        info = await create(self, trainer, replace(init, with_optimizer=False))
        return replace(info, steps=1) if counts else info

    monkeypatch.setattr(LocalCompute, "create_trainer", cold)
    plan: dict[str, JsonValue] = {**PLAN, "optimizer_initialization": "resume"}
    run = await running.start(plan, model=half.id)
    with pytest.raises(InvalidInput, match="came back cold" if counts else "counts 0") as refused:
        await running.work(run)
    assert refused.value.problem.code is ErrorCode.RESUME_INCOMPATIBLE
    assert (await running.stack.operator.updates(run)).items == []
    assert (await running.compute.health()).trainers == ()
