"""The training service through its real SDK, and everything that can go wrong between.

The service is the loopback one: another process, real HTTP, torch's numbers.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path

import anyio
import numpy as np
import pytest

from runtime.compute.protocol import (
    AdamParams,
    Compute,
    FloatArray,
    Loss,
    SamplerSpec,
    TrainerInit,
    Wait,
)
from runtime.compute.router import LocalCompute
from specs.errors import ErrorCode, PracticumError
from specs.model import LoraSpec
from tests.runtime.compute.loopback import LEAVES, REMOTE, Loopback, loopback
from tests.runtime.compute.samples import (
    TINY,
    params,
    policy_datum,
    prompt,
    target_datum,
    trained_adapter,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600), LEAVES]

BASE = SamplerSpec(REMOTE)
START = prompt(20)
DATA = [target_datum(prompt(30))]
STEP = AdamParams(1e-2)


@pytest.fixture
async def remote(service: Loopback, tmp_path: Path) -> AsyncGenerator[LocalCompute]:
    """A compute of this test alone."""
    async with service.compute(tmp_path / "state") as compute:
        yield compute


@pytest.fixture
def own_service(model_cache: Path, tmp_path: Path, swept: None) -> Generator[Loopback]:
    """A service of this test alone, which it may kill."""
    with loopback(tmp_path / "service") as made:
        yield made


async def problem(call: Awaitable[object]) -> PracticumError:
    """The error of a call that must fail."""
    with pytest.raises(PracticumError) as caught:
        await call
    return caught.value


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(120):
        while not await condition():  # noqa: ASYNC110 - another process makes it true
            await anyio.sleep(0.05)


async def _train(compute: Compute, model: str) -> list[FloatArray]:
    """Numbers of a run: losses, log-probs, and what the weights make of a probe at its end."""
    await compute.create_trainer("t", TrainerInit(model, LoraSpec(rank=4, seed=5)))
    numbers: list[FloatArray] = []
    for seed in range(3):
        sampled = await compute.sample(SamplerSpec(model), START, params(seed=seed))
        batch = [policy_datum(START, sampled[0], 1.0 - seed)]
        for data, loss in ((batch, Loss.IMPORTANCE_SAMPLING), (DATA, Loss.CROSS_ENTROPY)):
            result = await compute.forward("t", data, loss, backward=True)
            numbers += [np.array([result.loss_sum], np.float32), *result.logprobs]
        step = await compute.optim_step("t", AdamParams(1e-2, grad_clip_norm=1.0))
        numbers.append(np.array([step["grad_norm"], step["step"]], np.float32))
    adapter = (await compute.save_adapter("t")).digest
    numbers.append((await compute.logprobs(SamplerSpec(model, adapter), START))[1:])
    return numbers


async def test_the_service_gives_the_numbers_of_the_backend_behind_it(
    remote: LocalCompute, tmp_path: Path
) -> None:
    async with LocalCompute(tmp_path / "local") as local:
        here, there = await _train(local, TINY), await _train(remote, REMOTE)
    # Adam divides by the size of a gradient, so rounding in a tiny one moves a weight visibly.
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("key", [None, "", "sk-something-else"])
async def test_without_a_key_nothing_is_begun(
    service: Loopback, tmp_path: Path, key: str | None
) -> None:
    environment = {} if key is None else {"TINKER_API_KEY": key}
    before = service.counts()
    async with LocalCompute(
        tmp_path, tinker=service.settings(), environment=environment
    ) as compute:
        assert not (await compute.model(REMOTE)).present
        for call in (
            compute.sample(BASE, START, params()),
            compute.create_trainer("t", TrainerInit(REMOTE)),
        ):
            error = await problem(call)
            assert error.problem.code == ErrorCode.SERVICE_KEY_MISSING
            assert "TINKER_API_KEY" in str(error.problem.next)
            assert not key or key not in str(error.problem)
    assert service.counts() == before


async def test_a_key_that_the_service_refuses_is_named_and_not_shown(
    service: Loopback, tmp_path: Path
) -> None:
    environment = {"TINKER_API_KEY": "tml-revoked"}
    async with LocalCompute(
        tmp_path, tinker=service.settings(), environment=environment
    ) as compute:
        error = await problem(compute.sample(BASE, START, params()))
    assert (error.problem.status, error.problem.code) == (403, ErrorCode.SERVICE_REFUSED)
    assert "tml-revoked" not in str(error.problem)


async def test_a_service_that_no_longer_takes_this_sdk_says_so(
    service: Loopback, remote: LocalCompute
) -> None:
    detail = "this SDK version is no longer supported, please upgrade"
    service.fault("create_session", "status", status=400, detail=detail, count=2)
    error = await problem(remote.create_trainer("t", TrainerInit(REMOTE)))
    assert error.problem.code == ErrorCode.SERVICE_VERSION
    assert "pgrade practicum" in str(error.problem.next)


async def test_what_the_service_does_not_offer_is_refused_before_any_work(
    service: Loopback, remote: LocalCompute
) -> None:
    before = service.counts().get("create_model", 0)
    for model, code in (
        ("tinker/served", ErrorCode.MODEL_NOT_TRAINABLE),
        ("tinker/other", ErrorCode.MODEL_UNKNOWN),
    ):
        error = await problem(remote.create_trainer("t", TrainerInit(model)))
        assert error.problem.code == code
    assert len(await remote.sample(SamplerSpec("tinker/served"), START, params(3))) == 1
    lora = LoraSpec(rank=4, alpha=16)
    error = await problem(remote.create_trainer("t", TrainerInit(REMOTE, lora)))
    assert "alpha" in str(error)
    assert service.counts().get("create_model", 0) == before


async def _stepped(compute: LocalCompute, trainer: str) -> FloatArray:
    await compute.forward(trainer, DATA, Loss.CROSS_ENTROPY, backward=True)
    await compute.optim_step(trainer, STEP)
    adapter = (await compute.save_adapter(trainer)).digest
    return (await compute.logprobs(SamplerSpec(REMOTE, adapter), START))[1:]


async def test_a_connection_that_drops_between_submit_and_result_repeats_nothing(
    service: Loopback, remote: LocalCompute
) -> None:
    """Invariant 8: the step that was taken and not answered is applied once."""
    for trainer in ("whole", "dropped"):
        await remote.create_trainer(trainer, TrainerInit(REMOTE))
    whole = await _stepped(remote, "whole")
    before = service.counts()
    for path in ("forward_backward", "optim_step", "save_weights", "retrieve_future"):
        service.fault(path, "drop")
    dropped = await _stepped(remote, "dropped")
    after = service.counts()
    for path in ("forward_backward", "optim_step", "save_weights"):
        assert after[path] == before[path] + 2
    np.testing.assert_array_equal(whole, dropped)
    info = await remote.trainer("dropped")
    assert info is not None and info.steps == 1


async def test_rate_limits_and_pauses_are_told_and_waited_for(
    service: Loopback, tmp_path: Path
) -> None:
    """A pause with a reason is no reason to give up, however long."""
    async with service.compute(tmp_path / "state", stuck_sec=60) as compute:
        await compute.create_trainer("t", TrainerInit(REMOTE))
        await compute.sample(BASE, START, params(2))
        service.fault("retrieve_future", "paused", detail="paused_rate_limit", count=20)
        seen: list[Wait] = []

        async def told() -> bool:
            seen.extend((await compute.health()).waits)
            return bool(seen)

        async with anyio.create_task_group() as group:
            group.start_soon(_forward, compute)
            await until(told)
        (wait,) = {(w.operation, w.model, w.trainer, w.state, w.reason) for w in seen}
        assert wait == ("forward", REMOTE, "t", "rate_limited", "the test says so")
        assert not (await compute.health()).waits
        service.fault("asample", "status", status=429, detail="slow down", count=2)
        assert len(await compute.sample(BASE, START, params(2))) == 1


async def _forward(compute: LocalCompute) -> None:
    await compute.forward("t", DATA, Loss.CROSS_ENTROPY, backward=True)


@pytest.mark.parametrize("kind", ["fail", "hang"])
async def test_an_operation_that_fails_or_hangs_costs_the_trainer_and_no_more(
    service: Loopback, tmp_path: Path, kind: str
) -> None:
    """Nobody knows what the trainer holds then: it is opened again from its saved state."""
    stuck = 2.0 if kind == "hang" else 600.0
    async with service.compute(tmp_path / "state") as before:
        await before.create_trainer("first", TrainerInit(REMOTE))
        await before.forward("first", DATA, Loss.CROSS_ENTROPY, backward=True)
        await before.optim_step("first", STEP)
        await before.save_state("first", "upd_1")
    async with service.compute(tmp_path / "state", stuck_sec=stuck) as compute:
        await compute.create_trainer("t", TrainerInit(REMOTE, state="upd_1"))
        service.fault("optim_step", kind, detail="out of luck")
        error = await problem(compute.optim_step("t", STEP))
        assert error.problem.code == ErrorCode.TRAINER_MISSING
        assert ("no result" if kind == "hang" else "out of luck") in str(error)
        assert (await problem(_forward(compute))).problem.code == ErrorCode.TRAINER_MISSING
        await compute.close_trainer("t")
        await compute.create_trainer("again", TrainerInit(REMOTE, state="upd_1"))
        assert (await compute.optim_step("again", STEP))["step"] == 2


async def test_a_save_that_nobody_heard_of_is_found_or_void_for_good(
    service: Loopback, tmp_path: Path
) -> None:
    """Invariant 8: after a crash, a state under that id tells that the step was applied."""
    await _die_while_saving(service, tmp_path, "upd_1", "retrieve_future", "paused")
    async with service.compute(tmp_path / "state") as compute:
        saved = await compute.find_state("upd_1")
        assert saved is not None
        assert len(await compute.get_state("upd_1")) == saved.size
        info = await compute.create_trainer("next", TrainerInit(REMOTE, state="upd_1"))
        assert info.steps == 1
    await _die_while_saving(service, tmp_path, "upd_2", "save_weights", "hang")
    async with service.compute(tmp_path / "state") as compute:
        assert await compute.find_state("upd_2") is None
        asked = service.counts()
        assert await compute.find_state("upd_2") is None
        assert service.counts() == asked
        error = await problem(compute.get_state("upd_2"))
        assert error.problem.code == ErrorCode.NOT_FOUND


async def _die_while_saving(
    service: Loopback, folder: Path, name: str, path: str, kind: str
) -> None:
    """A compute that ends after it submitted a save and before it was told of the result."""
    async with service.compute(folder / "state") as compute:
        trainer = f"trainer-{name}"
        await compute.create_trainer(trainer, TrainerInit(REMOTE))
        await compute.forward(trainer, DATA, Loss.CROSS_ENTROPY, backward=True)
        await compute.optim_step(trainer, STEP)
        saves = service.counts().get("save_weights", 0)
        service.fault(path, kind, detail="paused_capacity", count=10_000)

        async def submitted() -> bool:
            return service.counts().get("save_weights", 0) > saves

        async with anyio.create_task_group() as group:
            group.start_soon(compute.save_state, trainer, name)
            await until(submitted)
            await anyio.sleep(1)
            group.cancel_scope.cancel()
        assert await compute.find_state(name) is None, "it may still come"
        service.reset()


@pytest.mark.slow
async def test_a_service_that_restarts_ends_trainers_and_keeps_what_was_saved(
    own_service: Loopback, tmp_path: Path
) -> None:
    async with own_service.compute(tmp_path / "state") as compute:
        sampler = await trained_adapter(compute, "t", model=REMOTE)
        await compute.save_state("t", "upd_1")
        before = await compute.logprobs(sampler, START)
        own_service.kill()
        own_service.start()
        error = await problem(compute.optim_step("t", STEP))
        assert error.problem.code == ErrorCode.TRAINER_MISSING
        np.testing.assert_array_equal(before, await compute.logprobs(sampler, START))
        assert (await compute.create_trainer("u", TrainerInit(REMOTE, state="upd_1"))).steps == 3
        own_service.ask("POST", "forget")
    async with own_service.compute(tmp_path / "state") as compute:
        for call in (
            compute.logprobs(sampler, START),
            compute.create_trainer("v", TrainerInit(REMOTE, state="upd_1")),
            compute.create_trainer("w", TrainerInit(REMOTE, adapter=sampler.adapter)),
        ):
            assert (await problem(call)).problem.code == ErrorCode.WEIGHTS_EXPIRED


async def test_closing_finishes_the_session_and_cancelling_tells_the_service(
    service: Loopback, remote: LocalCompute
) -> None:
    """Invariant 12: nothing stays open at the service."""
    await remote.create_trainer("t", TrainerInit(REMOTE))
    finished = _finished(service)
    await remote.close_trainer("t")
    assert _finished(service) == finished + 1
    await remote.sample(BASE, START, params(2))
    cancelled = service.counts().get("cancel_future", 0)
    with anyio.move_on_after(2):
        await remote.sample(BASE, START, params(4000), num_samples=4)

    async def told() -> bool:
        return service.counts().get("cancel_future", 0) > cancelled

    await until(told)


def _finished(service: Loopback) -> int:
    return sum(n for path, n in service.counts().items() if path.endswith("/finish"))
