"""No trainer and no state that is not wanted outlives the claims of its run (invariant 12)."""

from typing import cast

import pytest

from runtime.execution.context import RunContext
from runtime.learning.leftovers import recovery_trainer, sweep
from runtime.learning.warm import scratch_trainers
from specs.records import Update, UpdateState
from tests.runtime.learning.pretended import Pretended
from tests.runtime.learning.test_session import Context, after
from tests.runtime.learning.told import (
    CHECKPOINTS,
    FIRST,
    RUN,
    SECOND,
    STATES,
    VOID,
    name,
    spec_of,
    training_plan,
    update_of,
)

UPDATES = [after(FIRST, 0), after(SECOND, 1), update_of(VOID, 2, UpdateState.UNRESOLVED)]
FENCE = 3


async def swept(trainers: list[str], *, over: bool = False) -> Pretended:
    """The compute after the sweep of a run's third claim."""
    compute = Pretended(trainers=trainers)
    context = Context(compute=compute, updates=UPDATES)
    assert context.claim.fence == FENCE
    await sweep(cast(RunContext, context), over=over)
    return compute


@pytest.mark.anyio
async def test_every_trainer_that_an_earlier_claim_may_have_opened_is_closed_invariant_12() -> None:
    announced = [name("trn", number) for number in range(3)]
    recovering = [recovery_trainer(update.id, 2) for update in UPDATES]
    left = [*announced, *recovering, *scratch_trainers(RUN, 1), *scratch_trainers(RUN, 2)]
    others = [name("trn", 9), *scratch_trainers(RUN, FENCE), recovery_trainer(VOID, FENCE)]
    compute = await swept([*left, *others])
    assert sorted(call[0] for call in compute.named("close_trainer")) == sorted(left)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("over", "dropped"),
    [(False, [FIRST]), (True, [FIRST, SECOND])],
    ids=["goes on", "is over"],
)
async def test_only_a_run_that_goes_on_keeps_its_last_state_and_an_undecided_one_stays(
    over: bool, dropped: list[str]
) -> None:
    compute = await swept([], over=over)
    assert compute.named("drop_state") == [(state,) for state in dropped]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("updates", "over", "drops"),
    [([], False, False), ([after(FIRST, 0)], False, True), ([], True, True)],
    ids=["still to be resumed", "gone on", "over"],
)
async def test_a_runs_copy_of_the_state_that_it_resumed_goes_once_it_is_not_wanted(
    updates: list[Update], over: bool, drops: bool
) -> None:
    plan = training_plan(optimizer_initialization="resume")
    named = {"initial_checkpoint": CHECKPOINTS[0], "initial_state": STATES[0]}
    context = Context(spec=spec_of(plan, **named), updates=updates)
    await sweep(cast(RunContext, context), over=over)
    copy = (f"{RUN}.{CHECKPOINTS[0]}",)
    assert context.compute.named("drop_state") == ([copy] if drops else [])
