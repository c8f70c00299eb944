"""What an update's contributions measured while their gradients were added up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.compute.protocol import Datum, FloatArray, ForwardResult
from runtime.learning.monitor import Monitor
from runtime.learning.work import Piece


@dataclass(slots=True)
class Accumulation:
    """Running sums over the chunks of one update, in the order of submission.

    :ivar seconds: spent on forward and backward passes.
    :ivar overlapped: of these, while other groups of the batch were still sampling.
    :ivar first: the first chunk's datums, with the log-probs of their targets.
    """

    monitor: Monitor
    datums: int = 0
    trained_tokens: int = 0
    seconds: float = 0.0
    overlapped: float = 0.0
    _tokens: int = 0
    _losses: list[float] = field(default_factory=list[float])
    first: tuple[Sequence[Datum], Sequence[FloatArray]] = ((), ())

    def add(
        self,
        chunk: Sequence[Piece],
        result: ForwardResult,
        *,
        seconds: float,
        overlapped: bool,
    ) -> None:
        """Count a chunk whose gradient has been added."""
        self.seconds += seconds
        if overlapped:
            self.overlapped += seconds
        self._losses.append(result.loss_sum)
        for piece, logprobs in zip(chunk, result.logprobs, strict=True):
            self.datums += 1
            self._tokens += len(piece.packed.tokens)
            self.trained_tokens += piece.packed.trained_tokens
            self.monitor.add(piece, logprobs)
        if not self.first[0]:
            self.first = ([piece.datum for piece in chunk], result.logprobs)

    def measures(self) -> dict[str, float]:
        """By name; a loss that is not finite is NaN here."""
        finite = all(map(math.isfinite, self._losses))
        return {
            "loss": math.fsum(self._losses) if finite else math.nan,
            "datums": float(self.datums),
            "tokens": float(self._tokens),
            "trained_tokens": float(self.trained_tokens),
            **self.monitor.measures(),
            "forward_backward_seconds": self.seconds,
            "overlapped_seconds": self.overlapped,
        }
