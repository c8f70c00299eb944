"""Reading sealed evidence: checked, bounded, and never trusted when it differs from its seal."""

from dataclasses import dataclass, field

import pytest

from runtime.learning.eligibility import Reason
from runtime.learning.evidence import EvidenceReader
from specs.errors import ErrorCode, NotFound, Unavailable
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
