"""What every carrier of the compute protocol must guarantee."""

import anyio
import numpy as np
import pytest

from runtime.compute.chunks import fold
from runtime.compute.losses import NO_CONFIG, LossConfig, clip_range
from runtime.compute.protocol import (
    AdamParams,
    Compute,
    Datum,
    FloatArray,
    Loss,
    Sampled,
    SamplerSpec,
    SamplingParams,
    SavedBytes,
    TrainerInit,
)
from specs.errors import Conflict, ErrorCode, InvalidInput, NotFound, PracticumError
from specs.model import LoraSpec
from tests.runtime.compute.loopback import LEAVES
from tests.runtime.compute.samples import (
    TINY,
    floats,
    ids,
    params,
    policy_datum,
    prompt,
    target_datum,
    trained_adapter,
)

pytestmark = pytest.mark.anyio

START = prompt(20)
PROBE = prompt(24, seed=99)
STEP = AdamParams(1e-2)


@pytest.fixture(params=["local", "http", pytest.param("tinker", marks=LEAVES)])
def carrier(request: pytest.FixtureRequest) -> str:
    """Every carrier: one suite, the same numbers."""
    return request.param


async def _policy_data(compute: Compute, model: str) -> list[Datum]:
    sampled = await compute.sample(SamplerSpec(model), START, params(), num_samples=3)
    return [policy_datum(START, s, a) for s, a in zip(sampled, (1.0, -1.0, 0.5), strict=True)]


async def _behaviour(compute: Compute, model: str, trainer: str) -> FloatArray:
    """What a trainer's weights make of the probe: equal weights give equal numbers."""
    saved = await compute.save_adapter(trainer)
    if model == TINY:
        assert (await compute.save_adapter(trainer)).digest == saved.digest
    return (await compute.logprobs(SamplerSpec(model, saved.digest), PROBE))[1:]


async def test_models_are_listed_and_an_unknown_one_is_named(compute: Compute, model: str) -> None:
    assert model in {model.name for model in await compute.models()}
    info = await compute.model(model)
    assert (info.trainable, info.present) == (True, True)
    assert info.backend == ("torch" if model == TINY else "tinker")
    assert (await compute.tokenizer(model)).startswith(b"{")
    with pytest.raises(NotFound) as caught:
        await compute.model("nope")
    assert caught.value.problem.code == ErrorCode.MODEL_UNKNOWN
    with pytest.raises(NotFound):
        await compute.sample(SamplerSpec("nope"), START, params())


async def test_a_seed_repeats_a_call_and_samples_of_one_call_differ(
    compute: Compute, model: str
) -> None:
    first = await compute.sample(SamplerSpec(model), START, params(), num_samples=4)
    again = await compute.sample(SamplerSpec(model), START, params(), num_samples=4)
    assert [s.tokens.tolist() for s in first] == [s.tokens.tolist() for s in again]
    assert len({tuple(s.tokens.tolist()) for s in first}) == 4
    other = await compute.sample(SamplerSpec(model), START, params(seed=8))
    assert other[0].tokens.tolist() != first[0].tokens.tolist()
    free = [await compute.sample(SamplerSpec(model), START, params(seed=None)) for _ in range(2)]
    assert free[0][0].tokens.tolist() != free[1][0].tokens.tolist()


async def test_a_stream_is_the_same_sequence_as_it_grows(compute: Compute, model: str) -> None:
    """Invariant 1: streaming changes when tokens are seen, never which."""
    for case in (params(80), params(1), SamplingParams(80, tuple(range(3, 40)), seed=5)):
        (whole,) = await compute.sample(SamplerSpec(model), START, case)
        async with compute.stream(SamplerSpec(model), START, case) as arriving:
            chunks = [chunk async for chunk in arriving]
        grown = fold(chunks)
        assert grown.tokens.tolist() == whole.tokens.tolist()
        assert grown.stop_reason == whole.stop_reason
        assert grown.logprobs is not None and whole.logprobs is not None
        np.testing.assert_allclose(grown.logprobs, whole.logprobs, atol=1e-4)
        if case.max_tokens == 80 and not case.stop:
            assert len(chunks) > 1


async def test_a_stream_fails_as_a_sample_does(compute: Compute, model: str) -> None:
    missing = SamplerSpec(model, "sha256:" + "0" * 64)
    for sampler, start, code in (
        (SamplerSpec("nope"), START, ErrorCode.MODEL_UNKNOWN),
        (missing, START, ErrorCode.ADAPTER_MISSING),
        (SamplerSpec(model), prompt(4096), ErrorCode.PROMPT_TOO_LONG),
        (SamplerSpec(model), ids(), ErrorCode.INVALID_DOCUMENT),
    ):
        with pytest.raises(PracticumError) as caught:
            async with compute.stream(sampler, start, params()) as chunks:
                async for _ in chunks:
                    pass
        assert caught.value.problem.code == code


async def test_leaving_a_stream_frees_its_place(compute: Compute, model: str) -> None:
    """More streams than a batch has places are left early, by leaving and by cancelling."""
    if model != TINY:
        pytest.skip("the service's SDK gives whole sequences: a stream is left when it is over")
    for _ in range(20):
        async with compute.stream(SamplerSpec(model), START, params(4000)) as chunks:
            assert len((await anext(chunks)).tokens) >= 1

    async def endless() -> None:
        async with compute.stream(SamplerSpec(model), START, params(4000)) as chunks:
            async for _ in chunks:
                pass

    with anyio.move_on_after(0.3):
        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(endless)
    with anyio.fail_after(30):
        assert len((await compute.sample(SamplerSpec(model), START, params(4)))[0].tokens) == 4


async def test_a_stop_token_ends_and_stays_and_an_empty_stop_never_ends(
    compute: Compute, model: str
) -> None:
    free = (await compute.sample(SamplerSpec(model), START, params(30)))[0]
    assert free.stop_reason == "length"
    assert len(free.tokens) == 30
    stop = int(free.tokens[4])
    where = free.tokens.tolist().index(stop)
    stopped = (await compute.sample(SamplerSpec(model), START, params(30, stop=(stop,))))[0]
    assert stopped.stop_reason == "stop"
    assert stopped.tokens.tolist() == free.tokens[: where + 1].tolist()


async def test_temperature_zero_is_greedy_and_top_k_one_agrees(
    compute: Compute, model: str
) -> None:
    greedy = await compute.sample(SamplerSpec(model), START, SamplingParams(8, (), temperature=0.0))
    top = await compute.sample(SamplerSpec(model), START, SamplingParams(8, (), top_k=1, seed=1))
    narrow = await compute.sample(
        SamplerSpec(model), START, SamplingParams(8, (), top_p=1e-6, seed=2)
    )
    assert greedy[0].tokens.tolist() == top[0].tokens.tolist() == narrow[0].tokens.tolist()


async def test_logprobs_are_untempered(compute: Compute, model: str) -> None:
    sampled = (
        await compute.sample(SamplerSpec(model), START, SamplingParams(8, (), 0.3, top_k=5, seed=1))
    )[0]
    full = np.concatenate((START, sampled.tokens))
    whole = await compute.logprobs(SamplerSpec(model), full)
    assert np.isnan(whole[0])
    assert sampled.logprobs is not None
    np.testing.assert_allclose(whole[len(START) :], sampled.logprobs, atol=1e-4)


async def test_sampler_and_trainer_agree_on_an_adapter(compute: Compute, model: str) -> None:
    """Parity ≤ 1e-4 with a non-zero adapter and ragged lengths, sampled concurrently."""
    sampler = await trained_adapter(compute, model=model)
    starts = [prompt(n, seed=n) for n in (1, 5, 17, 40, 41)]
    sampled: list[list[Sampled]] = [[] for _ in starts]

    async def one(index: int) -> None:
        sampled[index] = await compute.sample(sampler, starts[index], params(9), num_samples=2)

    async with anyio.create_task_group() as group:
        for index in range(len(starts)):
            group.start_soon(one, index)
    data = [
        policy_datum(start, s, 1.0) for start, two in zip(starts, sampled, strict=True) for s in two
    ]
    result = await compute.forward("warmup", data, Loss.IMPORTANCE_SAMPLING, backward=False)
    for datum, logprobs in zip(data, result.logprobs, strict=True):
        mask = datum.inputs["advantages"] != 0
        assert np.abs(logprobs - datum.inputs["logprobs"])[mask].max() <= 1e-4
        assert len(logprobs) == len(datum.tokens)


async def test_on_policy_loss_is_minus_the_sum_of_advantages(compute: Compute, model: str) -> None:
    data = await _policy_data(compute, model)
    await compute.create_trainer("t", TrainerInit(model))
    result = await compute.forward("t", data, Loss.IMPORTANCE_SAMPLING, backward=True)
    expected = -sum(float(datum.inputs["advantages"].sum()) for datum in data)
    assert result.loss_sum == pytest.approx(expected, abs=1e-2)


async def test_policy_losses_equal_their_formulas(compute: Compute, model: str) -> None:
    """Off policy, from the log-probs that the backend itself returns."""
    data = await _policy_data(compute, model)
    for number, datum in enumerate(data):
        datum.inputs["logprobs"][:] += np.float32(0.3 if number % 2 else -0.3)
    await compute.create_trainer("t", TrainerInit(model))
    narrow = LossConfig(clip_low_threshold=0.9, clip_high_threshold=1.1)
    for loss, config in (
        (Loss.IMPORTANCE_SAMPLING, NO_CONFIG),
        (Loss.PPO, NO_CONFIG),
        (Loss.PPO, narrow),
        (Loss.CISPO, NO_CONFIG),
        (Loss.CISPO, narrow),
    ):
        result = await compute.forward("t", data, loss, backward=True, config=config)
        expected = 0.0
        for datum, logprobs in zip(data, result.logprobs, strict=True):
            counts = datum.inputs["advantages"] != 0
            new, advantages = logprobs[counts], datum.inputs["advantages"][counts]
            ratio = np.exp(new - datum.inputs["logprobs"][counts])
            clip = clip_range(loss, config)
            bounded = ratio if clip is None else np.clip(ratio, clip.low, clip.high)
            gains = np.minimum(ratio * advantages, bounded * advantages)
            expected -= float((bounded * new * advantages if loss is Loss.CISPO else gains).sum())
        assert result.loss_sum == pytest.approx(expected, rel=1e-3, abs=1e-3), (loss, config)


async def test_thresholds_that_make_no_sense_are_refused(compute: Compute, model: str) -> None:
    data = await _policy_data(compute, model)
    await compute.create_trainer("t", TrainerInit(model))
    for loss, config in (
        (Loss.IMPORTANCE_SAMPLING, LossConfig(clip_high_threshold=1.2)),
        (Loss.PPO, LossConfig(1.2, 0.8)),
    ):
        with pytest.raises(InvalidInput):
            await compute.forward("t", data, loss, backward=True, config=config)


async def test_operations_of_a_trainer_run_in_the_order_of_their_calls(
    compute: Compute, model: str
) -> None:
    """A step submitted while forward runs applies that forward's gradient."""
    data = [target_datum(prompt(60, seed)) for seed in range(4)]
    await compute.create_trainer("t", TrainerInit(model))
    losses: list[float] = []
    norms: list[float] = []

    async def forward() -> None:
        result = await compute.forward("t", data, Loss.CROSS_ENTROPY, backward=True)
        losses.append(result.loss_sum)

    async def step() -> None:
        norms.append((await compute.optim_step("t", STEP))["grad_norm"])

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(forward)
            group.start_soon(step)
    assert losses == sorted(losses, reverse=True)
    assert all(norm > 0 for norm in norms)
    assert (await compute.optim_step("t", STEP))["step"] == 4


async def test_an_adapter_is_a_snapshot(compute: Compute, model: str) -> None:
    sampler = await trained_adapter(compute, model=model)
    before = await compute.logprobs(sampler, START)
    await compute.forward("warmup", [target_datum(START)], Loss.CROSS_ENTROPY, backward=True)
    await compute.optim_step("warmup", STEP)
    np.testing.assert_array_equal(before, await compute.logprobs(sampler, START))
    moved = SamplerSpec(model, (await compute.save_adapter("warmup")).digest)
    assert np.abs(before - await compute.logprobs(moved, START))[1:].max() > 1e-3
    base = await compute.logprobs(SamplerSpec(model), START)
    assert np.abs(before - base)[1:].max() > 1e-3


async def test_a_fresh_adapter_changes_nothing(compute: Compute, model: str) -> None:
    await compute.create_trainer("t", TrainerInit(model))
    fresh = SamplerSpec(model, (await compute.save_adapter("t")).digest)
    np.testing.assert_allclose(
        await compute.logprobs(fresh, START),
        await compute.logprobs(SamplerSpec(model), START),
        atol=1e-5,
    )


async def test_a_warm_resume_equals_the_uninterrupted_run_and_a_cold_one_does_not(
    compute: Compute, model: str
) -> None:
    await trained_adapter(compute, "t", model=model)
    saved = await compute.save_state("t", "upd_1")
    assert await compute.find_state("upd_1") == saved
    await compute.create_trainer("warm", TrainerInit(model, state="upd_1"))
    await compute.create_trainer("cold", TrainerInit(model, state="upd_1", with_optimizer=False))
    assert [
        t.steps for t in [await compute.trainer("warm"), await compute.trainer("cold")] if t
    ] == [3, 0]
    behaviours: list[FloatArray] = []
    for trainer in ("t", "warm", "cold"):
        await compute.forward(trainer, [target_datum(START)], Loss.CROSS_ENTROPY, backward=True)
        await compute.optim_step(trainer, STEP)
        behaviours.append(await _behaviour(compute, model, trainer))
    np.testing.assert_array_equal(behaviours[0], behaviours[1])
    assert np.abs(behaviours[0] - behaviours[2]).max() > 1e-3


async def test_a_trainer_can_start_from_an_adapter(compute: Compute, model: str) -> None:
    sampler = await trained_adapter(compute, model=model)
    await compute.create_trainer("t", TrainerInit(model, adapter=sampler.adapter))
    if model == TINY:
        assert (await compute.save_adapter("t")).digest == sampler.adapter
    np.testing.assert_array_equal(
        await _behaviour(compute, model, "t"), (await compute.logprobs(sampler, PROBE))[1:]
    )
    info = await compute.trainer("t")
    assert info is not None
    assert (info.steps, info.lora.seed) == (0, 3)


async def test_a_failing_forward_fails_alone_and_changes_no_gradient(
    compute: Compute, model: str
) -> None:
    good = target_datum(prompt(30))
    for trainer in ("clean", "hurt"):
        await compute.create_trainer(trainer, TrainerInit(model))
        await compute.forward(trainer, [good], Loss.CROSS_ENTROPY, backward=True)
    bad = [
        [good, Datum(ids(1, 2), ids(1), {"weights": floats([1, 1])})],
        [good, Datum(ids(1, 259), ids(1, 1), {"weights": floats([1, 1])})],
        [good, Datum(ids(1, 2), ids(-1, 1), {"weights": floats([1, 1])})],
        [good, target_datum(ids(1, 2, 3), [1.0, float("nan")])],
        [good, target_datum(ids(1, 2, 3), [1.0, float("inf")])],
        [good, target_datum(ids(1, 2, 3), [3e38, 3e38])],
        [good, Datum(ids(1, 2), ids(2, 3), {})],
        [good, Datum(ids(), ids(), {"weights": floats([])})],
    ]
    for data in bad:
        with pytest.raises(InvalidInput):
            await compute.forward("hurt", data, Loss.CROSS_ENTROPY, backward=True)
    stale = Datum(
        ids(1, 2), ids(2, 3), {"logprobs": floats([-500, -500]), "advantages": floats([1, 1])}
    )
    with pytest.raises(InvalidInput, match="not finite"):
        await compute.forward("hurt", [stale], Loss.IMPORTANCE_SAMPLING, backward=True)
    for trainer in ("clean", "hurt"):
        await compute.optim_step(trainer, STEP)
    first, second = [await _behaviour(compute, model, t) for t in ("clean", "hurt")]
    np.testing.assert_array_equal(first, second)


async def test_bad_optimizer_parameters_keep_the_gradient_and_a_step_clears_it(
    compute: Compute, model: str
) -> None:
    await compute.create_trainer("t", TrainerInit(model))
    data = [target_datum(prompt(30))]
    await compute.forward("t", data, Loss.CROSS_ENTROPY, backward=True)
    with pytest.raises(InvalidInput):
        await compute.optim_step("t", AdamParams(-1.0))
    assert (await compute.optim_step("t", STEP))["grad_norm"] > 0
    assert (await compute.optim_step("t", STEP))["grad_norm"] == 0


async def test_logprobs_may_be_missing_where_nothing_is_learned(
    compute: Compute, model: str
) -> None:
    """Invariant 6: observations have no log-probability and must not matter."""
    datum = (await _policy_data(compute, model))[0]
    unknown = np.where(datum.inputs["advantages"] == 0, np.nan, datum.inputs["logprobs"])
    inputs = {"logprobs": unknown.astype(np.float32), "advantages": datum.inputs["advantages"]}
    await compute.create_trainer("t", TrainerInit(model))
    partial = Datum(datum.tokens, datum.targets, inputs)
    losses = [
        (await compute.forward("t", [d], Loss.IMPORTANCE_SAMPLING, backward=True)).loss_sum
        for d in (datum, partial)
    ]
    assert losses[0] == losses[1]


async def test_a_saved_name_is_taken_once_and_can_be_brought_back(
    compute: Compute, model: str
) -> None:
    """Invariant 8: whether a state of that name exists tells whether the step was applied."""
    await trained_adapter(compute, "t", model=model)
    saved = await compute.save_state("t", "upd_1")
    with pytest.raises(Conflict) as caught:
        await compute.save_state("t", "upd_1")
    assert caught.value.problem.code == ErrorCode.STATE_CONFLICT
    data = await compute.get_state("upd_1")
    assert len(data) == saved.size
    assert await compute.put_state("upd_1", data) == saved
    with pytest.raises(Conflict):
        await compute.put_state("upd_1", data + b"x")
    await compute.drop_state("upd_1")
    await compute.drop_state("upd_1")
    assert await compute.find_state("upd_1") is None
    with pytest.raises(NotFound):
        await compute.get_state("upd_1")
    assert await compute.put_state("upd_1", data) == saved


async def test_a_missing_adapter_can_be_put_and_wrong_bytes_are_refused(
    compute: Compute, model: str
) -> None:
    sampler = await trained_adapter(compute, model=model)
    assert sampler.adapter is not None
    data = await compute.get_adapter(sampler.adapter)
    other = "sha256:" + "0" * 64
    assert not await compute.has_adapter(other)
    with pytest.raises(NotFound) as caught:
        await compute.sample(SamplerSpec(model, other), START, params())
    assert caught.value.problem.code == ErrorCode.ADAPTER_MISSING
    with pytest.raises(InvalidInput) as mismatch:
        await compute.put_adapter(other, data)
    assert mismatch.value.problem.code == ErrorCode.DIGEST_MISMATCH
    await compute.put_adapter(sampler.adapter, data)
    assert await compute.has_adapter(sampler.adapter)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200])
async def test_names_cannot_leave_the_state_folder(compute: Compute, name: str) -> None:
    with pytest.raises(InvalidInput):
        await compute.find_state(name)
    with pytest.raises(InvalidInput):
        await compute.has_adapter(name)


async def test_opening_a_trainer_twice_gives_the_same_and_closing_ends_it(
    compute: Compute, model: str
) -> None:
    init = TrainerInit(model, LoraSpec(rank=4))
    first = await compute.create_trainer("t", init)
    assert await compute.create_trainer("t", init) == first
    with pytest.raises(Conflict):
        await compute.create_trainer("t", TrainerInit(model, LoraSpec(rank=2)))
    health = await compute.health()
    assert (health.trainers, health.trainers_created) == (("t",), 1)
    assert health.incarnation == first.incarnation
    await compute.close_trainer("t")
    await compute.close_trainer("t")
    assert await compute.trainer("t") is None
    with pytest.raises(NotFound) as caught:
        await compute.optim_step("t", STEP)
    assert caught.value.problem.code == ErrorCode.TRAINER_MISSING


async def test_nothing_submitted_before_closing_is_applied_after_it(
    compute: Compute, model: str
) -> None:
    await compute.create_trainer("t", TrainerInit(model))
    data = [target_datum(prompt(200, seed)) for seed in range(8)]
    failures: list[PracticumError] = []
    there: list[SavedBytes | None] = []

    async def queued(name: str) -> None:
        try:
            await compute.forward("t", data, Loss.CROSS_ENTROPY, backward=True)
            await compute.save_state("t", name)
        except PracticumError as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        for index in range(4):
            group.start_soon(queued, f"late-{index}")
        await anyio.sleep(0.05)
        await compute.close_trainer("t")
        there += [await compute.find_state(f"late-{index}") for index in range(4)]
    assert there == [await compute.find_state(f"late-{index}") for index in range(4)]
    assert {error.problem.code for error in failures} == {ErrorCode.TRAINER_MISSING}


async def test_prompts_that_do_not_fit_are_refused(compute: Compute, model: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await compute.sample(SamplerSpec(model), prompt(4096), params())
    assert caught.value.problem.code == ErrorCode.PROMPT_TOO_LONG
    for bad in (ids(), ids(259), ids(-1)):
        with pytest.raises(InvalidInput):
            await compute.sample(SamplerSpec(model), bad, params())
    last = (await compute.sample(SamplerSpec(model), prompt(4094), params(9)))[0]
    assert (len(last.tokens), last.stop_reason) == (2, "length")


@pytest.mark.parametrize(
    "bad",
    [
        SamplingParams(0, ()),
        SamplingParams(1, (), temperature=-1),
        SamplingParams(1, (), top_p=0),
        SamplingParams(1, (), top_k=0),
        SamplingParams(1, (999,)),
    ],
)
async def test_meaningless_sampling_parameters_are_refused(
    compute: Compute, model: str, bad: SamplingParams
) -> None:
    with pytest.raises(InvalidInput):
        await compute.sample(SamplerSpec(model), START, bad)


async def test_cancelling_a_sample_frees_its_place(compute: Compute, model: str) -> None:
    """A full batch of endless samples is cancelled, then another gets through."""
    await compute.sample(SamplerSpec(model), START, params(1))  # connected: not that is cancelled
    with anyio.move_on_after(1):
        await compute.sample(SamplerSpec(model), START, params(4000), num_samples=64)
    with anyio.fail_after(120):
        assert len((await compute.sample(SamplerSpec(model), START, params(4)))[0].tokens) == 4
