"""What a fingerprint step must show before a resumed run goes on."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from runtime.compute.protocol import ForwardResult
from runtime.execution.context import RunContext
from runtime.learning.policy import Policy
from runtime.learning.warm import PROBE, PROBE_RATE, Warmth, prove_warm, scratch_trainers
from specs.errors import ErrorCode, InvalidInput, Unavailable
from specs.records import Checkpoint, CheckpointContext
from specs.run import RunSpec
from tests.runtime.learning.pretended import Pretended, Store
from tests.runtime.learning.told import (
    CHECKPOINTS,
    FIRST,
    RUN,
    STATES,
    checkpoint_of,
    sampler,
    spec_of,
    training_plan,
)


@dataclass
class Warming(Pretended):
    """Trainers whose log-probs are `before`, and `after` once a step was taken; two each: of the
    trainer with its optimizer, and of the one without."""

    before: tuple[float, float] = (0.0, 0.0)
    after: tuple[float, float] = (0.5, 0.0)
    data: list[Any] = field(default_factory=list[Any])

    async def forward(self, trainer: str, data: Any, *rest: Any, **options: Any) -> ForwardResult:
        await super().forward(trainer, data, *rest, **options)
        self.data = list(data)
        cold = not self.inits[-1].with_optimizer
        stepped = (trainer,) in [call[:1] for call in self.named("optim_step")]
        value = (self.after if stepped else self.before)[cold]
        values = np.zeros(len(data[0].tokens), np.float32)
        values[3] = value
        return ForwardResult([values], 0.0)


@dataclass
class Claimed:
    fence: int


@dataclass
class Context:
    """The little of a run that the proof looks at."""

    compute: Pretended
    spec: RunSpec
    claim: Claimed = field(default_factory=lambda: Claimed(2))
    client: Store = field(default_factory=Store)
    run: str = RUN
    logged: list[str] = field(default_factory=list[str])

    def log(self, text: str) -> None:
        self.logged.append(text)


def checkpoint(steps: int) -> Checkpoint:
    spec = spec_of(training_plan())
    return checkpoint_of(0, FIRST).model_copy(
        update={
            "context": CheckpointContext(
                plan=spec.plan_digest,
                backend="torch",
                base_digest=sampler(0).base_digest,
                optimizer=training_plan().optimizer,
                steps=steps,
                batches=1,
            )
        }
    )


def context(made: Pretended) -> Context:
    plan = training_plan(learning_rate=0.25, grad_clip_norm=1.0)
    return Context(made, spec_of(plan, initial_checkpoint=CHECKPOINTS[0]))


async def proved(
    made: Pretended, known: Checkpoint | None = None, ctx: Context | None = None
) -> Warmth:
    policy = Policy(sampler(0), CHECKPOINTS[0], STATES[0])
    return await prove_warm(cast(RunContext, ctx or context(made)), policy, known)


@pytest.mark.anyio
async def test_a_warm_optimizer_is_told_from_a_cold_one_by_its_step() -> None:
    made = Warming(steps=7, states={CHECKPOINTS[0]})
    found = await proved(made, checkpoint(7))
    assert found == Warmth(7, 0.5)
    assert found.measures == {"resume_steps": 7.0, "resume_warm_difference": 0.5}
    warm, cold = scratch_trainers(RUN, 2)
    assert made.named("create_trainer") == [(warm,), (cold,)]
    assert [init.with_optimizer for init in made.inits] == [True, False]
    assert {init.state for init in made.inits} == {CHECKPOINTS[0]}
    backward = [call[3] for call in made.named("forward")]
    assert backward == [True, False, True, False]
    for _, params in made.named("optim_step"):
        assert (params.learning_rate, params.grad_clip_norm) == (PROBE_RATE, 0.0)
    (probe,) = made.data
    assert (probe.tokens.tolist(), probe.targets.tolist()) == (list(PROBE[:-1]), list(PROBE[1:]))
    assert probe.inputs["weights"].sum() == pytest.approx(1)


@pytest.mark.anyio
async def test_trainers_of_this_claim_and_of_earlier_ones_are_closed() -> None:
    made = Warming(states={CHECKPOINTS[0]})
    await proved(made)
    earlier = [*scratch_trainers(RUN, 1), *scratch_trainers(RUN, 2)]
    closed = [trainer for (trainer,) in made.named("close_trainer")]
    assert closed == [*earlier, *scratch_trainers(RUN, 2)]
    assert len({*earlier, *scratch_trainers("run_other", 1)}) == 6


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("made", "recorded", "says"),
    [
        (Warming(before=(0.0, 1.1e-4)), None, "opened twice from one state differ by 0.00011"),
        (Warming(steps=6), 7, "counts 6 optimizer steps, and 7 are on record"),
        (Warming(after=(0.0, 0.0)), None, "came back cold"),
        (Warming(after=(0.9e-6, 0.0)), None, "came back cold"),
        (Warming(before=(1e-5, 0.0), after=(0.9e-4, 0.0)), None, "came back cold"),
        (Warming(after=(0.0, 1.1e-6)), None, None),  # whichever its sign
        (Warming(before=(1e-5, 0.0), after=(1.1e-4, 0.0)), None, None),
        (Warming(before=(0.9e-4, 0.0)), None, None),
    ],
)
async def test_a_step_that_shows_no_optimizer_stops_the_run(
    made: Warming, recorded: int | None, says: str | None
) -> None:
    made = replace(made, states={CHECKPOINTS[0]}, calls=[], inits=[])
    known = None if recorded is None else checkpoint(recorded)
    if says is None:
        await proved(made, known)
        return
    with pytest.raises(InvalidInput, match=says) as refused:
        await proved(made, known)
    assert refused.value.problem.code == ErrorCode.RESUME_INCOMPATIBLE
    assert CHECKPOINTS[0] in refused.value.problem.detail
    assert len(made.named("close_trainer")) == 6  # whatever came of it


@pytest.mark.anyio
async def test_a_compute_that_goes_away_leaves_its_trainers_to_a_later_claim() -> None:
    made = Warming(states={CHECKPOINTS[0]}, errors={"close_trainer": Unavailable("gone")})
    ctx = context(made)
    await proved(made, None, ctx)
    assert [text for text in ctx.logged if "could not be closed: " in text] == ctx.logged
    assert len(ctx.logged) == 2
