"""Quantiles and intervals against tables, identities, and scipy."""

import itertools
import math
from importlib import import_module
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.analysis.stats import (
    all_of,
    any_of,
    incomplete_beta,
    paired_interval,
    t_cdf,
    t_quantile,
)

TABLE = [
    (0.975, 1, 12.706204736432095),
    (0.975, 2, 4.302652729696142),
    (0.975, 10, 2.2281388519649385),
    (0.975, 47, 2.011740513729766),
    (0.975, 1000, 1.9623390808264078),
    (0.9, 3, 1.6377443536962101),
    (0.95, 30, 1.6972608865939574),
]
"""Published two-sided and one-sided critical values of Student's t."""


@pytest.mark.parametrize(("probability", "degrees", "value"), TABLE)
def test_quantiles_equal_the_tables(probability: float, degrees: int, value: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(value, rel=1e-9)


def test_one_degree_of_freedom_is_the_cauchy_distribution() -> None:
    for probability in (0.6, 0.75, 0.9, 0.99):
        expected = math.tan(math.pi * (probability - 0.5))
        assert t_quantile(probability, 1) == pytest.approx(expected, rel=1e-9)


@given(st.floats(0.001, 0.999), st.floats(0.5, 500))
def test_the_quantile_inverts_the_distribution(probability: float, degrees: float) -> None:
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-9)


@given(st.floats(0.1, 200), st.floats(0.1, 200), st.floats(1e-6, 1 - 1e-6))
def test_the_incomplete_beta_is_symmetric(a: float, b: float, x: float) -> None:
    total = incomplete_beta(a, b, x) + incomplete_beta(b, a, 1 - x)
    assert total == pytest.approx(1, abs=1e-9)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=60))
def test_the_interval_is_centred_and_as_wide_as_the_formula(values: list[float]) -> None:
    found = paired_interval(values)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    half = t_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    assert found.estimate == pytest.approx(fmean(values), abs=1e-12)
    assert found.high - found.low == pytest.approx(2 * half, abs=1e-12)


def test_few_units_have_no_interval() -> None:
    assert paired_interval([]) is None
    single = paired_interval([0.5])
    assert single is not None
    assert (single.estimate, single.low, single.high, single.n) == (0.5, None, None, 1)


def test_a_probability_outside_its_range_is_refused() -> None:
    for probability, degrees in ((0.0, 3), (1.0, 3), (0.5, 0)):
        with pytest.raises(ValueError, match="probability"):
            t_quantile(probability, degrees)


def test_scipy_agrees() -> None:
    stats: Any = import_module("scipy.stats")
    for probability in (0.6, 0.9, 0.975, 0.9995):
        for degrees in (1, 2, 5, 47, 300):
            expected = float(stats.t.ppf(probability, degrees))
            assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-8)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40))
def test_a_cluster_for_each_unit_changes_nothing(values: list[float]) -> None:
    alone = paired_interval(values, clusters=[str(i) for i in range(len(values))])
    assert alone == paired_interval(values)


def test_equal_units_of_a_cluster_count_once() -> None:
    """Each unit doubled within its cluster is no more evidence than the unit itself."""
    single = paired_interval([0.0, 1.0, 0.5])
    doubled = paired_interval([0.0, 0.0, 1.0, 1.0, 0.5, 0.5], clusters=list("aabbcc"))
    assert single is not None
    assert doubled is not None
    assert (doubled.low, doubled.high) == (
        pytest.approx(single.low),
        pytest.approx(single.high),
    )


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_pass_rates_are_means_over_every_choice_of_k(attempts: int) -> None:
    for passed in range(attempts + 1):
        tries = [True] * passed + [False] * (attempts - passed)
        for k in range(1, attempts + 1):
            choices = list(itertools.combinations(tries, k))
            assert any_of(attempts, passed, k) == pytest.approx(fmean(map(any, choices)))
            assert all_of(attempts, passed, k) == pytest.approx(fmean(map(all, choices)))
    with pytest.raises(ValueError, match="attempts"):
        any_of(attempts, 0, attempts + 1)
