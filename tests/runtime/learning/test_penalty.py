"""The KL penalty by hand: group-local, on generated tokens alone (invariants 5 and 6)."""

import numpy as np
import pytest

from runtime.learning.packing import Packed, pack
from runtime.learning.penalty import Compared, discounted, penalties
from specs.objective import KlPenalty
from tests.runtime.compute.samples import floats
from tests.runtime.learning.support import Turn, record


def sequence(*logprobs: float) -> Packed:
    """One prompt token, then a generated token for each log-prob."""
    tokens = list(range(2, 2 + len(logprobs)))
    (packed,) = pack(record([Turn([1], tokens, logprobs=logprobs)]).calls)
    return packed


def test_each_token_gets_the_groups_mean_less_its_own_difference() -> None:
    group = [
        Compared(sequence(-1.0, -2.0), floats([-2.0, -2.0])),  # differences 1, 0
        Compared(sequence(-3.0), floats([-0.5])),  # -2.5
    ]
    mean = (1 + 0 - 2.5) / 3
    first, second = penalties(group, KlPenalty(coefficient=0.1))
    assert first == pytest.approx([0.1 * (mean - 1), 0.1 * mean])
    assert second == pytest.approx([0.1 * (mean + 2.5)])
    assert float(first.sum() + second.sum()) == pytest.approx(0)


def test_observations_get_nothing_whatever_the_reference_says_there() -> None:
    calls = record([Turn([1, 2], [3]), Turn([4, 5], [6], extends=0)]).calls
    (packed,) = pack(calls)
    reference = floats([7, -1.5, 7, 7, -0.25])
    for discount in (0.0, 0.5):
        (terms,) = penalties(
            [Compared(packed, reference)], KlPenalty(coefficient=1, discount=discount)
        )
        assert terms[~packed.generated].tolist() == [0, 0, 0]
        assert terms[packed.generated].all()


def test_a_discount_lets_a_token_answer_for_what_follows_in_its_sequence() -> None:
    packed = sequence(-1.0, -1.0, -1.0)
    compared = [Compared(packed, floats([-1.0, -1.0, -4.0]))]  # differences 0, 0, 3; mean 1
    (terms,) = penalties(compared, KlPenalty(coefficient=1, discount=0.5))
    assert terms.tolist() == pytest.approx([1 + 0.5 * 1 + 0.25 * -2, 1 + 0.5 * -2, -2])
    assert discounted(np.array([1.0, 2.0]), 1.0).tolist() == [3.0, 2.0]


def test_the_same_policy_has_no_penalty_and_no_token_no_mean() -> None:
    packed = sequence(-1.0, -2.0)
    assert packed.logprobs is not None
    (terms,) = penalties([Compared(packed, packed.logprobs)], KlPenalty(coefficient=5))
    assert terms.tolist() == [0, 0]
    assert penalties([], KlPenalty(coefficient=5)) == []
