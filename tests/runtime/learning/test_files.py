"""Supervised training on a file, through the real gateway and the real compute."""

import json
from array import array
from dataclasses import replace

import numpy as np
import pytest
from pydantic import JsonValue

from runtime.client import WorkerClient
from runtime.compute.protocol import SamplerSpec
from runtime.formats.examples import Example, Span
from runtime.learning.files import corpus_of, packed_row
from runtime.learning.snapshot import take_snapshot
from runtime.learning.validation import due_batches
from runtime.learning.verify import verify_run, verify_snapshot
from specs import canonical
from specs.chat import File, RowOrigin
from specs.errors import ErrorCode, InvalidInput
from specs.records import UpdateState
from specs.run import RunState
from specs.sources import FileSource
from specs.verify import VerifyReport
from specs.worker_api import UpdateMeasured, WriteReply, WriteRequest
from tests.runtime.gateway import stage
from tests.runtime.learning.live import Live

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


class Killed(Exception):
    """The worker's process is gone."""


LORA: dict[str, JsonValue] = {"rank": 2, "alpha": 8.0, "seed": 3}


def rows(*texts: str) -> bytes:
    def line(index: int, text: str) -> str:
        turns = [{"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}]
        return json.dumps({"id": f"00{index}", "messages": turns})

    return "\n".join(line(index, text) for index, text in enumerate(texts)).encode()


TRAIN = rows("one", "two two", "three three three", "four", "five")
HELD_OUT = rows("six", "seven seven")


def stated(data: bytes, **options: JsonValue) -> dict[str, JsonValue]:
    count = sum(1 for _ in File.of("rows.jsonl", data).rows())
    digest = canonical.digest_bytes(data)
    return {"file": "rows.jsonl", "digest": digest, "size": len(data), "rows": count, **options}


PLAN: dict[str, JsonValue] = {
    "source": stated(TRAIN),
    "validation": stated(HELD_OUT, every_examples=4),
    "epochs": 2,
    "batch_size": 2,
    "learning_rate": 0.01,
    "lora": LORA,
}


async def upload(running: Live) -> None:
    for data in (TRAIN, HELD_OUT):
        await running.stack.operator.upload(data)


def failures(report: VerifyReport) -> dict[str, tuple[str, ...]]:
    return {check.id: check.violations for check in report.checks if check.violated}


async def cross_entropy(
    running: Live, run: str, adapter: str | None, data: bytes, lines: set[int]
) -> float:
    """Mean over target tokens, from log-probs of whole sequences."""
    spec = SamplerSpec("tiny", adapter)
    sampler = (await running.stack.operator.run(run)).spec.sampler
    source = FileSource.model_validate(stated(data))
    corpus = await corpus_of(running.compute, running.stack.operator, source, sampler)
    total, count = 0.0, 0
    for example in corpus.examples:
        if example.origin.line not in lines:
            continue
        logprobs = await running.compute.logprobs(spec, np.array(example.ids, np.int32))
        for span in example.spans:
            if span.target:
                total -= float(logprobs[span.start : span.end].sum())
                count += span.end - span.start
    return total / count


async def test_a_run_learns_the_rows_of_a_file_and_its_records_say_which(running: Live) -> None:
    await upload(running)
    run = await running.start(PLAN)
    await running.work(run)
    reads = running.stack.operator
    assert (await reads.run(run)).state is RunState.COMPLETED
    updates = (await reads.updates(run)).items
    assert [len(update.contributions) for update in updates] == [2, 2, 1, 2, 2, 1]
    lines = TRAIN.splitlines()
    epochs: list[list[int]] = [[], []]
    for update in updates:
        assert sum(c.weight * c.trained_tokens for c in update.contributions) == pytest.approx(1)
        for one in update.contributions:
            assert one.row is not None
            assert (one.trial, one.group, one.interactions) == (None, None, ())
            assert one.row.file == canonical.digest_bytes(TRAIN)
            assert one.row.digest == canonical.digest_bytes(lines[one.row.line - 1])
            assert one.row.id == json.dumps(f"00{one.row.line - 1}")
            epochs[update.batch // 3].append(one.row.line)
    assert [sorted(epoch) for epoch in epochs] == [[1, 2, 3, 4, 5]] * 2
    assert [update.metrics["examples_processed"] for update in updates] == [2, 4, 5, 7, 9, 10]
    first = {c.row.line for c in updates[0].contributions if c.row}
    expected = await cross_entropy(running, run, None, TRAIN, first)
    assert updates[0].metrics["loss"] == pytest.approx(expected, rel=1e-5)
    report = await verify_run(reads, running.compute, run)
    assert failures(report) == {}
    checks = {check.id: check for check in report.checks}
    assert checks["updates.contributions"].checked > 10
    assert checks["updates.validation"].checked == 2


async def test_verify_finds_a_contribution_or_a_score_that_was_changed(running: Live) -> None:
    await upload(running)
    run = await running.start({**PLAN, "epochs": 1})
    await running.work(run)
    snapshot = await take_snapshot(running.stack.operator, run)
    last = snapshot.updates[-1]
    row = last.contributions[0].row
    assert row is not None
    forged = [
        last.model_copy(update={"metrics": {**last.metrics, "validation_loss": 0.5}}),
        last.model_copy(
            update={
                "contributions": (
                    last.contributions[0].model_copy(
                        update={"row": row.model_copy(update={"line": row.line + 1})}
                    ),
                )
            }
        ),
    ]
    found: list[set[str]] = []
    for update in forged:
        changed = replace(snapshot, updates=(*snapshot.updates[:-1], update))
        report = await verify_snapshot(changed, running.stack.operator, running.compute)
        found.append(set(failures(report)))
    assert found == [{"updates.validation"}, {"updates.contributions"}]
    gone = tuple(c.model_copy(update={"deleted_at": c.created_at}) for c in snapshot.checkpoints)
    changed = replace(snapshot, checkpoints=gone)
    report = await verify_snapshot(changed, running.stack.operator, running.compute)
    skipped = {check.id: check.skipped for check in report.checks}
    assert skipped["updates.validation"] == "its weights are deleted"


async def test_validation_is_scored_by_examples_processed_and_never_trained(running: Live) -> None:
    await upload(running)
    run = await running.start(PLAN)
    await running.work(run)
    reads = running.stack.operator
    updates = (await reads.updates(run)).items
    scored = [u.batch for u in updates if "validation_loss" in u.metrics]
    assert scored == [1, 4, 5]  # 4 and 9 of 10 examples, and the end
    told = [e for e in (await reads.events(run)).events if e.type == "update.measured"]
    assert [event.data["batch"] for event in told] == scored
    held = {1, 2}
    before = await cross_entropy(running, run, None, HELD_OUT, held)
    assert updates[0].metrics["validation_loss_before"] == pytest.approx(before, rel=1e-5)
    last = (await reads.checkpoints(run)).items[-1]
    after = await cross_entropy(running, run, last.adapter, HELD_OUT, held)
    assert updates[-1].metrics["validation_loss"] == pytest.approx(after, rel=1e-5)
    assert after < before
    trained = {c.row.file for update in updates for c in update.contributions if c.row}
    assert trained == {canonical.digest_bytes(TRAIN)}


async def test_a_score_that_a_crash_prevented_is_taken_by_the_next_claim(
    running: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload(running)
    run = await running.start(PLAN)
    send = WorkerClient.write

    async def away(self: WorkerClient, run: str, request: WriteRequest) -> WriteReply:
        if any(isinstance(write, UpdateMeasured) for write in request.writes):
            raise Killed
        return await send(self, run, request)

    with monkeypatch.context() as patch:
        patch.setattr(WorkerClient, "write", away)
        with pytest.raises(Killed):
            await running.work(run)
    reads = running.stack.operator
    assert not any("validation_loss" in u.metrics for u in (await reads.updates(run)).items)
    await stage.expire(running.stack, run)
    await running.work(run)
    updates = (await reads.updates(run)).items
    assert [u.batch for u in updates if "validation_loss" in u.metrics] == [1, 4, 5]
    assert all(update.state is UpdateState.ACKNOWLEDGED for update in updates)
    assert failures(await verify_run(reads, running.compute, run)) == {}


async def test_a_file_that_was_not_uploaded_or_stated_is_refused_at_admission(
    running: Live,
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await running.start(PLAN)
    assert refused.value.problem.code is ErrorCode.INVALID_REFERENCE
    plan: dict[str, JsonValue] = {**PLAN, "source": {"file": "rows.jsonl"}}
    with pytest.raises(InvalidInput, match="does not state its digest") as unstated:
        await running.start(plan)
    assert unstated.value.problem.object is not None
    assert unstated.value.problem.object.pointer == "/source/digest"


async def test_a_file_with_a_bad_row_fails_its_run_by_the_line(running: Live) -> None:
    """Whoever submits a plan by other means than the command states what it likes."""
    data = TRAIN + b"\n{}"
    await running.stack.operator.upload(data)
    digest: dict[str, JsonValue] = {"digest": canonical.digest_bytes(data), "size": len(data)}
    source: dict[str, JsonValue] = {"file": "rows.jsonl", "rows": 6, **digest}
    run = await running.start({"source": source, "batch_size": 2, "lora": LORA})
    with pytest.raises(InvalidInput, match=r"Line 6 of rows\.jsonl"):
        await running.work(run)
    assert (await running.stack.operator.updates(run)).items == []


def test_batches_in_which_a_validation_is_due() -> None:
    assert due_batches([2, 2, 1, 2, 2, 1], 4) == {1, 4, 5}
    assert due_batches([3], 100) == {0}
    assert due_batches([10, 10, 10], 1) == {0, 1, 2}
    assert due_batches([10, 10, 5], 20) == {1, 2}


def test_a_row_keeps_its_mask_through_the_shift() -> None:
    """Invariant 6: a target stands where its token is predicted, one place before it."""
    origin = RowOrigin(file="sha256:" + "0" * 64, line=1, digest="sha256:" + "1" * 64)
    spans = (Span(0, 3, False), Span(3, 5, True), Span(5, 6, False))
    packed = packed_row(Example(origin, array("i", [10, 11, 12, 13, 14, 15]), spans, ()))
    assert packed.tokens.tolist() == [10, 11, 12, 13, 14]
    assert packed.targets.tolist() == [11, 12, 13, 14, 15]
    assert packed.generated.tolist() == [False, False, True, True, False]
    assert packed.logprobs is None
