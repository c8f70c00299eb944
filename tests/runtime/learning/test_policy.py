"""Where a policy stands follows from the records, and what compute lacks is brought to it."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.compute.protocol import TrainerInfo
from runtime.learning.policy import (
    Policy,
    adam_params,
    after_update,
    bring_adapter,
    initial_policy,
    learning_plan,
    policy_before,
    require_shape,
    settled_batches,
    trainer_init,
)
from specs.errors import ErrorCode, InvalidInput
from specs.model import LoraSpec, Optimizer
from specs.plans import EvaluationPlan
from specs.records import Update, UpdateState
from specs.worker_api import RunRecords
from tests.runtime.learning.pretended import Pretended, Store
from tests.runtime.learning.told import (
    CHECKPOINTS,
    FIRST,
    RUN,
    SAMPLERS,
    SECOND,
    SKIPPED,
    STATES,
    VOID,
    name,
    sampler,
    spec_of,
    training_plan,
    update_of,
)

LORA = LoraSpec(rank=2, alpha=8.0)
RESUME = {"optimizer_initialization": "resume"}


def after(update: str, batch: int, number: int, **changes: Any) -> Update:
    known = {"state_digest": STATES[number], "sampler_after": SAMPLERS[number + 1]}
    return update_of(update, batch, UpdateState.ACKNOWLEDGED, **{**known, **changes})


def records(*updates: Update) -> RunRecords:
    return RunRecords(
        batches=[],
        groups=[],
        trials=[],
        samplers=[sampler(number) for number in range(3)],
        updates=list(updates),
        checkpoints=[],
    )


def test_an_evaluation_has_no_plan_to_learn_by() -> None:
    assert learning_plan(spec_of(training_plan())) == training_plan()
    with pytest.raises(InvalidInput, match="no updates"):
        learning_plan(spec_of(EvaluationPlan(trials_per_task=1)))


def test_every_parameter_of_an_optimizer_step_is_the_plans() -> None:
    optimizer = Optimizer(beta1=0.5, beta2=0.75, eps=1e-3, weight_decay=0.25)
    params = adam_params(
        training_plan(learning_rate=0.125, grad_clip_norm=2.0, optimizer=optimizer)
    )
    assert (params.learning_rate, params.beta1, params.beta2) == (0.125, 0.5, 0.75)
    assert (params.eps, params.weight_decay, params.grad_clip_norm) == (1e-3, 0.25, 2.0)


def test_a_run_begins_on_its_sampler_or_resumes_its_checkpoints_state() -> None:
    named = {"initial_checkpoint": CHECKPOINTS[0], "initial_state": STATES[0]}
    assert initial_policy(spec_of(training_plan(), **named)) == Policy(sampler(0))
    resumed = initial_policy(spec_of(training_plan(**RESUME), **named))
    assert resumed == Policy(sampler(0), f"{RUN}.{CHECKPOINTS[0]}", STATES[0], CHECKPOINTS[0])
    other = initial_policy(spec_of(training_plan(**RESUME), **named, id=name("run", 1)))
    assert other.state != resumed.state  # each run brings and drops its own copy
    assert other.source == resumed.source == CHECKPOINTS[0]
    for missing in named:
        given = {**named, missing: None}
        with pytest.raises(InvalidInput, match="names no checkpoint") as refused:
            initial_policy(spec_of(training_plan(**RESUME), **given))
        assert refused.value.problem.code == ErrorCode.RESUME_INCOMPATIBLE


def test_a_batch_samples_from_the_last_update_acknowledged_before_it_invariant_7() -> None:
    spec = spec_of(training_plan())
    made = records(
        after(SECOND, 1, 1),  # in whatever order they are listed
        after(FIRST, 0, 0),
        update_of(SKIPPED, 2, UpdateState.SKIPPED),
        update_of(VOID, 2, UpdateState.VOID),
    )
    found = [policy_before(spec, made, batch) for batch in range(4)]
    first = Policy(sampler(1), FIRST, STATES[0])
    second = Policy(sampler(2), SECOND, STATES[1])
    assert found == [Policy(sampler(0)), first, second, second]


def test_a_batch_is_over_once_its_update_is_acknowledged_or_skipped() -> None:
    states = list(UpdateState)
    updates = [update_of(VOID, number, state) for number, state in enumerate(states)]
    over = {UpdateState.ACKNOWLEDGED, UpdateState.SKIPPED}
    assert settled_batches(updates) == {n for n, state in enumerate(states) if state in over}


def test_an_applied_update_leaves_a_new_sampler_and_its_own_state() -> None:
    before = Policy(sampler(1), FIRST, STATES[0])
    adapter = sampler(2).adapter
    assert adapter is not None
    found = after_update(before, adapter=adapter, state=SECOND, state_digest=STATES[1])
    assert found.sampler.id not in SAMPLERS
    assert found.sampler.model_copy(update={"id": SAMPLERS[2]}) == sampler(2)
    assert (found.state, found.state_digest) == (SECOND, STATES[1])
    resumed = replace(before, checkpoint=CHECKPOINTS[0])
    found = after_update(resumed, adapter=adapter, state=SECOND, state_digest=STATES[1])
    assert (found.checkpoint, found.source) == (None, SECOND)


@pytest.mark.anyio
async def test_a_state_is_brought_to_a_compute_that_lacks_it_and_to_no_other() -> None:
    store, lacking = Store(), Pretended()
    policy = Policy(sampler(1), FIRST, store.put(b"state"))
    init = await trainer_init(lacking.compute, store, policy, LORA)
    assert (init.base_model, init.lora, init.state, init.adapter) == ("tiny", LORA, FIRST, None)
    assert lacking.named("put_state") == [(FIRST, b"state")]
    having = Pretended(states={FIRST})
    assert await trainer_init(having.compute, store, policy, LORA) == init
    assert having.named("put_state") == []


@pytest.mark.anyio
async def test_an_adapter_is_brought_to_a_compute_that_lacks_it_and_to_no_other() -> None:
    store = Store()
    lacking = Pretended()
    adapted = sampler(1).model_copy(update={"adapter": store.put(b"weights")})
    init = await trainer_init(lacking.compute, store, Policy(adapted), LORA)
    assert (init.base_model, init.lora, init.state) == ("tiny", LORA, None)
    assert init.adapter == adapted.adapter
    assert lacking.named("put_adapter") == [(adapted.adapter, b"weights")]
    await bring_adapter(lacking.compute, store, adapted)
    await bring_adapter(lacking.compute, store, sampler(0))  # the base model needs none
    assert len(lacking.named("put_adapter")) == len(store.reads) == 1


@pytest.mark.parametrize(
    "planned", [LoraSpec(rank=4, alpha=8.0), LoraSpec(rank=2, alpha=9.0), LORA]
)
def test_an_adapter_of_another_shape_is_not_trained_on(planned: LoraSpec) -> None:
    trainer = TrainerInfo("trn", "one", "tiny", LORA, steps=0)
    if planned == LORA:
        require_shape(trainer, planned)
        return
    with pytest.raises(InvalidInput, match=rf"rank 2 and alpha 8.*rank {planned.rank}") as refused:
        require_shape(trainer, planned)
    assert refused.value.problem.code == ErrorCode.RESUME_INCOMPATIBLE
