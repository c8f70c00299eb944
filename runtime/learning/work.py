"""The work of one update: which trials move it, with what weight, through which datums.

Work comes in parts, in the order of their submission: a part is a sampling group that has
settled, or all of a supervised batch. A `Row` is small; its sequences are packed from evidence
when they are needed, so that what is in memory does not grow with the batch. A term that
compares the trials of a group (the KL penalty) needs the group's sequences together, and never
another group's.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

import numpy as np

from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from runtime.compute.protocol import Datum, FloatArray
from runtime.learning.credit import credit
from runtime.learning.datums import cross_entropy_datum, datum_digest, importance_datum
from runtime.learning.evidence import EvidenceReader
from runtime.learning.packing import Packed, pack
from runtime.learning.penalty import Compared, differences, penalties
from runtime.learning.reference import References
from specs.chat import RowOrigin
from specs.errors import Internal
from specs.objective import Credit, KlPenalty
from specs.plans import TrainingPlan
from specs.records import Contribution, Trial

CHUNK_TOKENS = 65_536
"""Tokens of one forward/backward request."""
CHUNK_DATUMS = 256


@dataclass(frozen=True, slots=True)
class Row:
    """What contributes: `weight` is that of each of its target tokens, before the credit of its
    call; `divisor` is what that was divided by, and token terms are.

    A trial, whose sequences are packed from evidence, or a row of a file, with its sequence.
    """

    trial: Trial | None
    group: str | None
    weight: float
    origin: RowOrigin | None = None
    sequence: Packed | None = None
    divisor: float = 1.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What else goes into a token's weight and into the loss. `credit` None: every call that was
    acted upon learns, with weight 1."""

    config: LossConfig = NO_CONFIG
    credit: Credit | None = None
    kl: KlPenalty | None = None

    @classmethod
    def of(cls, plan: TrainingPlan) -> "Terms":
        """As planned."""
        clip = plan.clip
        config = NO_CONFIG if clip is None else LossConfig(clip.low, clip.high)
        return cls(config, plan.credit, plan.kl)


NO_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are submitted together.

    :ivar others_sampling: tells whether other groups of the batch are still sampling.
    """

    group: str | None
    rows: tuple[Row, ...]
    others_sampling: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Summary:
    """What a batch adds up to; known when its last part is."""

    census: Mapping[str, int]
    measures: Mapping[str, float]


class Work(Protocol):
    """All that an update needs to know about its batch."""

    @property
    def batch(self) -> int: ...
    @property
    def loss(self) -> Loss: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def final(self) -> bool:
        """No batch follows."""
        ...

    def parts(self) -> AsyncGenerator[Part]:
        """Every part in the order of submission, waiting for those that are not ready.

        Read again from the start it gives the same parts, which is how gradients that died
        with a trainer are made again.
        """
        ...

    def summary(self) -> Summary:
        """To be asked after the last part."""
        ...


@dataclass(frozen=True, slots=True)
class KnownWork:
    """Work of which everything is known from the start."""

    batch: int
    loss: Loss
    rows: tuple[Row, ...]
    census: Mapping[str, int]
    final: bool
    measures: Mapping[str, float] = field(default_factory=dict[str, float])
    terms: Terms = NO_TERMS

    async def parts(self) -> AsyncGenerator[Part]:
        """All rows as one part."""
        yield Part(None, self.rows)

    def summary(self) -> Summary:
        """As it was given."""
        return Summary(self.census, self.measures)


@dataclass(frozen=True, slots=True)
class Piece:
    """One datum with what it came from. `gap` [n] is logp_sampled − logp_reference at generated
    targets, where there is a reference; `reference` names the stored log-probs of the trial."""

    row: Row
    packed: Packed
    datum: Datum
    gap: FloatArray | None = None
    reference: str | None = None

    @property
    def contribution(self) -> Contribution:
        return Contribution(
            trial=None if self.row.trial is None else self.row.trial.id,
            row=self.row.origin,
            group=self.row.group,
            interactions=self.packed.interactions,
            datum=datum_digest(self.datum),
            tokens=len(self.packed.tokens),
            trained_tokens=self.packed.trained_tokens,
            weight=self.row.weight,
            reference=self.reference,
        )


async def pieces(
    rows: Sequence[Row],
    loss: Loss,
    evidence: EvidenceReader,
    terms: Terms = NO_TERMS,
    references: References | None = None,
) -> AsyncIterator[Piece]:
    """Every datum of the rows, in a fixed order; `references` where `terms` have a penalty."""
    if terms.kl is None:
        for row in rows:
            for packed in await sequences(row, terms, evidence):
                yield Piece(row, packed, datum_of(packed, row.weight, loss))
        return
    if references is None:
        raise Internal("The work has a KL penalty, and no reference was given.")
    for _, group in groupby(rows, key=lambda row: row.group):
        for piece in await _penalised(list(group), terms, terms.kl, evidence, references):
            yield piece


async def sequences(row: Row, terms: Terms, evidence: EvidenceReader) -> list[Packed]:
    """The sequences of a row, in a fixed order, with the calls of a trial that learn marked."""
    if row.trial is None:
        assert row.sequence is not None
        return [row.sequence]
    calls = (await evidence.read(row.trial)).interactions
    return pack(calls, None if terms.credit is None else credit(calls, terms.credit).weights)


async def _penalised(
    rows: Sequence[Row],
    terms: Terms,
    kl: KlPenalty,
    evidence: EvidenceReader,
    references: References,
) -> list[Piece]:
    """The pieces of one group, whose tokens also carry the penalty."""
    found: list[tuple[Row, str, Compared]] = []
    for row in rows:
        packed = await sequences(row, terms, evidence)
        if not packed or row.trial is None:
            continue
        reference = await references.of(row.trial.id, packed)
        found += [
            (row, reference.digest, Compared(item, logprobs))
            for item, logprobs in zip(packed, reference.logprobs, strict=True)
        ]
    penalty = penalties([compared for _, _, compared in found], kl)
    return [
        Piece(
            row,
            compared.packed,
            importance_datum(
                compared.packed, row.weight, (values / row.divisor).astype(np.float32)
            ),
            gap=differences(compared).astype(np.float32),
            reference=digest,
        )
        for (row, digest, compared), values in zip(found, penalty, strict=True)
    ]


def datum_of(packed: Packed, weight: float, loss: Loss) -> Datum:
    """The arrays that `loss` reads."""
    if loss is Loss.CROSS_ENTROPY:
        return cross_entropy_datum(packed, weight)
    return importance_datum(packed, weight)


async def chunks(
    rows: Sequence[Row],
    loss: Loss,
    evidence: EvidenceReader,
    terms: Terms = NO_TERMS,
    references: References | None = None,
) -> AsyncIterator[list[Piece]]:
    """The pieces in requests of bounded size, at least one piece each."""
    chunk: list[Piece] = []
    tokens = 0
    async for piece in pieces(rows, loss, evidence, terms, references):
        size = len(piece.packed.tokens)
        if chunk and (tokens + size > CHUNK_TOKENS or len(chunk) == CHUNK_DATUMS):
            yield chunk
            chunk, tokens = [], 0
        chunk.append(piece)
        tokens += size
    if chunk:
        yield chunk
