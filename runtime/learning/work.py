"""The work of one update: which trials move it, with what weight, through which datums.

Work comes in parts, in the order of their submission: a part is a sampling group that has
settled, or all of a supervised batch. A `Row` is small; its sequences are packed from evidence
when they are needed, so that what is in memory does not grow with the batch.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.compute.protocol import Datum, Loss
from runtime.learning.datums import cross_entropy_datum, datum_digest, importance_datum
from runtime.learning.evidence import EvidenceReader
from runtime.learning.packing import Packed, pack
from specs.chat import RowOrigin
from specs.records import Contribution, Trial

CHUNK_TOKENS = 65_536
"""Tokens of one forward/backward request."""
CHUNK_DATUMS = 256


@dataclass(frozen=True, slots=True)
class Row:
    """What contributes: `weight` is that of each of its target tokens.

    A trial, whose sequences are packed from evidence, or a row of a file, with its sequence.
    """

    trial: Trial | None
    group: str | None
    weight: float
    origin: RowOrigin | None = None
    sequence: Packed | None = None


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

    async def parts(self) -> AsyncGenerator[Part]:
        """All rows as one part."""
        yield Part(None, self.rows)

    def summary(self) -> Summary:
        """As it was given."""
        return Summary(self.census, self.measures)


@dataclass(frozen=True, slots=True)
class Piece:
    """One datum with what it came from."""

    row: Row
    packed: Packed
    datum: Datum

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
        )


async def pieces(rows: Sequence[Row], loss: Loss, evidence: EvidenceReader) -> AsyncIterator[Piece]:
    """Every datum of the rows, in a fixed order."""
    for row in rows:
        for packed in await sequences(row, evidence):
            yield Piece(row, packed, datum_of(packed, row.weight, loss))


async def sequences(row: Row, evidence: EvidenceReader) -> list[Packed]:
    """The sequences of a row, in a fixed order."""
    if row.trial is None:
        assert row.sequence is not None
        return [row.sequence]
    return pack((await evidence.read(row.trial)).interactions)


def datum_of(packed: Packed, weight: float, loss: Loss) -> Datum:
    """The arrays that `loss` reads."""
    if loss is Loss.IMPORTANCE_SAMPLING:
        return importance_datum(packed, weight)
    return cross_entropy_datum(packed, weight)


async def chunks(
    rows: Sequence[Row], loss: Loss, evidence: EvidenceReader
) -> AsyncIterator[list[Piece]]:
    """The pieces in requests of bounded size, at least one piece each."""
    chunk: list[Piece] = []
    tokens = 0
    async for piece in pieces(rows, loss, evidence):
        size = len(piece.packed.tokens)
        if chunk and (tokens + size > CHUNK_TOKENS or len(chunk) == CHUNK_DATUMS):
            yield chunk
            chunk, tokens = [], 0
        chunk.append(piece)
        tokens += size
    if chunk:
        yield chunk
