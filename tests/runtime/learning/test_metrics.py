"""Measures of an update, by hand."""

import math

import numpy as np
import pytest

from runtime.learning.metrics import Drift, cumulative, histogram, not_recordable, reward_measures


def test_drift_by_hand_over_two_datums_and_generated_tokens_alone() -> None:
    drift = (
        Drift()
        .add(
            np.array([-9, -1.0, -2.0], np.float32),
            np.array([0, -1.5, -2.0], np.float32),
            np.array([False, True, True]),
        )
        .add(
            np.array([-3.0], np.float32),
            np.array([-2.0], np.float32),
            np.array([True]),
        )
    )
    measures = drift.measures()
    assert measures["kl_sample_train_v1"] == pytest.approx((0.5 + 0 - 1) / 3)
    assert measures["kl_sample_train_v2"] == pytest.approx(0.5 * (0.25 + 0 + 1) / 3)
    assert measures["max_logprob_difference"] == 1.0
    assert measures["entropy"] == pytest.approx(2.0)
    assert measures["logprob_difference_within_1e-06"] == pytest.approx(1 / 3)
    assert measures["logprob_difference_within_0.1"] == pytest.approx(1 / 3)


def test_without_sampled_log_probs_there_is_nothing_to_measure() -> None:
    empty = np.zeros(0, np.float32)
    drift = Drift().add(empty, empty, np.zeros(0, np.bool_))
    assert drift.measures() == {}
    assert reward_measures([]) == {}


def test_histogram_bins_are_closed_above() -> None:
    assert histogram([0.5, 1.0, 1.5, 9.0], [1.0, 2.0]) == (2, 1, 1)
    assert histogram([], [1.0]) == (0, 0)
    assert cumulative([1, 1, 2]) == [0.25, 0.5, 1.0]
    assert cumulative([0, 0]) == [0.0, 0.0]


def test_rewards_have_mean_population_spread_and_range() -> None:
    assert reward_measures([0.0, 2.0]) == {
        "reward_mean": 1.0,
        "reward_std": 1.0,
        "reward_min": 0.0,
        "reward_max": 2.0,
    }


def test_what_no_record_can_hold_is_named() -> None:
    assert not_recordable({"loss": math.nan, "tokens": 1.0, "grad": math.inf}) == ["loss", "grad"]


def test_each_bound_of_the_differences_has_its_share() -> None:
    gaps = np.array([0, 5e-6, 5e-5, 5e-4, 5e-3, 5e-2, 0.5], np.float64)
    sampled = np.full(7, -1, np.float32)
    drift = Drift().add(sampled, (sampled - gaps).astype(np.float32), np.ones(7, np.bool_))
    names = ("1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1")
    shares = [drift.measures()[f"logprob_difference_within_{name}"] for name in names]
    assert shares == pytest.approx([count / 7 for count in range(1, 7)])
    assert drift.measures()["max_logprob_difference"] == pytest.approx(0.5)
    smaller = drift.add(sampled[:1], sampled[:1], np.ones(1, np.bool_))
    assert smaller.measures()["max_logprob_difference"] == pytest.approx(0.5)


def test_one_reward_has_no_spread() -> None:
    assert reward_measures([3.0])["reward_std"] == 0.0
    assert not_recordable({}) == []
    assert not_recordable({"a": -math.inf, "b": 0.0}) == ["a"]
    assert not_recordable({"a": 2.0**53, "b": 2.0**53 - 1, "c": -1e16}) == ["a", "c"]
