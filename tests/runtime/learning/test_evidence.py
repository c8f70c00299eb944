"""Reading sealed evidence: checked, bounded, and never trusted when it differs from its seal."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime.learning.eligibility import Reason, Verdict
from runtime.learning.evidence import EvidenceReader, seal_mismatch
from specs.errors import ErrorCode, NotFound, Unavailable
from specs.interaction import CallState
from specs.records import Trial
from tests.runtime.learning.support import Recorded, Turn, record, trial_of

pytestmark = pytest.mark.anyio


@dataclass
class Shelf:
    """Objects by digest, counting reads."""

    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    reads: list[str] = field(default_factory=list[str])

    async def object(self, digest: str) -> bytes:
        self.reads.append(digest)
        if digest not in self.objects:
            raise NotFound("no such object")
        return self.objects[digest]

    def put(self, recorded: Recorded) -> Trial:
        assert recorded.seal.object is not None
        self.objects[recorded.seal.object] = recorded.data
        return trial_of(recorded)


def turns(count: int = 1) -> list[Turn]:
    return [Turn([1, 2], [3, 4])] * count


async def test_evidence_is_read_once_while_it_fits() -> None:
    shelf = Shelf()
    trials = [shelf.put(record(turns())) for _ in range(3)]
    reader = EvidenceReader(shelf)
    for trial in trials * 2:
        assert len((await reader.read(trial)).interactions) == 1
    assert len(shelf.reads) == 3


async def test_memory_is_bounded_whatever_the_batch_holds() -> None:
    shelf = Shelf()
    trials = [shelf.put(record(turns())) for _ in range(4)]
    reader = EvidenceReader(shelf, budget=2 * len(shelf.objects.popitem()[1]))
    trials.pop()
    for trial in trials * 2:
        await reader.read(trial)
    assert len(shelf.reads) == 6


async def test_a_trial_without_seal_or_calls_has_no_evidence() -> None:
    reader = EvidenceReader(Shelf())
    assert (await reader.read(trial_of(None))).interactions == ()


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut", "other"])
async def test_what_differs_from_its_seal_is_a_problem_and_not_evidence(damage: str) -> None:
    shelf = Shelf()
    recorded = record(turns(2))
    trial = shelf.put(recorded)
    digest, data = recorded.seal.object, recorded.data
    assert digest is not None
    flipped = data[:40] + bytes([data[40] ^ 1]) + data[41:]
    other = record(turns(1)).data
    shelf.objects[digest] = {"missing": b"", "flipped": flipped, "cut": data[:-9], "other": other}[
        damage
    ]
    if damage == "missing":
        del shelf.objects[digest]
    found = await EvidenceReader(shelf).read(trial)
    assert found.interactions == ()
    assert found.problem is not None
    assert found.problem.reason in (Reason.EVIDENCE_DAMAGED, Reason.EVIDENCE_MISMATCH)


async def test_a_store_that_is_away_is_no_verdict() -> None:
    class Away:
        async def object(self, digest: str) -> bytes:
            raise Unavailable("away", code=ErrorCode.STORE_UNAVAILABLE)

    with pytest.raises(Unavailable):
        await EvidenceReader(Away()).read(trial_of(record(turns())))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, []),
        ({"size": 1}, ["size: sealed 1"]),
        ({"interactions": 3}, ["interactions: sealed 3, found 2"]),
        ({"prompt_tokens": 5}, ["prompt_tokens: sealed 5, found 4"]),
        ({"output_tokens": 5}, ["output_tokens: sealed 5, found 4"]),
        ({"states": {CallState.ANSWERED: 1}}, ["states: sealed"]),
        ({"states": {CallState.ANSWERED: 2, CallState.REFUSED: 1}}, ["states: sealed"]),
        # A state of which there is none may be named or not.
        ({"states": {CallState.ANSWERED: 2, CallState.LOST: 0}}, []),
        ({"size": 1, "interactions": 3}, ["size: sealed 1", "interactions: sealed 3, found 2"]),
    ],
)
def test_every_count_that_differs_from_the_seal_is_named(
    changes: dict[str, Any], says: list[str]
) -> None:
    recorded = record(turns(2))
    seal = recorded.seal.model_copy(update=changes)
    found = seal_mismatch(seal, recorded.data, recorded.calls)
    assert [text[: len(part)] for text, part in zip(found, says, strict=True)] == says


async def test_the_oldest_that_was_not_asked_for_again_is_let_go() -> None:
    shelf = Shelf()
    trials = [shelf.put(record(turns())) for _ in range(3)]
    size = len(next(iter(shelf.objects.values())))
    reader = EvidenceReader(shelf, budget=2 * size)  # two of them, just full
    for place in (0, 1, 0, 2, 0):
        await reader.read(trials[place])
    assert len(shelf.reads) == 3
    await reader.read(trials[1])
    assert len(shelf.reads) == 4
    narrow = EvidenceReader(shelf, budget=0)
    for place in (0, 0, 1, 1):  # the newest is kept whatever its size
        await narrow.read(trials[place])
    assert len(shelf.reads) == 6


async def test_damage_says_what_is_damaged_and_is_remembered() -> None:
    shelf = Shelf()
    trial = shelf.put(record(turns()))
    shelf.objects.clear()
    reader = EvidenceReader(shelf)
    for _ in range(2):
        found = await reader.read(trial)
        assert found.problem == Verdict(Reason.EVIDENCE_DAMAGED, "no such object")
    assert len(shelf.reads) == 1
    other = record(turns(2))
    assert trial.settled is not None
    assert trial.settled.seal is not None
    shelf.objects[str(trial.settled.seal.object)] = other.data
    found = await EvidenceReader(shelf).read(trial)
    assert found.problem is not None
    assert found.problem.reason is Reason.EVIDENCE_MISMATCH
    assert found.problem.detail.startswith("states: sealed")
