"""Each decision of learning that does not follow from its evidence is a finding of its check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from runtime.compute.losses import Loss
from runtime.compute.protocol import Compute
from runtime.learning.evidence import EvidenceReader
from runtime.learning.findings import Finding
from runtime.learning.reference import Reference, encode
from runtime.learning.settlement import judge, settle
from runtime.learning.snapshot import RunReads, Snapshot, Verified
from runtime.learning.supervised import batch_work, example_batches, select
from runtime.learning.verify_learning import PROBE_TOKENS, check_learning, check_objects
from runtime.learning.work import KnownWork, Terms, pieces
from specs.dataset import Dataset, TaskEntry
from specs.errors import ErrorCode, Unavailable
from specs.ids import Prefix
from specs.objective import KlPenalty
from specs.operator_api import TrialPage
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan
from specs.records import Contribution, Trial, Update, UpdateState
from specs.run import SamplerRef
from specs.sources import FileSource, RunSource
from tests.runtime.learning.pretended import Pretended, Store
from tests.runtime.learning.support import Turn, record, trial_of
from tests.runtime.learning.told import (
    FIRST,
    GROUPS,
    PASSED,
    PROFILE,
    RUN,
    SAMPLERS,
    SKIPPED,
    TASK,
    VOID,
    checkpoint_of,
    event,
    group_of,
    name,
    numbered,
    row,
    sampler,
    sound,
    spec_of,
    spec_with,
    training_plan,
    update_of,
)

OTHER = "sha256:" + "9" * 64
KL = training_plan(kl=KlPenalty(coefficient=0.5))


@dataclass
class Published:
    value: Dataset
    digest: str


@dataclass
class Reads(Store):
    """The reads of verification, of one run."""

    all: list[Trial] = field(default_factory=list[Trial])
    published: Published | None = None

    @property
    def client(self) -> RunReads:
        return cast(RunReads, self)

    async def trials(
        self, run: str, *, counted: bool | None = None, cursor: str | None = None
    ) -> TrialPage:
        return TrialPage(items=self.all)

    async def sampler(self, sampler: str) -> SamplerRef:
        return sound().samplers[sampler]

    async def dataset(self, reference: str) -> Verified[Dataset]:
        assert self.published is not None
        return self.published


class Compared:
    """A reference of which every log-prob is -1, stored per trial."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def of(self, trial: str, sequences: Sequence[Any]) -> Reference:
        values = tuple(np.full(len(one.targets), -1, np.float32) for one in sequences)
        return Reference(self.store.put(encode(values)), values)


def attempt(reads: Reads, group: int, index: int, reward: float, output: list[int]) -> Trial:
    recorded = record([Turn([1], output, sampler=SAMPLERS[0])], run=RUN)
    reads.put(recorded.data)
    return trial_of(recorded, reward=reward, group=GROUPS[group], index=index, sampler=SAMPLERS[0])


async def trained(reads: Reads, plan: TrainingPlan | None = None, groups: int = 2) -> Snapshot:
    """One batch whose groups settled in the opposite of their order, and its update."""
    plan = plan or training_plan()
    rows = [group_of(n, 0, place=groups - 1 - n, size=2) for n in range(groups)]
    trials = [
        attempt(reads, n, index, float(index), [10 * n + 5, index + 2])
        for n in range(groups)
        for index in range(2)
    ]
    by_place = [trial for group in reversed(rows) for trial in trials if trial.group == group.id]
    evidence = EvidenceReader(reads)
    judged = [
        judge(trial, await evidence.read(trial), sampler=SAMPLERS[0], plan=plan)
        for trial in by_place
    ]
    settlement = settle(judged, plan)
    work = KnownWork(
        0, Loss(plan.loss), settlement.rows, settlement.census, final=False, terms=Terms.of(plan)
    )
    made = [
        piece.contribution
        async for piece in pieces(work.rows, work.loss, evidence, work.terms, Compared(reads))
    ]
    verdicts = {verdict.trial: verdict for verdict in settlement.verdicts}
    told: list[tuple[str, dict[str, Any]]] = [
        ("run.admitted", {}),
        ("batch.started", {"batch": 0, "tasks": ["acme/task", "acme/task"]}),
        ("batch.settled", {"batch": 0, "census": settlement.census}),
    ]
    update = update_of(
        FIRST,
        0,
        UpdateState.ACKNOWLEDGED,
        PASSED,
        contributions=tuple(made),
        census=settlement.census,
    )
    return replace(
        sound(),
        run=sound().run.model_copy(update={"spec": spec_of(plan)}),
        events=numbered(told),
        groups=tuple(rows),
        trials=tuple(
            trial.model_copy(
                update={
                    "eligible": verdicts[trial.id].eligible,
                    "ineligible_reason": verdicts[trial.id].reason,
                    "advantage": verdicts[trial.id].advantage,
                }
            )
            for trial in trials
        ),
        updates=(update,),
        checkpoints=(),
    )


def bad(found: Sequence[Finding]) -> dict[str, list[str]]:
    return {one.id: one.violations for one in found if one.violations}


async def findings(
    reads: Reads, snapshot: Snapshot, compute: Compute | None = None
) -> dict[str, list[str]]:
    return bad(await check_learning(reads.client, snapshot, compute))


def contribution(snapshot: Snapshot, at: int, **changes: Any) -> Snapshot:
    made = list(snapshot.updates[0].contributions)
    made[at] = made[at].model_copy(update=changes)
    return row(snapshot, "updates", 0, contributions=tuple(made))


@pytest.mark.anyio
@pytest.mark.parametrize("plan", [None, KL])
async def test_what_learning_decided_follows_from_its_evidence(plan: TrainingPlan | None) -> None:
    reads = Reads()
    snapshot = await trained(reads, plan)
    found = await check_learning(reads.client, snapshot, None)
    assert bad(found) == {}
    assert all(one.checked for one in found)
    assert len(snapshot.updates[0].contributions) == 4


WRONG: list[tuple[Callable[[Snapshot], Snapshot], str, str]] = [
    (
        lambda s: event(s, "batch.started", tasks=["acme/task"]),
        "batches.tasks",
        "tasks of batch 0",
    ),
    (lambda s: row(s, "trials", 0, eligible=False), "batches.eligibility", "verdict on"),
    (
        lambda s: row(s, "trials", 0, ineligible_reason="overlong"),
        "batches.eligibility",
        "verdict on",
    ),
    (
        lambda s: event(s, "batch.settled", census={}),
        "batches.eligibility",
        "census of batch 0",
    ),
    (lambda s: row(s, "trials", 1, advantage=0.25), "batches.advantages", "recorded 0.25"),
    (
        lambda s: row(s, "updates", 0, census={}),
        "updates.contributions",
        "census of upd_",
    ),
    (
        lambda s: row(s, "updates", 0, learning_rate=0.5),
        "updates.contributions",
        "learning rate of upd_",
    ),
    (
        lambda s: row(s, "updates", 0, loss_config={"clip_high_threshold": 2.0}),
        "updates.contributions",
        "parameters of the loss of upd_",
    ),
    (
        lambda s: contribution(s, 1, weight=9.0),
        "updates.contributions",
        "contribution of trl_",
    ),
    (
        lambda s: row(s, "updates", 0, contributions=s.updates[0].contributions[:-1]),
        "updates.contributions",
        "contributors of upd_",
    ),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("change", "check", "says"), WRONG)
async def test_a_decision_that_does_not_follow_is_one_finding(
    change: Callable[[Snapshot], Snapshot], check: str, says: str
) -> None:
    reads = Reads()
    ((noticed, violations),) = (await findings(reads, change(await trained(reads)))).items()
    (violation,) = violations
    assert (noticed, says in violation) == (check, True), violation


@pytest.mark.anyio
async def test_contributions_stand_in_the_order_in_which_groups_settled() -> None:
    reads = Reads()
    snapshot = await trained(reads)
    swapped = row(
        snapshot, "updates", 0, contributions=tuple(reversed(snapshot.updates[0].contributions))
    )
    found = (await findings(reads, swapped))["updates.contributions"]
    assert "contributors of" in found[0]
    more = (*snapshot.updates[0].contributions, snapshot.updates[0].contributions[0])
    (found,) = (await findings(reads, row(snapshot, "updates", 0, contributions=more))).values()
    assert ["contributors of" in text for text in found] == [True]


@pytest.mark.anyio
async def test_an_update_that_ended_early_has_the_first_contributions_and_no_census() -> None:
    reads = Reads()
    snapshot = await trained(reads)
    first = snapshot.updates[0].contributions[:1]
    void = update_of(VOID, 0, UpdateState.VOID, ("prepared", "void"), contributions=first)
    both = replace(snapshot, updates=(void, *snapshot.updates))
    assert await findings(reads, both) == {}
    assert await findings(reads, replace(snapshot, updates=(void,))) == {}
    other = void.model_copy(update={"contributions": snapshot.updates[0].contributions[1:2]})
    found = await findings(reads, replace(both, updates=(other, *snapshot.updates)))
    assert any("contributors of" in text for text in found["updates.contributions"])


@pytest.mark.anyio
async def test_a_batch_is_skipped_only_where_it_could_not_learn() -> None:
    reads = Reads()
    snapshot = await trained(reads)
    skipped = update_of(
        SKIPPED, 0, UpdateState.SKIPPED, ("skipped",), census=snapshot.updates[0].census
    )
    found = await findings(reads, replace(snapshot, updates=(skipped,)))
    assert found == {"updates.contributions": [f"{SKIPPED} was skipped, and its batch could learn"]}
    # Whatever comes after it in the list is looked at.
    spoilt = row(snapshot, "updates", 0, learning_rate=0.5)
    found = await findings(reads, replace(spoilt, updates=(skipped, *spoilt.updates)))
    assert len(found["updates.contributions"]) == 2
    censored = skipped.model_copy(update={"census": {}})
    found = await findings(reads, replace(snapshot, updates=(censored,)))
    assert len(found["updates.contributions"]) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("whole", [True, False])
async def test_a_reference_that_was_never_recorded_is_a_finding_of_a_whole_batch_alone(
    whole: bool,
) -> None:
    reads = Reads()
    snapshot = await trained(reads, KL)
    made = snapshot.updates[0].contributions
    passed = PASSED if whole else ("prepared", "void")
    changed = row(
        snapshot,
        "updates",
        0,
        contributions=made[:2],
        state=UpdateState.ACKNOWLEDGED if whole else UpdateState.VOID,
        events=dict.fromkeys(passed, "then"),
    )
    found = (await findings(reads, changed)).get("updates.contributions", [])
    # What stands in front of the missing one was derived, and is the same.
    assert ["no reference log-probs are recorded" in text for text in found] == [True] * whole


@pytest.mark.anyio
async def test_an_evaluation_learnt_nothing() -> None:
    plan = EvaluationPlan(trials_per_task=1)
    assert await check_learning(Reads().client, spec_with(sound(), plan=plan), None) == []


async def imitated(reads: Reads, **plan: Any) -> Snapshot:
    """A supervised run on two trials, a batch each."""
    reads.all = [attempt(reads, 0, index, 1.0, [5, index + 2]) for index in range(2)]
    given = SupervisedPlan(source=RunSource(run=name(Prefix.RUN, 7)), batch_size=1, **plan)
    spec = spec_of(given)
    evidence = EvidenceReader(reads)
    selection = await select(reads, evidence, None, spec)
    updates: list[Update] = []
    for number, examples in enumerate(example_batches(selection.examples, given)):
        work = batch_work(number, examples, selection.census, final=False)
        made: list[Contribution] = [
            piece.contribution async for piece in pieces(work.rows, work.loss, evidence)
        ]
        updates.append(
            update_of(
                name(Prefix.UPDATE, number),
                number,
                UpdateState.ACKNOWLEDGED,
                PASSED,
                contributions=tuple(made),
                census=dict(work.census),
                sampler_after=SAMPLERS[1],
            )
        )
    run = sound().run.model_copy(update={"spec": spec})
    kept: dict[str, Any] = {"trials": (), "groups": (), "checkpoints": (), "events": ()}
    return replace(sound(), run=run, updates=tuple(updates), **kept)


@pytest.mark.anyio
async def test_what_a_supervised_run_learnt_follows_from_its_source() -> None:
    reads = Reads()
    snapshot = await imitated(reads)
    found = await check_learning(reads.client, snapshot, None)
    assert bad(found) == {}
    assert [one.id for one in found] == ["updates.contributions", "updates.validation"]
    (spoilt,) = (await findings(reads, contribution(snapshot, 0, weight=9.0))).values()
    assert len(spoilt) == 1
    (second,) = (await findings(reads, row(snapshot, "updates", 1, census={}))).values()
    assert len(second) == 1
    reads.all = [trial.model_copy(update={"settled": None}) for trial in reads.all]
    (gone,) = (await findings(reads, snapshot)).values()
    assert gone[0].startswith("there are updates, and yet: Nothing can be learnt")
    assert await findings(reads, replace(snapshot, updates=())) == {}


@pytest.mark.anyio
async def test_rows_of_a_file_are_not_checked_without_their_tokenizer() -> None:
    source = FileSource(file="rows.jsonl", digest=OTHER, size=1, rows=1)
    plan = SupervisedPlan(source=source, batch_size=1)
    (found,) = await check_learning(Reads().client, spec_with(sound(), plan=plan), None)
    assert found.skipped == "compute was not asked, and it has the tokenizer"


@pytest.mark.anyio
async def test_a_validation_loss_that_nobody_asked_for_is_a_finding() -> None:
    reads = Reads()
    snapshot = await imitated(reads)
    scored = row(snapshot, "updates", 0, metrics={"validation_loss": 1.0})
    (found,) = (await findings(reads, scored)).values()
    assert found == ["a validation loss is recorded, and the plan asks for none"]


def published(*tasks: TaskEntry, digest: str = OTHER) -> Published:
    dataset = Dataset.model_construct(tasks=tasks)
    return Published(dataset, digest)


ENTRY = TaskEntry(name="acme/task", digest=TASK, size=1)


async def objects(
    reads: Reads, snapshot: Snapshot, made: Pretended | None = None
) -> dict[str, list[str]]:
    found = await check_objects(reads.client, snapshot, made.compute if made else None)
    return bad(found)


def saved(reads: Reads) -> Snapshot:
    """A run with one checkpoint whose objects are stored."""
    reads.put(b"profile")
    item = checkpoint_of(0, FIRST).model_copy(
        update={
            "adapter": reads.put(b"weights"),
            "adapter_size": 7,
            "state": reads.put(b"a state"),
            "state_size": 7,
        }
    )
    one = sampler(1).model_copy(update={"adapter": item.adapter})
    return replace(sound(), checkpoints=(item,), samplers={**sound().samplers, SAMPLERS[1]: one})


@pytest.mark.anyio
async def test_profile_dataset_and_tasks_are_the_pinned_ones_invariant_14() -> None:
    reads = Reads()
    assert list(await objects(reads, replace(sound(), checkpoints=()))) == ["spec.objects"]
    reads.put(b"profile")
    plain = replace(sound(), checkpoints=())
    assert await objects(reads, plain) == {}
    named = spec_with(plain, dataset="acme/set@1", dataset_digest=OTHER)
    for dataset, count in (
        (published(ENTRY), 0),
        (published(ENTRY, digest=TASK), 1),
        (published(ENTRY.model_copy(update={"digest": OTHER})), 1),
        (published(), 1),
    ):
        reads.published = dataset
        assert len((await objects(reads, named)).get("spec.objects", [])) == count
    reads.objects[PROFILE] = b"another profile"
    ((violation,),) = (await objects(reads, plain)).values()
    assert violation.startswith("digest of profile: recorded")


@pytest.mark.anyio
async def test_weights_and_state_are_stored_and_can_be_sampled_from_invariant_11() -> None:
    reads, made = Reads(), Pretended()
    snapshot = saved(reads)
    (item,) = snapshot.checkpoints
    found = await check_objects(reads.client, snapshot, made.compute)
    assert (bad(found), [one.checked for one in found]) == ({}, [1, 4, 1])
    ((spec, probe),) = made.named("logprobs")
    assert (spec.base_model, spec.adapter, probe) == ("tiny", item.adapter, list(PROBE_TOKENS))
    for kept in ("adapter", "state"):
        wrong = row(snapshot, "checkpoints", 0, **{f"{kept}_size": 9})
        assert list(await objects(reads, wrong)) == ["checkpoints.objects"]
        gone = row(snapshot, "checkpoints", 0, **{kept: OTHER})
        ((violation,),) = (await objects(reads, gone)).values()
        assert violation.startswith(f"{OTHER} of {item.id}: There is no object")


@pytest.mark.anyio
async def test_what_was_deleted_is_not_looked_for() -> None:
    reads, made = Reads(), Pretended()
    snapshot = saved(reads)
    lost = {"adapter": OTHER, "state": OTHER}
    deleted = row(snapshot, "checkpoints", 0, **lost, deleted_at="then")
    assert await objects(reads, deleted, made) == {}
    stateless = row(snapshot, "checkpoints", 0, state=OTHER, state_deleted_at="then")
    assert await objects(reads, stateless, made) == {}
    assert await objects(reads, row(snapshot, "checkpoints", 0, state=None), made) == {}
    # What comes after a deleted one is looked at.
    both = replace(deleted, checkpoints=(*deleted.checkpoints, *snapshot.checkpoints))
    found = await check_objects(reads.client, both, None)
    assert [one.checked for one in found] == [1, 4, 0]
    assert found[2].skipped == "compute was not asked"


@pytest.mark.anyio
async def test_an_adapter_that_cannot_be_sampled_from_is_a_finding() -> None:
    reads = Reads()
    snapshot = saved(reads)
    unknown = row(snapshot, "checkpoints", 0, sampler=name(Prefix.SAMPLER, 9))
    away = Pretended(errors={"logprobs": Unavailable("no", code=ErrorCode.COMPUTE_UNAVAILABLE)})
    for changed, made, says in (
        (unknown, Pretended(), "names unknown sampler"),
        (snapshot, away, "cannot be loaded"),
        (snapshot, Pretended(shift=float("inf")), "gives no finite log-probs"),
    ):
        ((violation,),) = (await objects(reads, changed, made)).values()
        assert says in violation
