"""Where a claim takes a run up, and what it records of a batch that teaches nothing."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest

from runtime.compute.losses import Loss
from runtime.execution.context import Blocked, ClaimLost, RunCancelled, RunContext
from runtime.learning.leftovers import recovery_trainer
from runtime.learning.resolution import MAX_REDONE
from runtime.learning.session import Learning, learning
from runtime.learning.warm import Warmth
from runtime.learning.work import KnownWork, Part, Terms
from specs.errors import ErrorCode, InvalidInput, NotFound, Unavailable
from specs.objective import KlPenalty
from specs.records import Batch, Update, UpdateState
from specs.run import RunSpec
from specs.worker_api import RunRecords, UpdateSkipped
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


@dataclass
class Claim:
    fence: int = 3


@dataclass
class Context:
    """The little of a claimed run that learning looks at here."""

    spec: RunSpec = field(default_factory=lambda: spec_of(training_plan()))
    compute: Pretended = field(default_factory=Pretended)
    client: Store = field(default_factory=Store)
    claim: Claim = field(default_factory=Claim)
    run: str = RUN
    updates: Sequence[Update] = ()
    batches: Sequence[Batch] = ()
    cancelling: anyio.Event = field(default_factory=anyio.Event)
    lost: bool = False
    written: list[Any] = field(default_factory=list[Any])
    logged: list[str] = field(default_factory=list[str])

    @property
    def records(self) -> RunRecords:
        return RunRecords(
            batches=list(self.batches),
            groups=[],
            trials=[],
            samplers=[sampler(number) for number in range(3)],
            updates=list(self.updates),
            checkpoints=[],
        )

    def check(self) -> None:
        """Nobody asks to stop."""

    async def beat(self) -> None:
        if self.lost:
            raise ClaimLost(self.run)

    def log(self, text: str) -> None:
        self.logged.append(text)

    async def write(self, *writes: Any) -> None:
        self.written += writes


def session(context: Context, batches: int = 3) -> Learning:
    return Learning(cast(RunContext, context), batches, 0.0)


def after(update: str, batch: int) -> Update:
    known = {"state_digest": STATES[batch], "sampler_after": SAMPLERS[batch + 1]}
    return update_of(update, batch, UpdateState.ACKNOWLEDGED, **known)


def begun(number: int, *, settled: bool) -> Batch:
    return Batch(batch=number, sampler=SAMPLERS[0], tasks=(), settled=settled)


def test_a_claim_goes_on_from_the_first_batch_that_is_open() -> None:
    fresh = session(Context())
    assert (fresh.done, fresh.policy.sampler, fresh.policy.state) == (set(), sampler(0), None)
    one = session(Context(updates=[after(FIRST, 0), update_of(VOID, 1, UpdateState.VOID)]))
    assert (one.done, one.policy.sampler, one.policy.state) == ({0}, sampler(1), FIRST)
    skipped = update_of(SKIPPED, 2, UpdateState.SKIPPED)
    every = session(Context(updates=[after(FIRST, 0), after(SECOND, 1), skipped]))
    assert (every.done, every.policy.state) == ({0, 1, 2}, SECOND)


def test_what_earlier_claims_began_and_judged_is_known_by_batch() -> None:
    known = [begun(0, settled=True), begun(1, settled=False)]
    found = session(Context(batches=known))
    assert [found.started(number) for number in range(3)] == [True, True, False]
    assert [found.judged(number) for number in range(3)] == [True, False, False]
    assert [found.final(number) for number in range(3)] == [False, False, True]


def work(**values: Any) -> KnownWork:
    known: dict[str, Any] = {"census": {"groups": 1}, "measures": {"reward_mean": 0.5}}
    return KnownWork(1, Loss.PPO, (), final=False, **{**known, **values})


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (Terms(), "no group of the batch has a learnable difference in reward"),
        (Terms(kl=KlPenalty(coefficient=1)), "no trial of the batch can be learnt from"),
    ],
)
async def test_a_batch_that_teaches_nothing_is_skipped_with_what_was_measured(
    terms: Terms, reason: str
) -> None:
    context = Context()
    made = session(context)
    await made.update(work(terms=terms))
    (written,) = context.written
    assert isinstance(written, UpdateSkipped)
    assert (written.batch, written.sampler, written.reason) == (1, SAMPLERS[0], reason)
    assert (written.census, written.metrics) == ({"groups": 1}, {"reward_mean": 0.5})
    assert made.done == {1}
    assert context.compute.calls == []


@pytest.mark.anyio
async def test_what_earlier_claims_left_in_compute_is_closed_and_dropped_invariant_12() -> None:
    recoveries = [recovery_trainer(VOID, n) for n in (1, 2, 3)]
    trainers = [name("trn", 0), name("trn", 1), name("trn", 9), *recoveries]
    compute = Pretended(trainers=trainers)
    updates = [after(FIRST, 0), after(SECOND, 1), update_of(VOID, 1, UpdateState.VOID)]
    async with learning(cast(RunContext, Context(compute=compute, updates=updates)), 3):
        closed = {trainer for (trainer,) in compute.named("close_trainer")}
    # Not those of other runs, nor the one that this claim may open.
    assert closed == {name("trn", 0), name("trn", 1), *recoveries[:2]}
    assert compute.named("drop_state") == [(FIRST,)]


@pytest.mark.anyio
async def test_a_compute_that_is_away_is_swept_another_time() -> None:
    context = Context(compute=Pretended(errors={"health": Unavailable("gone")}))
    await session(context).begin()
    assert context.logged == ["compute is not there to be swept: gone"]
    left = Context(
        compute=Pretended(errors={"drop_state": Unavailable("gone")}), updates=[after(FIRST, 0)]
    )
    await session(left).finish()
    assert left.logged == [f"state {FIRST} stays in compute for now: gone"]


@pytest.mark.anyio
async def test_only_a_run_that_has_a_state_has_one_to_forget() -> None:
    context = Context()
    await session(context).finish()
    assert context.compute.calls == []
    trained = Context(updates=[after(FIRST, 0)])
    await session(trained).finish()
    assert trained.compute.named("drop_state") == [(FIRST,)]


async def ended(context: Context, error: Exception) -> list[str]:
    """States that compute forgot when learning ended with `error`."""
    with pytest.raises(type(error)) as caught:
        async with learning(cast(RunContext, context), 3):
            raise error
    assert caught.value is error
    return [state for (state,) in context.compute.named("drop_state")]


CANCELLED = RunCancelled(RUN)
WRONG = InvalidInput("The loss is not finite.")


@pytest.mark.anyio
@pytest.mark.parametrize("error", [CANCELLED, WRONG], ids=["cancelled", "failed"])
async def test_a_run_that_ends_without_finishing_leaves_no_state_in_compute(
    error: Exception,
) -> None:
    assert await ended(Context(updates=[after(FIRST, 0)]), error) == [FIRST]
    assert await ended(Context(), error) == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error",
    [Unavailable("gone"), Blocked(Unavailable("gone").problem), ClaimLost(RUN)],
    ids=["released", "blocked", "lost"],
)
async def test_a_run_that_goes_on_keeps_its_state_in_compute(error: Exception) -> None:
    assert await ended(Context(updates=[after(FIRST, 0)]), error) == []


@pytest.mark.anyio
async def test_a_claim_that_was_lost_leaves_the_state_to_the_next_one() -> None:
    """Which may be about to open it (invariant 10)."""
    context = Context(updates=[after(FIRST, 0)], lost=True)
    with pytest.raises(ClaimLost):
        async with learning(cast(RunContext, context), 3):
            raise WRONG
    assert context.compute.named("drop_state") == []


@pytest.mark.anyio
@pytest.mark.parametrize("error", [CANCELLED, WRONG], ids=["cancelled", "failed"])
async def test_a_run_leaves_no_copy_of_its_checkpoints_state_either(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unproved(*_: Any) -> None:
        """Nothing is asked of the optimizer here."""

    async def known(checkpoint: str) -> str:
        return checkpoint

    monkeypatch.setattr("runtime.learning.session.prove_warm", unproved)
    plan = training_plan(optimizer_initialization="resume")
    named = {"initial_checkpoint": CHECKPOINTS[0], "initial_state": STATES[0]}
    context = Context(spec=spec_of(plan, **named))
    context.client.checkpoint = known  # type: ignore[attr-defined]
    assert await ended(context, error) == [f"{RUN}.{CHECKPOINTS[0]}"]


@pytest.mark.anyio
async def test_an_update_that_was_prepared_is_void_before_the_next_batch() -> None:
    left = update_of(VOID, 1, UpdateState.PREPARED, trainer=name("trn", 5))
    context = Context(updates=[after(FIRST, 0), left])
    made = session(context)
    await made.begin()
    (written,) = context.written
    assert (written.type, written.update) == ("update.void", VOID)
    assert written.reason == "its trainer ended before its step was enqueued"
    assert made.done == {0}
    assert made.policy.state == FIRST
    stepped = left.model_copy(update={"state": UpdateState.UNRESOLVED})
    context = Context(updates=[stepped])
    await session(context).begin()
    assert context.written[0].reason == "its trainer ended and saved no state"


@pytest.mark.anyio
async def test_an_optimizer_is_proved_only_where_a_run_resumes_and_has_not_gone_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proved: list[Any] = []

    async def noted(_: Any, policy: Any, checkpoint: Any) -> Any:
        proved.append((policy.checkpoint, checkpoint))

    async def known(checkpoint: str) -> str:
        return f"read {checkpoint}"

    monkeypatch.setattr("runtime.learning.session.prove_warm", noted)
    named = {"initial_checkpoint": CHECKPOINTS[0], "initial_state": STATES[0]}
    for plan, updates, expected in (
        (training_plan(optimizer_initialization="resume"), [], 1),
        (training_plan(optimizer_initialization="resume"), [after(FIRST, 0)], 0),
        (training_plan(), [], 0),
    ):
        proved.clear()
        context = Context(spec=spec_of(plan, **named), updates=updates)
        context.client.checkpoint = known  # type: ignore[attr-defined]
        await session(context).begin()
        assert proved == [(CHECKPOINTS[0], f"read {CHECKPOINTS[0]}")] * expected


RESUMING = spec_of(
    training_plan(optimizer_initialization="resume"),
    initial_checkpoint=CHECKPOINTS[0],
    initial_state=STATES[0],
)


def resuming(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> Context:
    """A run that is to prove its optimizer, with what the first proofs run into."""
    left = list(errors)

    async def proof(*_: Any) -> Warmth:
        if left:
            raise left.pop(0)
        return Warmth(7, 0.5)

    async def known(checkpoint: str) -> str:
        return checkpoint

    monkeypatch.setattr("runtime.learning.session.prove_warm", proof)
    context = Context(spec=RESUMING)
    context.client.checkpoint = known  # type: ignore[attr-defined]
    return context


def lost() -> NotFound:
    return NotFound("a scratch trainer is gone", code=ErrorCode.TRAINER_MISSING)


@pytest.mark.anyio
async def test_a_proof_whose_trainers_are_lost_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Unavailable("compute is gone", code=ErrorCode.COMPUTE_UNAVAILABLE)
    context = resuming(monkeypatch, lost(), away, lost())
    await session(context).begin()
    told = "the proof of the optimizer was interrupted: "
    gone = [f"{told}{error}" for error in (lost(), away, lost())]
    assert context.logged == gone


@pytest.mark.anyio
async def test_a_proof_that_is_lost_each_time_leaves_the_run_to_another_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = resuming(monkeypatch, *(lost() for _ in range(MAX_REDONE + 1)))
    with pytest.raises(Unavailable, match=f"lost {MAX_REDONE + 1} times"):
        await session(context).begin()


@pytest.mark.anyio
async def test_a_cold_optimizer_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = InvalidInput("came back cold", code=ErrorCode.RESUME_INCOMPATIBLE)
    context = resuming(monkeypatch, cold)
    with pytest.raises(InvalidInput, match="cold"):
        async with learning(cast(RunContext, context), 3):
            raise AssertionError("it begins with a cold optimizer")
    assert context.logged == []
    assert context.compute.named("drop_state") == [(f"{RUN}.{CHECKPOINTS[0]}",)]


class Failing:
    """Work whose parts cannot be had."""

    batch, loss, terms, final = 0, Loss.PPO, Terms(), False

    async def parts(self) -> AsyncGenerator[Part]:
        raise Unavailable("compute is gone", code=ErrorCode.COMPUTE_UNAVAILABLE)
        yield

    def summary(self) -> Any:
        raise AssertionError


@pytest.mark.anyio
async def test_a_compute_that_is_lost_again_and_again_ends_the_run() -> None:
    context = Context()
    with pytest.raises(Unavailable, match=f"lost {MAX_REDONE + 1} times") as ended:
        await session(context).update(cast(Any, Failing()))
    assert ended.value.problem.code == ErrorCode.COMPUTE_UNAVAILABLE
    assert context.logged == ["the update was interrupted: compute is gone"] * 6
    assert context.written == []
