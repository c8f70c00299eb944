"""The work of an update: what its datums are of, and in requests of which size."""

from typing import Any

import numpy as np
import pytest

from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from runtime.learning import work
from runtime.learning.datums import datum_digest
from runtime.learning.evidence import EvidenceReader
from runtime.learning.packing import Packed, pack
from runtime.learning.reference import Reference
from runtime.learning.work import KnownWork, Part, Piece, Row, Summary, Terms, chunks, pieces
from specs.canonical import digest_bytes
from specs.chat import RowOrigin
from specs.errors import Internal
from specs.objective import Clip, Credit, KlPenalty
from specs.records import Trial
from tests.runtime.learning.pretended import Store
from tests.runtime.learning.support import Turn, record, trial_of
from tests.runtime.learning.told import GROUPS, training_plan

ORIGIN = RowOrigin(file=digest_bytes(b"file"), line=3, digest=digest_bytes(b"row"))
KL = KlPenalty(coefficient=0.5)


def stored(store: Store, turns: list[Turn], group: str | None = None) -> Trial:
    recorded = record(turns)
    store.put(recorded.data)
    return trial_of(recorded, group=group)


def row_of(size: int) -> Row:
    """A row of a file of so many tokens."""
    ids = np.arange(size + 1, dtype=np.int32)
    marked = np.ones(size, np.bool_)
    packed = Packed((), ids[:-1], ids[1:], marked, None, marked.astype(np.float32))
    return Row(None, None, 0.5, ORIGIN, packed)


async def of(rows: list[Row], loss: Loss = Loss.IMPORTANCE_SAMPLING, *rest: Any) -> list[Piece]:
    store = rest[0] if rest else Store()
    return [piece async for piece in pieces(rows, loss, EvidenceReader(store), *rest[1:])]


def test_terms_are_the_plans() -> None:
    plan = training_plan(loss="ppo", clip=Clip(low=0.5, high=2.0), kl=KL)
    assert Terms.of(plan) == Terms(LossConfig(0.5, 2.0), plan.credit, KL)
    assert Terms.of(training_plan()) == Terms(NO_CONFIG, Credit(), None)


def test_a_part_stands_alone_unless_it_is_told() -> None:
    assert not Part(None, ()).others_sampling()


@pytest.mark.anyio
async def test_work_that_is_known_is_one_part() -> None:
    known = KnownWork(0, Loss.CROSS_ENTROPY, (row_of(2),), {"trials": 1}, final=True)
    (part,) = [part async for part in known.parts()]
    assert (part.group, part.rows) == (None, known.rows)
    assert known.summary() == Summary({"trials": 1}, {})


@pytest.mark.anyio
async def test_a_contribution_says_what_its_datum_is_of() -> None:
    store = Store()
    trial = stored(store, [Turn([1, 2], [3, 4])], GROUPS[0])
    (piece,) = await of([Row(trial, GROUPS[0], 0.25)], Loss.PPO, store)
    made = piece.contribution
    assert (made.trial, made.row, made.group) == (trial.id, None, GROUPS[0])
    assert (made.tokens, made.trained_tokens, made.weight) == (3, 2, 0.25)
    assert made.interactions == piece.packed.interactions != ()
    assert made.datum == datum_digest(piece.datum)
    assert made.reference is None
    (file,) = await of([row_of(4)], Loss.CROSS_ENTROPY)
    assert (file.contribution.trial, file.contribution.row) == (None, ORIGIN)
    assert file.datum.inputs["weights"].tolist() == [0.5] * 4


@pytest.mark.anyio
async def test_credit_leaves_calls_out_where_the_plan_has_any() -> None:
    store = Store()
    trial = stored(store, [Turn([1], [2], agent="sub"), Turn([5], [6])])
    rows = [Row(trial, None, 1.0)]
    assert len(await of(rows, Loss.PPO, store)) == 2
    terms = Terms(credit=Credit(delegated="exclude"))
    (piece,) = await of(rows, Loss.PPO, store, terms)
    assert piece.packed.targets.tolist() == [6]


class Known:
    """A reference of which every log-prob is -1."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def of(self, trial: str, sequences: list[Packed]) -> Reference:
        self.asked.append(trial)
        values = tuple(np.full(len(packed.targets), -1, np.float32) for packed in sequences)
        return Reference(digest_bytes(trial.encode()), values)


@pytest.mark.anyio
async def test_a_penalty_compares_the_trials_of_a_group_and_of_no_other() -> None:
    store, known = Store(), Known()
    members = [
        (stored(store, [Turn([1], [2], logprobs=[-1.5])], GROUPS[0]), GROUPS[0]),
        (stored(store, [Turn([1], [3], logprobs=[-0.5])], GROUPS[0]), GROUPS[0]),
        (stored(store, [Turn([1], [4], logprobs=[-9.0])], GROUPS[1]), GROUPS[1]),
    ]
    rows = [Row(trial, group, 0.25, divisor=4.0) for trial, group in members]
    first, second, alone = await of(rows, Loss.PPO, store, Terms(kl=KL), known)
    # Differences of -0.5 and 0.5 about a mean of 0, halved by the coefficient and divided by 4.
    assert first.datum.inputs["advantages"].tolist() == [0.25 + 0.0625]
    assert second.datum.inputs["advantages"].tolist() == [0.25 - 0.0625]
    assert alone.datum.inputs["advantages"].tolist() == [0.25]
    assert [piece.gap.tolist() for piece in (first, alone) if piece.gap is not None] == [
        [-0.5],
        [-8.0],
    ]
    assert known.asked == [trial.id for trial, _ in members]
    assert first.contribution.reference == digest_bytes(members[0][0].id.encode())


@pytest.mark.anyio
async def test_a_penalty_without_a_reference_is_a_defect_and_what_is_empty_needs_none() -> None:
    with pytest.raises(Internal, match="no reference was given"):
        await of([row_of(1)], Loss.PPO, Store(), Terms(kl=KL))
    store, known = Store(), Known()
    empty = stored(store, [Turn([1], [2], superseded=True)], GROUPS[0])
    after = stored(store, [Turn([1], [2])], GROUPS[0])
    rows = [row_of(1), Row(empty, GROUPS[0], 1.0), Row(after, GROUPS[0], 1.0)]
    found = await of(rows, Loss.PPO, store, Terms(kl=KL), known)
    assert [piece.contribution.trial for piece in found] == [after.id]
    assert known.asked == [after.id]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([12], [[12]]),
        ([4, 6], [[4, 6]]),
        ([4, 7], [[4], [7]]),
        ([1, 1, 1, 1], [[1, 1, 1], [1]]),
        ([9, 2, 8], [[9], [2, 8]]),
    ],
)
async def test_requests_are_as_large_as_allowed_and_no_larger(
    sizes: list[int], expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "CHUNK_TOKENS", 10)
    monkeypatch.setattr(work, "CHUNK_DATUMS", 3)
    rows = [row_of(size) for size in sizes]
    made = chunks(rows, Loss.CROSS_ENTROPY, EvidenceReader(Store()))
    assert [[len(piece.datum.tokens) for piece in chunk] async for chunk in made] == expected


def test_log_probs_are_read_by_policy_losses_alone() -> None:
    (packed,) = pack(record([Turn([1], [2])]).calls)
    assert set(work.datum_of(packed, 0.5, Loss.CROSS_ENTROPY).inputs) == {"weights"}
    for loss in (Loss.IMPORTANCE_SAMPLING, Loss.PPO, Loss.CISPO):
        assert set(work.datum_of(packed, 0.5, loss).inputs) == {"logprobs", "advantages"}
