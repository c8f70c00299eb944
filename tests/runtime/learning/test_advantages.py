"""Advantages by hand, and for all inputs (invariants 4 and 5)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.learning.advantages import GroupKind, centre, divisor, population_std
from runtime.learning.eligibility import MAX_REWARD
from specs.canonical import holds

REWARDS = st.lists(st.floats(-1e30, 1e30), max_size=12)


def test_centres_on_the_mean() -> None:
    assert centre([1.0, 0.0, 0.0, 1.0]).advantages == (0.5, -0.5, -0.5, 0.5)


def test_std_divides_by_the_population_standard_deviation() -> None:
    assert centre([3.0, 1.0], "std").advantages == (1.0, -1.0)
    third = centre([1.0, 0.0, 0.0], "std").advantages
    assert third == pytest.approx((math.sqrt(2), -math.sqrt(0.5), -math.sqrt(0.5)))


@pytest.mark.parametrize("rewards", [[0.0] * 4, [0.3, 0.1 + 0.2], [1.0, 1.0 + 1e-9], [1e9] * 2])
@pytest.mark.parametrize("normalise", ["none", "std"])
def test_near_equal_rewards_give_no_gradient_and_no_division(
    rewards: list[float], normalise: str
) -> None:
    group = centre(rewards, normalise)  # pyright: ignore[reportArgumentType]
    assert group.kind is GroupKind.ZERO_VARIANCE
    assert group.advantages == (0.0,) * len(rewards)


def test_one_member_and_no_member_give_no_gradient() -> None:
    assert centre([1.0]).kind is GroupKind.ONE_MEMBER
    assert centre([1.0]).advantages == (0.0,)
    assert centre([]).kind is GroupKind.EMPTY


@given(REWARDS)
def test_advantages_are_finite_and_sum_to_zero(rewards: list[float]) -> None:
    for normalise in ("none", "std"):
        group = centre(rewards, normalise)
        assert len(group.advantages) == len(rewards)
        assert all(map(math.isfinite, group.advantages))
        size = max([1.0, *map(abs, group.advantages)])
        assert abs(math.fsum(group.advantages)) <= 1e-9 * size * max(1, len(rewards))
        assert group.learnable == any(group.advantages)


@given(REWARDS)
def test_std_advantages_have_unit_spread(rewards: list[float]) -> None:
    group = centre(rewards, "std")
    if group.learnable:
        assert population_std(group.advantages) == pytest.approx(1.0)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_the_order_of_a_group_does_not_matter(rewards: list[float]) -> None:
    reversed_ = centre(rewards[::-1], "std")
    assert reversed_.advantages[::-1] == centre(rewards, "std").advantages


@pytest.mark.parametrize("size", [2, 8, 1000])
def test_rewards_in_range_have_advantages_that_a_record_holds(size: int) -> None:
    group = centre([MAX_REWARD] + [-MAX_REWARD] * (size - 1))
    assert all(map(holds, group.advantages))


def test_divisors_by_hand() -> None:
    sizes = {"planned_groups": 2, "group_size": 4, "trial_tokens": 5, "group_tokens": 30}
    assert divisor("planned", **sizes) == 8
    assert divisor("length", **sizes) == 40
    assert divisor("group", **sizes) == 60
    nothing = {**sizes, "trial_tokens": 0, "group_tokens": 0}
    assert divisor("length", **nothing) == 8
    assert divisor("group", **nothing) == 2
