"""A loss is computed anew on the policy that an update started from, and nothing is left behind."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from runtime.compute.losses import Loss, LossConfig
from runtime.learning import recompute
from runtime.learning.recompute import datum_from, policy_of, recomputed_loss
from specs.errors import InvalidInput
from specs.records import Update, UpdateState
from specs.run import Run, SamplerRef
from tests.runtime.learning.pretended import Pretended, Store, datum
from tests.runtime.learning.told import (
    CHECKPOINTS,
    FIRST,
    SECOND,
    SKIPPED,
    STATES,
    sampler,
    sound,
    spec_of,
    training_plan,
    update_of,
)


@dataclass
class Reads(Store):
    """A store with the records that are read."""

    updates: dict[str, Update] = field(default_factory=dict[str, Update])

    async def update(self, update: str) -> Update:
        return self.updates[update]

    async def sampler(self, sampler: str) -> SamplerRef:
        return next(one for one in sound().samplers.values() if one.id == sampler)


def run_with(**spec: Any) -> Run:
    return sound().run.model_copy(update={"spec": spec_of(training_plan(), **spec)})


def continuing(reads: Reads, **changes: Any) -> Update:
    """An update that goes on from the first one's state."""
    before = update_of(
        FIRST, 0, UpdateState.ACKNOWLEDGED, state_digest=reads.put(b"state of the first")
    )
    reads.updates[FIRST] = before
    return update_of(SECOND, 1, UpdateState.ACKNOWLEDGED, **{"from_state": FIRST, **changes})


@pytest.mark.anyio
async def test_an_update_started_from_nothing_a_checkpoint_or_an_update() -> None:
    reads = Reads()
    update = continuing(reads)
    named = {"initial_checkpoint": CHECKPOINTS[0], "initial_state": STATES[0]}
    run = run_with(**named)
    from_update = await policy_of(reads, run, update)
    assert (from_update.sampler, from_update.state) == (sampler(1), FIRST)
    assert from_update.state_digest == reads.updates[FIRST].state_digest
    fresh = await policy_of(reads, run, continuing(reads, from_state=None))
    assert (fresh.state, fresh.state_digest) == (None, None)
    resumed = await policy_of(reads, run, continuing(reads, from_state=CHECKPOINTS[0]))
    assert (resumed.state, resumed.state_digest) == (CHECKPOINTS[0], STATES[0])


@pytest.mark.anyio
@pytest.mark.parametrize("there", [False, True])
async def test_trainer_and_brought_state_are_gone_afterwards(there: bool) -> None:
    reads, made = Reads(), Pretended(states={FIRST} if there else set())
    update = continuing(reads, loss="ppo", loss_config={"clip_low_threshold": 0.5})
    loss = await recomputed_loss(reads, made.compute, run_with(), update, [datum(3), datum(4)])
    assert loss == 7.0
    ((trainer,),) = made.named("create_trainer")
    config = LossConfig(clip_low_threshold=0.5)
    assert made.named("forward") == [(trainer, 2, Loss.PPO, False, config)]
    assert made.named("close_trainer") == [(trainer,)]
    # A state that was there before is the run's own.
    assert made.named("drop_state") == [(f"{trainer}.{FIRST}",)]
    assert made.states == ({FIRST} if there else set())


@pytest.mark.anyio
async def test_a_trainer_that_failed_is_closed_all_the_same() -> None:
    made = Pretended(errors={"forward": InvalidInput("no such array")})
    reads = Reads()
    with pytest.raises(InvalidInput, match="no such array"):
        await recomputed_loss(reads, made.compute, run_with(), continuing(reads), [datum(1)])
    ((trainer,),) = made.named("close_trainer")
    assert made.named("drop_state") == [(f"{trainer}.{FIRST}",)]


@pytest.mark.anyio
async def test_an_update_without_a_loss_has_none_to_compute() -> None:
    skipped = update_of(SKIPPED, 2, UpdateState.SKIPPED, loss=None)
    made = Pretended()
    with pytest.raises(InvalidInput, match="is skipped: it never had a loss"):
        await recomputed_loss(Reads(), made.compute, run_with(), skipped, [datum(1)])
    assert made.calls == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("sizes", "requests"),
    [
        ([], []),
        ([12], [1]),  # one beyond the bound goes alone
        ([4, 6], [2]),  # just full
        ([4, 7], [1, 1]),
        ([1, 1, 1, 1], [3, 1]),
        ([9, 2, 8], [1, 2]),  # what was sent counts no more
    ],
)
async def test_requests_are_as_large_as_allowed_and_no_larger(
    sizes: Sequence[int], requests: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompute, "CHUNK_TOKENS", 10)
    monkeypatch.setattr(recompute, "CHUNK_DATUMS", 3)
    reads, made = Reads(), Pretended()
    datums = [datum(size) for size in sizes]
    loss = await recomputed_loss(reads, made.compute, run_with(), continuing(reads), datums)
    assert loss == sum(sizes)
    assert [call[1] for call in made.named("forward")] == requests


def test_a_datum_of_lists_has_its_ids_and_the_arrays_of_its_loss() -> None:
    made = datum_from({"tokens": [1, 2], "targets": [2, 3], "weights": [0.5, 0]})
    assert (made.tokens.tolist(), made.targets.tolist()) == ([1, 2], [2, 3])
    assert (made.tokens.dtype, made.targets.dtype) == (np.int32, np.int32)
    assert {name: values.tolist() for name, values in made.inputs.items()} == {"weights": [0.5, 0]}
    assert made.inputs["weights"].dtype == np.float32
    assert datum_from({"tokens": [1], "targets": [2]}).inputs == {}


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"tokens": [1], "weights": [1.0]},
        {"targets": [1], "weights": [1.0]},
        {"tokens": [1], "targets": [1, 2]},
        {"tokens": [1], "targets": [1], "weights": [1.0, 2.0]},
    ],
)
def test_a_datum_without_ids_or_of_two_lengths_is_none(arrays: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"needs tokens and targets") as refused:
        datum_from(arrays)
    assert str(sorted(arrays)) in refused.value.problem.detail
