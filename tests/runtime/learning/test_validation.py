"""When a validation is due, and what its loss is the mean of."""

import math
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from runtime.compute.protocol import SamplerSpec
from runtime.learning.packing import pack
from runtime.learning.policy import Policy
from runtime.learning.validation import Validator, due_batches, score
from specs.errors import InvalidInput
from specs.records import Update, UpdateState
from specs.worker_api import RunRecords, UpdateMeasured
from tests.runtime.learning.pretended import Pretended, Store
from tests.runtime.learning.support import Turn, record
from tests.runtime.learning.told import FIRST, SAMPLERS, SECOND, VOID, sampler, update_of

SEQUENCES = pack(record([Turn([1, 2], [30, 40]), Turn([5], [50])]).calls)
BASE = SamplerSpec("tiny")


@pytest.mark.parametrize(
    ("sizes", "every", "due"),
    [
        ([2, 2, 2], 4, {1, 2}),
        ([2, 2, 2], 2, {0, 1, 2}),
        ([2, 2, 2], 7, {2}),
        ([3, 3, 3, 3], 4, {1, 2, 3}),
        ([9, 1, 1], 4, {0, 2}),  # more than one bound at once
        ([1, 1, 1, 1], 3, {2, 3}),
    ],
)
def test_a_validation_is_due_where_so_many_examples_are_complete_and_at_the_end(
    sizes: list[int], every: int, due: set[int]
) -> None:
    assert due_batches(sizes, every) == due


@pytest.mark.anyio
async def test_the_loss_is_the_mean_over_target_tokens() -> None:
    made = Pretended()
    found = await score(made.compute, BASE, SEQUENCES)
    assert (found.loss, found.tokens) == (pytest.approx((0.3 + 0.4 + 0.5) / 3), 3)
    assert found.measures == {"validation_loss": found.loss, "validation_tokens": 3.0}
    assert made.named("logprobs") == [(BASE, [1, 2, 30, 40]), (BASE, [5, 50])]


@pytest.mark.anyio
@pytest.mark.parametrize("shift", [math.inf, math.nan])
async def test_a_loss_that_is_not_finite_is_no_score(shift: float) -> None:
    with pytest.raises(InvalidInput, match="not finite"):
        await score(Pretended(shift=shift).compute, BASE, SEQUENCES)


@dataclass
class Claim:
    """What a validator sees of its run."""

    compute: Any
    updates: list[Update] = field(default_factory=list[Update])
    written: list[UpdateMeasured] = field(default_factory=list[UpdateMeasured])

    @property
    def records(self) -> RunRecords:
        known = [sampler(number) for number in range(3)]
        return RunRecords(
            batches=[], groups=[], trials=[], samplers=known, updates=self.updates, checkpoints=[]
        )

    async def write(self, written: UpdateMeasured) -> None:
        self.written.append(written)


@dataclass
class Session:
    policy: Policy


def validator(claim: Claim, policy: Policy | None = None, due: tuple[int, ...] = (1,)) -> Validator:
    session = Session(policy or Policy(sampler(0), SECOND))
    return Validator(cast(Any, claim), Store(), cast(Any, session), frozenset(due), SEQUENCES)


@pytest.mark.anyio
async def test_the_model_is_scored_before_the_first_update_and_before_no_other() -> None:
    claim = Claim(Pretended())
    assert await validator(claim).before(0) == {"validation_loss_before": pytest.approx(0.4)}
    assert await validator(claim).before(1) == {}
    assert await validator(claim, due=()).before(0) == {}


@pytest.mark.anyio
async def test_without_a_validation_nothing_is_due() -> None:
    claim = Claim(Pretended())
    made = await Validator.of(cast(Any, claim), Store(), cast(Any, Session), None, [1])
    assert await made.before(0) == {}
    await made.after(0)
    assert claim.written == []


def acknowledged(update: str, batch: int, number: int, **metrics: float) -> Update:
    after: dict[str, Any] = {"sampler_after": SAMPLERS[number], "metrics": metrics}
    return update_of(update, batch, UpdateState.ACKNOWLEDGED, **after)


@pytest.mark.anyio
async def test_what_an_earlier_claim_made_and_did_not_score_is_scored_now() -> None:
    made = Pretended(adapters={str(sampler(number).adapter) for number in (1, 2)})
    claim = Claim(
        made,
        [
            acknowledged(FIRST, 0, 2),  # of another batch
            update_of(VOID, 1, UpdateState.VOID, sampler_after=SAMPLERS[2]),
            acknowledged(SECOND, 1, 1),
        ],
    )
    await validator(claim).after(1)
    (written,) = claim.written
    assert written.update == SECOND
    assert written.metrics["validation_loss"] == pytest.approx(0.4)
    assert {call[0].adapter for call in made.named("logprobs")} == {sampler(1).adapter}
    await validator(claim).after(0)  # not due
    assert len(claim.written) == 1


@pytest.mark.anyio
async def test_what_is_scored_is_not_scored_again_and_no_update_has_no_score() -> None:
    claim = Claim(Pretended(), [acknowledged(SECOND, 1, 1, validation_loss=1.0)])
    await validator(claim).after(1)
    await validator(Claim(claim.compute), Policy(sampler(0))).after(1)
    assert claim.written == []
    assert claim.compute.calls == []
    # What this claim made is the session's policy.
    now = Claim(Pretended())
    await validator(now).after(1)
    assert [written.update for written in now.written] == [SECOND]
