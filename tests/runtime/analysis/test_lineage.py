"""From a checkpoint back to the token spans that moved it, and forward to what used it."""

import pytest

from runtime.analysis.lineage import Lineage, Section, checkpoint_lineage, run_lineage
from runtime.analysis.spans import Span
from runtime.client import OperatorClient
from runtime.compute.protocol import Datum, Loss
from runtime.learning.evidence import EvidenceReader
from runtime.learning.packing import pack
from runtime.learning.recompute import recomputed_loss
from runtime.learning.work import datum_of
from specs.errors import InvalidInput
from specs.records import Update
from tests.runtime.learning.live import PLAN, Live

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

ONE: dict[str, object] = {**PLAN, "num_batches": 1}


async def trained(live: Live, **changes: object) -> str:
    """A finished training run."""
    options = {"model": changes.pop("model")} if "model" in changes else {}
    run = await live.start({**PLAN, **changes}, **options)  # pyright: ignore[reportArgumentType]
    await live.work(run)
    return run


async def all_spans(reads: OperatorClient, checkpoint: str, limit: int) -> list[Span]:
    found: list[Span] = []
    cursor: str | None = None
    while True:
        page = await checkpoint_lineage(reads, checkpoint, "spans", limit, cursor)
        assert len(page.spans) <= limit
        found += page.spans
        cursor = page.next
        if cursor is None:
            assert len(found) == page.spans_total
            return found


async def test_spans_are_the_generated_tokens_of_every_update_on_the_way(running: Live) -> None:
    reads = running.stack.operator
    run = await trained(running)
    updates = (await reads.updates(run)).items
    first, last = (await reads.checkpoints(run)).items
    spans = await all_spans(reads, last.id, 500)
    assert spans == await all_spans(reads, last.id, 5)
    assert [span.update for span in spans] == sorted(
        (span.update for span in spans), key=[u.id for u in reversed(updates)].index
    )
    for update in updates:
        await _weighs_what_was_packed(reads, update, [s for s in spans if s.update == update.id])
    assert {span.update for span in await all_spans(reads, first.id, 500)} == {updates[0].id}


async def _weighs_what_was_packed(reads: OperatorClient, update: Update, spans: list[Span]) -> None:
    """The spans of each datum are where its generated tokens are, with their weight."""
    evidence = EvidenceReader(reads)
    checked = 0
    for one in update.contributions:
        assert one.trial is not None
        trial = await reads.trial(one.trial)
        (packed,) = [
            item
            for item in pack((await evidence.read(trial)).interactions)
            if item.interactions == one.interactions
        ]
        weights = datum_of(packed, one.weight, Loss.IMPORTANCE_SAMPLING).inputs["advantages"]
        mine = [span for span in spans if span.datum == one.datum and span.trial == one.trial]
        places = [place for span in mine for place in _range(span)]
        assert places == [index + 1 for index in packed.generated.nonzero()[0].tolist()]
        for span in mine:
            assert [weights[place - 1] for place in _range(span)] == pytest.approx(
                [span.weight] * span.tokens
            )
            assert (span.reward, span.advantage) == (
                trial.assessment and trial.assessment.reward,
                trial.advantage,
            )
        checked += len(mine)
    assert checked == len(spans) > 0


def _range(span: Span) -> range:
    assert span.start is not None
    assert span.end is not None
    return range(span.start, span.end)


async def test_a_lineage_goes_through_every_ancestor_and_forward_to_every_use(
    running: Live,
) -> None:
    reads = running.stack.operator
    run = await trained(running)
    first, last = (await reads.checkpoints(run)).items
    branch = await trained(running, num_batches=1, model=first.id)
    evaluation = await running.start({"trials_per_task": 2}, model=first.id)
    await running.work(evaluation)
    source: dict[str, object] = {"source": {"run": run, "select": "reward >= 0"}}
    imitation = await running.start({**source, "batch_size": 8, "lora": PLAN["lora"]})  # pyright: ignore[reportArgumentType]
    await running.work(imitation)

    (saved,) = (await reads.checkpoints(branch)).items
    back = await checkpoint_lineage(reads, saved.id, "overview", 20, None)
    assert [(node.run, node.through_batch) for node in back.ancestors] == [(branch, 0), (run, 0)]
    assert [step.checkpoint for step in back.updates] == [saved.id, first.id]
    assert last.id not in back.model_dump_json()
    assert len(back.spans) == 20 < back.spans_total
    assert not back.runs

    forward = await checkpoint_lineage(reads, first.id, "overview", 20, None)
    assert [use.run for use in forward.runs] == [branch, evaluation]
    assert {one.run for one in forward.groups} == {run, branch, evaluation}
    assert all(one.group.sampler == first.sampler for one in forward.groups)

    whole = await run_lineage(reads, run, "overview", 50, None)
    assert [use.run for use in whole.runs] == [branch, evaluation, imitation]
    assert [use.learns_from for use in whole.runs] == [None, None, run]
    tested = await run_lineage(reads, evaluation, "overview", 20, None)
    assert tested.checkpoint == first
    assert [node.run for node in tested.ancestors] == [evaluation, run]
    assert [step.checkpoint for step in tested.updates] == [first.id]
    learnt = (await run_lineage(reads, imitation, "spans", 500, None)).spans
    trials = {span.trial for span in learnt if span.trial is not None}
    assert {(await reads.trial(trial)).run for trial in trials} == {run}
    assert {span.group for span in learnt} == {None}


async def test_every_section_is_read_to_its_end_in_bounded_pages(running: Live) -> None:
    reads = running.stack.operator
    run = await trained(running)
    whole = await run_lineage(reads, run, "overview", 500, None)
    sections: dict[Section, int] = {
        "updates": len(whole.updates),
        "spans": len(whole.spans),
        "runs": len(whole.runs),
        "groups": len(whole.groups),
    }
    assert sections == {"updates": 2, "spans": 24, "runs": 0, "groups": 2}
    for section, size in sections.items():
        found: list[object] = []
        cursor: str | None = None
        while True:
            page: Lineage = await run_lineage(reads, run, section, 1, cursor)
            found += getattr(page, section)
            cursor = page.next
            if cursor is None:
                break
        assert found == getattr(whole, section)
        assert len(found) == size
    with pytest.raises(InvalidInput):
        await run_lineage(reads, run, "spans", 1, "elsewhere")


async def test_the_loss_of_an_update_is_computed_again_from_its_evidence(running: Live) -> None:
    reads = running.stack.operator
    run = await trained(running)
    updates = (await reads.updates(run)).items
    assert [update.from_state for update in updates] == [None, updates[0].id]
    for update in updates:
        datums: list[Datum] = []
        evidence = EvidenceReader(reads)
        for one in update.contributions:
            assert one.trial is not None
            found = await evidence.read(await reads.trial(one.trial))
            datums += [
                datum_of(packed, one.weight, Loss.IMPORTANCE_SAMPLING)
                for packed in pack(found.interactions)
                if packed.interactions == one.interactions
            ]
        assert len(datums) == len(update.contributions) == 8
        before = await running.compute.health()
        again = await recomputed_loss(reads, running.compute, await reads.run(run), update, datums)
        assert again == pytest.approx(update.metrics["loss"], abs=1e-6)
        assert (await running.compute.health()).trainers == before.trainers == ()
        state = update.from_state
        assert state is None or await running.compute.find_state(state) is None
        first = update.contributions[:2]
        alone = await recomputed_loss(
            reads, running.compute, await reads.run(run), update, datums[:2]
        )
        expected = -sum(one.weight * one.trained_tokens for one in first)
        assert abs(expected) > 1e-3
        assert alone == pytest.approx(expected, rel=1e-4)  # the policy that sampled: ratios of 1
