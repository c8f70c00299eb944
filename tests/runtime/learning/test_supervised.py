"""What a supervised run selects, and how its examples become batches."""

from typing import Any, cast

import pytest

from runtime.compute.losses import Loss
from runtime.learning.evidence import EvidenceReader
from runtime.learning.supervised import (
    Example,
    batch_work,
    example_batches,
    select,
    supervised_plan,
)
from specs.canonical import digest_bytes
from specs.chat import RowOrigin
from specs.errors import ErrorCode, InvalidInput
from specs.ids import Prefix
from specs.operator_api import TrialPage
from specs.plans import SupervisedPlan
from specs.records import Trial, TrialOutcome
from specs.run import SamplerRef
from specs.sources import RunSource
from tests.runtime.learning.pretended import Store
from tests.runtime.learning.support import SAMPLER, Turn, record, trial_of
from tests.runtime.learning.told import name, sampler, spec_of, training_plan

RUN = name(Prefix.RUN, 7)


def plan(**values: Any) -> SupervisedPlan:
    source = RunSource(run=RUN, select=values.pop("select", "reward >= 1"))
    known: dict[str, Any] = {"source": source, "batch_size": 2}
    return SupervisedPlan(**{**known, **values})


class Source(Store):
    """The trials of a run, two on a page."""

    def __init__(self, tokenizer: bytes = b"tokens") -> None:
        super().__init__()
        self.all: list[Trial] = []
        self.tokenizer = digest_bytes(tokenizer)
        self.asked: list[str] = []

    def add(self, *turns: Turn, **changes: Any) -> Trial:
        recorded = record(turns)
        self.put(recorded.data)
        self.all.append(trial_of(recorded, **changes))
        return self.all[-1]

    async def trials(
        self, run: str, *, counted: bool | None = None, cursor: str | None = None
    ) -> TrialPage:
        assert (run, counted) == (RUN, True)
        start = int(cursor or 0)
        more = str(start + 2) if start + 2 < len(self.all) else None
        return TrialPage(items=self.all[start : start + 2], next=more)

    async def sampler(self, sampler: str) -> SamplerRef:
        self.asked.append(sampler)
        return _sampler(self.tokenizer)


def _sampler(tokenizer: str) -> SamplerRef:
    return sampler(0).model_copy(update={"tokenizer_digest": tokenizer})


GOOD = Turn([1], [2, 3])


@pytest.mark.anyio
async def test_trials_are_selected_by_reward_and_what_is_not_is_counted_by_why() -> None:
    source = Source()
    first = source.add(GOOD)
    source.add(GOOD, reward=0.5)
    source.add(GOOD, outcome=TrialOutcome.INFRASTRUCTURE)
    damaged = source.add(GOOD)
    last = source.add(GOOD, Turn([4], [5], extends=0))
    assert damaged.settled is not None
    assert damaged.settled.seal is not None
    del source.objects[str(damaged.settled.seal.object)]
    found = await select(source, EvidenceReader(source), None, spec_of(plan()))
    assert [(one.trial, one.tokens) for one in found.examples] == [(first, 2), (last, 3)]
    assert found.census == {
        "selected": 2,
        "not_selected": 1,
        "excluded_infrastructure": 1,
        "excluded_evidence_damaged": 1,
    }
    assert source.asked == [SAMPLER]


@pytest.mark.anyio
async def test_a_source_of_which_nothing_can_be_learnt_says_why() -> None:
    source = Source()
    source.add(GOOD, reward=0.5)
    with pytest.raises(InvalidInput, match=r"none of its trials has reward > 0\.5") as refused:
        await select(source, EvidenceReader(source), None, spec_of(plan(select="reward > 0.5")))
    assert refused.value.problem.code == ErrorCode.SOURCE_UNUSABLE
    other = Source(b"other")
    other.add(GOOD)
    with pytest.raises(InvalidInput, match=f"its sampler {SAMPLER} uses another tokenizer"):
        await select(other, EvidenceReader(other), None, spec_of(plan()))


def test_only_a_supervised_plan_is_one() -> None:
    assert supervised_plan(spec_of(plan())) == plan()
    with pytest.raises(InvalidInput, match="kind training, not supervised"):
        supervised_plan(spec_of(training_plan()))


def example(line: int, tokens: int = 1) -> Example:
    origin = RowOrigin(file=digest_bytes(b"file"), line=line, digest=digest_bytes(b"%d" % line))
    return Example(tokens, origin=origin)


def test_every_epoch_has_every_example_once_in_an_order_of_its_own() -> None:
    examples = [example(line) for line in range(5)]
    batches = example_batches(examples, plan(epochs=2))
    assert [len(batch) for batch in batches] == [2, 2, 1, 2, 2, 1]
    epochs = [[one.key for batch in part for one in batch] for part in (batches[:3], batches[3:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [f"line {line}" for line in range(5)]
    assert epochs[0] != epochs[1]
    again = example_batches(examples, plan(epochs=2, seed=1))
    assert [one.key for batch in again[:3] for one in batch] != epochs[0]
    assert [len(batch) for batch in example_batches(examples[:4], plan())] == [2, 2]


def test_every_target_of_a_batch_weighs_the_same_and_all_of_them_one() -> None:
    trial = trial_of(record([GOOD]), reward=3.0)
    work = batch_work(4, [Example(3, trial), Example(5, trial)], {"selected": 9}, final=True)
    assert [row.weight for row in work.rows] == [1 / 8, 1 / 8]
    assert (work.batch, work.loss, work.final) == (4, Loss.CROSS_ENTROPY, True)
    assert work.census == {"selected": 9, "trials": 2}
    assert work.measures["reward_mean"] == 3.0
    rows = batch_work(0, [example(1, 4)], {}, final=False, measures={"extra": 1.0})
    assert (rows.census, rows.measures) == ({"examples": 1}, {"extra": 1.0})
    (row,) = rows.rows
    assert (row.trial, row.group, row.weight) == (None, None, 0.25)
    assert cast(RowOrigin, row.origin).line == 1
