"""`verify` fails on tampered records: each thing that is recorded is changed once, and the check
that is to notice does."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from pydantic import BaseModel

from runtime.compute.protocol import Compute, FloatArray, IntArray, SamplerSpec
from runtime.learning.snapshot import RunReads, Snapshot, take_snapshot
from runtime.learning.verify import verify_snapshot
from specs import evidence
from specs.canonical import digest_bytes
from specs.ids import Prefix, new_id
from specs.interaction import Answer, Intent, Seal
from specs.records import Trial, TrialOutcome, UpdateState
from tests.runtime.learning.live import PLAN, Live

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

INVARIANTS = {
    "spec.plan": 14,
    "spec.objects": 14,
    "events.gap_free": 9,
    "events.rows": 9,
    "slots.counted": 16,
    "assessments.reward": 4,
    "evidence.objects": 11,
    "evidence.intents": 2,
    "evidence.chains": 3,
    "evidence.samplers": 7,
    "evidence.logprobs": 1,
    "batches.sampler": 7,
    "batches.tasks": 14,
    "batches.eligibility": 5,
    "batches.advantages": 5,
    "updates.order": 8,
    "updates.submissions": 5,
    "updates.contributions": 6,
    "updates.chain": 8,
    "checkpoints.rows": 8,
    "checkpoints.objects": 11,
    "checkpoints.load": None,
}
"""The promise of the design that each check of a training run derives again."""

type Tamper = Callable[["Forgery"], None]


@dataclass
class Forgery:
    """Records and objects of a sound run, to be changed."""

    snapshot: Snapshot
    objects: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Stored bytes in place of the true ones; None = gone."""

    def set(self, name: str, at: int, /, **changes: Any) -> None:
        """Change fields of one row of a list of records."""
        rows = list(getattr(self.snapshot, name))
        rows[at] = _copy(rows[at], changes)
        self.snapshot = replace(self.snapshot, **{name: tuple(rows)})

    def drop(self, name: str, index: int) -> None:
        """Lose one row."""
        rows = list(getattr(self.snapshot, name))
        del rows[index]
        self.snapshot = replace(self.snapshot, **{name: tuple(rows)})

    def event(self, kind: str, **data: Any) -> None:
        """Change the data of the first event of a type."""
        place = [str(event.type) for event in self.snapshot.events].index(kind)
        self.set("events", place, data={**self.snapshot.events[place].data, **data})

    def segment(self, trial: int, forge: Callable[[bytes], bytes], **seal: Any) -> None:
        """Replace a trial's segment and have its seal agree with the new bytes."""
        row = self.snapshot.trials[trial]
        assert row.settled is not None
        assert row.settled.seal is not None
        old = row.settled.seal.object
        assert old is not None
        data = forge(self.true[old])
        new = {"object": digest_bytes(data), "size": len(data), **seal}
        sealed: Seal = row.settled.seal.model_copy(update=new)
        self.objects[digest_bytes(data)] = data
        self.set("trials", trial, settled=_copy(row.settled, {"seal": sealed}))

    true: dict[str, bytes] = field(default_factory=dict[str, bytes])


class Forged:
    """The true reads, with forged objects in front."""

    def __init__(self, reads: Any, forgery: Forgery) -> None:
        self._reads = reads
        self._forgery = forgery

    async def object(self, digest: str) -> bytes:
        if digest in self._forgery.objects:
            data = self._forgery.objects[digest]
            if data is not None:
                return data
            digest = "sha256:" + "0" * 64
        return await self._reads.object(digest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reads, name)


def _copy(row: BaseModel, changes: dict[str, Any]) -> BaseModel:
    return row.model_copy(update=changes)


def _reencode(data: bytes, change: Callable[[Any, dict[str, "array[Any]"]], Any]) -> bytes:
    """The segment with each frame passed through `change`, which may edit or replace it."""
    parts: list[bytes] = []
    for frame, _ in evidence.frames(data):
        arrays = dict(frame.arrays)
        parts.append(evidence.encode(change(frame.record, arrays), arrays))
    return b"".join(parts)


def _nudge_logprob(record: Any, arrays: dict[str, "array[Any]"]) -> Any:
    if isinstance(record, Answer):
        arrays["logprobs"][0] -= 0.01
    return record


def _swap_token(record: Any, arrays: dict[str, "array[Any]"]) -> Any:
    if isinstance(record, Answer) and len(arrays["output"]) == 4:
        arrays["output"][0] += 1
    return record


def _other_sampler(record: Any, arrays: dict[str, "array[Any]"]) -> Any:
    if isinstance(record, Intent):
        return record.model_copy(update={"sampler": new_id(Prefix.SAMPLER)})
    return record


def _skip_number(record: Any, arrays: dict[str, "array[Any]"]) -> Any:
    if isinstance(record, Intent) and record.sequence == 2:
        return record.model_copy(update={"sequence": 3})
    return record


def _outcome_first(data: bytes) -> bytes:
    """The branch call's answer in front of its intent."""
    frames = [evidence.encode(frame.record, frame.arrays) for frame, _ in evidence.frames(data)]
    return b"".join([*frames[:4], frames[5], frames[4]])


def _reward(forgery: Forgery, trial: int, reward: float | None) -> None:
    row: Trial = forgery.snapshot.trials[trial]
    assert row.assessment is not None
    changed = row.assessment.model_copy(update={"reward": reward})
    forgery.set("trials", trial, assessment=changed)


def _contribution(forgery: Forgery, update: int, **changes: Any) -> None:
    rows: Sequence[Any] = forgery.snapshot.updates[update].contributions
    forgery.set("updates", update, contributions=(_copy(rows[0], changes), *rows[1:]))


def _infrastructure(forgery: Forgery) -> None:
    settled = forgery.snapshot.trials[0].settled
    assert settled is not None
    changed = settled.model_copy(update={"outcome": TrialOutcome.INFRASTRUCTURE})
    forgery.set("trials", 0, settled=changed)


def _gone(forgery: Forgery, digest: str | None) -> None:
    assert digest is not None
    forgery.objects[digest] = None


def _plan(forgery: Forgery) -> None:
    spec = forgery.snapshot.run.spec
    plan = spec.plan.model_copy(update={"learning_rate": 0.5})
    run = forgery.snapshot.run.model_copy(update={"spec": spec.model_copy(update={"plan": plan})})
    forgery.snapshot = replace(forgery.snapshot, run=run)


def _flip(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


TAMPERED: list[tuple[str, str, Tamper]] = [
    ("an event is missing", "events.gap_free", lambda f: f.drop("events", 3)),
    ("the last event is missing", "events.gap_free", lambda f: f.drop("events", -1)),
    (
        "an event tells another reward",
        "events.rows",
        lambda f: f.event("trial.settled", reward=9.0),
    ),
    ("a trial is missing", "events.rows", lambda f: f.drop("trials", 0)),
    ("a checkpoint is missing", "events.rows", lambda f: f.drop("checkpoints", 0)),
    ("two trials count in a slot", "slots.counted", lambda f: f.set("trials", 1, index=0)),
    ("a trial counts no more", "slots.counted", lambda f: f.set("trials", 0, counted=False)),
    ("a trial changes its task", "slots.counted", lambda f: f.set("trials", 0, task="acme/other")),
    ("a missing reward became 0", "assessments.reward", lambda f: _reward(f, 2, 0.0)),
    ("a reward appeared without work", "assessments.reward", _infrastructure),
    ("a reward changed", "batches.advantages", lambda f: _reward(f, 0, 5.0)),
    ("the plan changed", "spec.plan", _plan),
    (
        "a batch began on another sampler",
        "batches.sampler",
        lambda f: f.event("batch.started", sampler=new_id(Prefix.SAMPLER)),
    ),
    (
        "a group names another sampler",
        "batches.sampler",
        lambda f: f.set("groups", 0, sampler=new_id(Prefix.SAMPLER)),
    ),
    ("a group changed its place", "updates.submissions", lambda f: f.set("groups", 0, place=1)),
    (
        "a group was judged and had not settled",
        "updates.submissions",
        lambda f: f.event("group.settled", group=new_id(Prefix.GROUP)),
    ),
    (
        "a group was submitted and had not been judged",
        "updates.submissions",
        lambda f: f.event("group.judged", group=new_id(Prefix.GROUP)),
    ),
    ("an update lost its state", "updates.order", lambda f: f.set("updates", 0, state_digest=None)),
    (
        "an update never was unresolved",
        "updates.order",
        lambda f: f.event("update.unresolved", update=new_id(Prefix.UPDATE)),
    ),
    (
        "an update continued from elsewhere",
        "updates.chain",
        lambda f: f.set("updates", 1, from_state=new_id(Prefix.UPDATE)),
    ),
    (
        "a checkpoint names another adapter",
        "checkpoints.rows",
        lambda f: f.set("checkpoints", 0, adapter="sha256:" + "1" * 64),
    ),
    ("a segment is gone", "evidence.objects", lambda f: _gone(f, _object_of(f, 0))),
    ("a byte of a segment flipped", "evidence.objects", lambda f: f.segment(0, _flip)),
    (
        "a segment lost its end",
        "evidence.objects",
        lambda f: f.segment(0, lambda d: d[: len(d) // 2]),
    ),
    (
        "a seal counts other calls",
        "evidence.objects",
        lambda f: f.segment(0, lambda d: d, interactions=7),
    ),
    (
        "an answer stands before its intent",
        "evidence.intents",
        lambda f: f.segment(0, _outcome_first),
    ),
    (
        "a call's number is missing",
        "evidence.intents",
        lambda f: f.segment(0, lambda d: _reencode(d, _skip_number)),
    ),
    (
        "a call used another sampler",
        "evidence.samplers",
        lambda f: f.segment(0, lambda d: _reencode(d, _other_sampler)),
    ),
    (
        "an output token changed",
        "evidence.objects",
        lambda f: f.segment(0, lambda d: _reencode(d, _swap_token)),
    ),
    (
        "a log-prob changed",
        "evidence.logprobs",
        lambda f: f.segment(0, lambda d: _reencode(d, _nudge_logprob)),
    ),
    (
        "a log-prob changed, seen in the datum",
        "updates.contributions",
        lambda f: f.segment(0, lambda d: _reencode(d, _nudge_logprob)),
    ),
    ("a verdict changed", "batches.eligibility", lambda f: f.set("trials", 2, eligible=True)),
    (
        "a reason changed",
        "batches.eligibility",
        lambda f: f.set("trials", 2, ineligible_reason="overlong"),
    ),
    (
        "a census changed",
        "batches.eligibility",
        lambda f: f.event("batch.settled", census={"trials": 1}),
    ),
    ("an advantage changed", "batches.advantages", lambda f: f.set("trials", 0, advantage=0.1)),
    (
        "another clipping of the loss",
        "updates.contributions",
        lambda f: f.set("updates", 0, loss_config={"clip_high_threshold": 9.0}),
    ),
    (
        "a reference that nothing was compared with",
        "updates.contributions",
        lambda f: _contribution(f, 0, reference="sha256:" + "2" * 64),
    ),
    ("a weight changed", "updates.contributions", lambda f: _contribution(f, 0, weight=9.0)),
    (
        "a datum's digest changed",
        "updates.contributions",
        lambda f: _contribution(f, 0, datum="sha256:" + "2" * 64),
    ),
    (
        "a trial contributed unrecorded",
        "updates.contributions",
        lambda f: f.set("updates", 0, contributions=f.snapshot.updates[0].contributions[1:]),
    ),
    (
        "the tasks of a batch changed",
        "batches.tasks",
        lambda f: f.event("batch.started", tasks=["acme/one"]),
    ),
    (
        "weights are gone",
        "checkpoints.objects",
        lambda f: _gone(f, f.snapshot.checkpoints[0].adapter),
    ),
    ("state is gone", "checkpoints.objects", lambda f: _gone(f, f.snapshot.checkpoints[0].state)),
    (
        "weights are other bytes",
        "checkpoints.objects",
        lambda f: f.objects.update({f.snapshot.checkpoints[0].adapter: b"other"}),
    ),
    ("the profile is gone", "spec.objects", lambda f: _gone(f, f.snapshot.run.spec.actor)),
]


def _object_of(forgery: Forgery, trial: int) -> str | None:
    settled = forgery.snapshot.trials[trial].settled
    assert settled is not None
    assert settled.seal is not None
    return settled.seal.object


async def test_every_tampered_record_is_noticed_by_its_check(running: Live) -> None:
    run = await running.start(PLAN)
    await running.work(run)
    reads: RunReads = running.stack.operator
    sound = await take_snapshot(reads, run)
    true: dict[str, bytes] = {}
    for trial in sound.trials:
        assert trial.settled is not None
        assert trial.settled.seal is not None
        assert trial.settled.seal.object is not None
        true[trial.settled.seal.object] = await reads.object(trial.settled.seal.object)
    missed: list[str] = []
    for name, check, tamper in TAMPERED:
        forgery = Forgery(sound, true=true)
        tamper(forgery)
        compute = running.compute if check == "evidence.logprobs" else None
        report = await verify_snapshot(
            forgery.snapshot, cast(RunReads, Forged(reads, forgery)), compute, samples=None
        )
        violated = [item.id for item in report.checks if item.violated]
        if report.ok or check not in violated:
            missed.append(f"{name}: {check} not among {violated}")
    assert missed == []


class CountedPasses:
    """A compute that counts the passes it is asked for."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self.passes = 0

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        self.passes += 1
        return await self._compute.logprobs(sampler, tokens)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compute, name)


async def test_a_chain_of_calls_costs_one_pass(running: Live) -> None:
    run = await running.start(PLAN)
    await running.work(run)
    reads: RunReads = running.stack.operator
    snapshot = await take_snapshot(reads, run)
    counted = CountedPasses(running.compute)
    report = await verify_snapshot(snapshot, reads, cast(Compute, counted), samples=None)
    probes = len(snapshot.checkpoints)
    assert report.ok
    assert report.logprobs_recomputed == 3 * len(snapshot.trials)
    assert counted.passes == 2 * len(snapshot.trials) + probes


async def test_a_batch_that_was_begun_again_leaves_an_update_that_ended_early(
    running: Live,
) -> None:
    """Only an acknowledged update must have been through all states; each check says which
    invariant of the design it derives."""
    run = await running.start(PLAN)
    await running.work(run)
    reads: RunReads = running.stack.operator
    sound = await take_snapshot(reads, run)
    void = sound.updates[0].model_copy(
        update={"id": new_id(Prefix.UPDATE), "state": UpdateState.VOID, "contributions": ()}
    )
    report = await verify_snapshot(
        replace(sound, updates=(void, *sound.updates)), reads, running.compute
    )
    checks = {check.id: check for check in report.checks}
    assert checks["updates.order"].violated == 0
    assert {name: check.invariant for name, check in checks.items()} == INVARIANTS
