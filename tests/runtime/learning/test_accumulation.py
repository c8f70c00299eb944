"""What an update's contributions add up to, chunk by chunk."""

import math

import numpy as np
import pytest

from runtime.compute.losses import NO_CONFIG, Loss
from runtime.compute.protocol import ForwardResult
from runtime.learning.accumulation import Accumulation
from runtime.learning.monitor import Monitor
from runtime.learning.packing import pack
from runtime.learning.work import Piece, Row, datum_of
from tests.runtime.learning.support import Turn, record, trial_of


def piece(size: int, prompt: int = 3) -> Piece:
    recorded = record([Turn(list(range(prompt)), list(range(size)))])
    (packed,) = pack(recorded.calls)
    return Piece(
        Row(trial_of(recorded), None, 1.0), packed, datum_of(packed, 1.0, Loss.IMPORTANCE_SAMPLING)
    )


def result(loss: float, *chunk: Piece) -> ForwardResult:
    return ForwardResult([np.full(len(p.packed.targets), -0.5, np.float32) for p in chunk], loss)


def sums() -> Accumulation:
    return Accumulation(Monitor(Loss.IMPORTANCE_SAMPLING, NO_CONFIG))


def test_every_chunk_adds_its_datums_tokens_loss_and_time() -> None:
    made, first, second, third = sums(), piece(2), piece(1), piece(4)
    made.add([first, second], result(1.5, first, second), seconds=2.0, overlapped=True)
    made.add([third], result(-0.25, third), seconds=3.0, overlapped=False)
    found = made.measures()
    assert found["loss"] == 1.25
    assert (found["datums"], found["trained_tokens"]) == (3.0, 7.0)
    assert found["tokens"] == 3 * (3 - 1) + 7
    assert (found["forward_backward_seconds"], found["overlapped_seconds"]) == (5.0, 2.0)
    assert found["entropy"] == pytest.approx(0.5)
    assert (made.datums, made.trained_tokens) == (3, 7)


def test_the_first_chunk_is_kept_for_what_is_compared_later() -> None:
    made, first, second = sums(), piece(2), piece(1)
    assert made.first == ((), ())
    for one in (first, second):
        made.add([one], result(0.0, one), seconds=0.0, overlapped=False)
    data, logprobs = made.first
    assert [datum.tokens.tolist() for datum in data] == [first.datum.tokens.tolist()]
    assert [len(values) for values in logprobs] == [len(first.packed.targets)]


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_is_no_number_whatever_the_others_are(loss: float) -> None:
    made, one = sums(), piece(1)
    assert made.measures()["loss"] == 0.0
    made.add([one], result(loss, one), seconds=0.0, overlapped=False)
    made.add([one], result(1.0, one), seconds=0.0, overlapped=False)
    assert math.isnan(made.measures()["loss"])
