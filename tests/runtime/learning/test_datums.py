"""Weights of tokens and digests of datums, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from runtime.learning.datums import (
    cross_entropy_datum,
    datum_digest,
    importance_datum,
)
from runtime.learning.packing import Packed, pack
from specs.errors import Internal
from tests.runtime.learning.support import Turn, record


def packed() -> Packed:
    (sequence,) = pack(record([Turn([1, 2], [3, 4]), Turn([5], [6], extends=0)]).calls)
    return sequence


def test_only_generated_targets_have_weight_invariant_6() -> None:
    datum = importance_datum(packed(), -0.25)
    assert datum.targets.tolist() == [2, 3, 4, 5, 6]
    assert datum.inputs["advantages"].tolist() == [0.0, -0.25, -0.25, 0.0, -0.25]
    assert datum.inputs["logprobs"].tolist() == [0.0, -0.5, -0.5, 0.0, -0.5]
    weights = cross_entropy_datum(packed(), 0.5).inputs["weights"]
    assert weights.tolist() == [0.0, 0.5, 0.5, 0.0, 0.5]
    assert not np.signbit(datum.inputs["advantages"][0])


def test_terms_are_added_at_generated_tokens_alone_invariant_6() -> None:
    terms = np.array([9, 0.5, -0.5, 9, 0.25], np.float32)
    datum = importance_datum(packed(), 0.25, terms)
    assert datum.inputs["advantages"].tolist() == [0, 0.75, -0.25, 0, 0.5]


def test_a_reward_counts_once_however_many_datums_a_trial_has() -> None:
    one = pack(record([Turn([1], [2, 3]), Turn([4], [5, 6], extends=0)]).calls)
    two = pack(record([Turn([1], [2, 3]), Turn([9], [5, 6])]).calls)
    assert (len(one), len(two)) == (1, 2)
    sums = [
        sum(float(importance_datum(item, 0.25).inputs["advantages"].sum()) for item in sequences)
        for sequences in (one, two)
    ]
    assert sums == [1.0, 1.0]


def test_a_sequence_without_log_probs_gives_no_importance_ratio() -> None:
    with pytest.raises(Internal, match="no log-probs"):
        importance_datum(replace(packed(), logprobs=None), 1.0)


def test_the_digest_covers_every_array_and_is_stable() -> None:
    datum = cross_entropy_datum(packed(), 0.5)
    assert datum_digest(datum) == datum_digest(cross_entropy_datum(packed(), 0.5))
    others = [
        cross_entropy_datum(packed(), 0.25),
        importance_datum(packed(), 0.5),
        replace(datum, tokens=datum.tokens + 1),
        replace(datum, targets=datum.targets + 1),
    ]
    assert len({datum_digest(item) for item in (datum, *others)}) == 5
