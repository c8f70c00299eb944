"""The statistics of a comparison: the mean of paired differences with a t interval.

The quantile of Student's t inverts its distribution function, which is a regularised incomplete
beta function: NIST Digital Library of Mathematical Functions, 8.17(ii) for the relation and
8.17.22 for the continued fraction, evaluated by the modified Lentz method.
"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from specs.base import Contract

_TINY = 1e-300
_STEPS = 10_000


class Interval(Contract):
    """An estimate with its confidence interval; no bounds for fewer than two units."""

    estimate: float
    low: float | None
    high: float | None
    n: int
    """Units, that is tasks."""


def paired_interval(differences: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Mean of the differences and its t interval; None without a difference."""
    if not differences:
        return None
    estimate = fmean(differences)
    if len(differences) < 2:
        return Interval(estimate=estimate, low=None, high=None, n=1)
    half = t_quantile((1 + confidence) / 2, len(differences) - 1) * (
        stdev(differences) / math.sqrt(len(differences))
    )
    return Interval(
        estimate=estimate, low=estimate - half, high=estimate + half, n=len(differences)
    )


def t_quantile(probability: float, degrees: float) -> float:
    """The value that Student's t with `degrees` degrees of freedom stays below with
    `probability`, by bisection of the distribution function.

    Raises:
        ValueError: a probability outside (0, 1), or no degrees of freedom.
    """
    if not 0 < probability < 1 or degrees <= 0:
        raise ValueError("probability must be in (0, 1) and degrees positive")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_cdf(value: float, degrees: float) -> float:
    """Distribution function of Student's t."""
    square = value * value
    if square < degrees:  # near the centre, where the tail's argument would round to 1
        half = 0.5 * incomplete_beta(0.5, degrees / 2, square / (degrees + square))
        return 0.5 + math.copysign(half, value)
    tail = 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square))
    return 1 - tail if value >= 0 else tail


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    scale = a * math.log(x) + b * math.log1p(-x)
    scale += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(scale) / a / _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + …))."""
    value, upper, lower = 1.0, 1.0, 0.0
    for step in range(1, _STEPS):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1 / (1 + term * lower or _TINY)
        upper = 1 + term / upper or _TINY
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return value
