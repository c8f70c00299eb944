"""A claim that only ends its run leaves nothing of it in compute (invariants 12 and 16)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from runtime.client import WorkerClient
from runtime.execution.context import RunCancelled, RunContext
from runtime.worker.drivers import drive
from specs.errors import InvalidInput, Unavailable
from specs.plans import SupervisedPlan
from tests.runtime.learning.bench import Bench, Fate, Killed, training_bench

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

NO_CLIENT = cast(WorkerClient, None)


@pytest.fixture
async def left(tmp_path: Path) -> AsyncIterator[Bench]:
    """A run whose worker died as it was to take its step."""
    fate = Fate()
    rehearsal = await training_bench(tmp_path / "rehearsal", batches=1)
    await rehearsal.train(await rehearsal.claim(fate))
    await rehearsal.compute.aclose()
    bench = await training_bench(tmp_path, batches=1)
    with pytest.raises(Killed):
        await bench.train(await bench.claim(Fate(fate.calls.index("optim_step"), "before")))
    assert len((await bench.compute.health()).trainers) == 1
    yield bench
    await bench.compute.aclose()


async def cancelled(bench: Bench) -> RunContext:
    ctx = await bench.claim()
    ctx.cancelling.set()
    return ctx


def supervised(bench: Bench) -> None:
    """The run is one that learns from recorded tokens, of a run that nobody can read."""
    source: Any = {"run": bench.spec.id}
    plan = SupervisedPlan.model_validate({"source": source, "batch_size": 1})
    bench.spec = bench.spec.model_copy(update={"plan": plan})


@pytest.mark.parametrize("kind", ["training", "supervised"])
async def test_invariant_12_cancelling_a_run_whose_worker_died_closes_its_trainer(
    left: Bench, kind: str
) -> None:
    if kind == "supervised":
        supervised(left)
    with pytest.raises(RunCancelled):
        await drive(await cancelled(left), NO_CLIENT)
    assert (await left.compute.health()).trainers == ()


async def test_a_compute_that_is_away_does_not_hold_back_the_end_of_a_run(left: Bench) -> None:
    ctx = await cancelled(left)

    async def gone() -> Any:
        raise Unavailable("gone")

    cast(Any, ctx.compute).health = gone
    with pytest.raises(RunCancelled):
        await drive(ctx, NO_CLIENT)


async def test_invariant_12_a_source_that_is_gone_leaves_no_trainer_either(left: Bench) -> None:
    supervised(left)

    class Gone:
        async def trials(self, *_: Any, **__: Any) -> Any:
            raise InvalidInput("The source is gone.")

    with pytest.raises(InvalidInput, match="gone"):
        await drive(await left.claim(), cast(WorkerClient, Gone()))
    assert (await left.compute.health()).trainers == ()
