"""The statistics of a comparison: paired differences with a t interval, and pass rates.

The quantile of Student's t inverts its distribution function, which is a regularised incomplete
beta function: NIST Digital Library of Mathematical Functions, 8.17(ii) for the relation and
8.17.22 for the continued fraction, evaluated by the modified Lentz method.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from specs.comparison import Interval

_TINY = 1e-300
_STEPS = 10_000


def paired_interval(
    differences: Sequence[float],
    confidence: float = 0.95,
    *,
    clusters: Sequence[str] | None = None,
) -> Interval | None:
    """Mean of the differences and its t interval; None without a difference.

    With `clusters`, one label per difference, units of one cluster may depend on each other:
    the squared standard error is C/(C-1) · Σ_c (Σ_{i∈c} (d_i - d̄))² / n², with C-1 degrees of
    freedom (Liang & Zeger 1986; for evaluations: Miller 2024, arXiv:2411.00640, section 2.2). With
    a cluster for each unit it is the ordinary paired t interval.
    """
    if not differences:
        return None
    labels = [str(index) for index in range(len(differences))] if clusters is None else clusters
    estimate, n = fmean(differences), len(differences)
    sums: dict[str, list[float]] = {}
    for label, value in zip(labels, differences, strict=True):
        sums.setdefault(label, []).append(value - estimate)
    count = len(sums)
    if count < 2:
        return Interval(estimate=estimate, low=None, high=None, n=n, clusters=count)
    squares = math.fsum(math.fsum(values) ** 2 for values in sums.values())
    error = math.sqrt(count / (count - 1) * squares) / n
    half = t_quantile((1 + confidence) / 2, count - 1) * error
    return Interval(
        estimate=estimate, low=estimate - half, high=estimate + half, n=n, clusters=count
    )


def any_of(attempts: int, passed: int, k: int) -> float:
    """pass@k of one task: the chance that k attempts drawn without replacement hold a passing
    one, 1 - C(n-c, k) / C(n, k); unbiased (Chen et al. 2021, arXiv:2107.03374).

    Raises:
        ValueError: fewer than k attempts.
    """
    _check_attempts(attempts, passed, k)
    return 1 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def all_of(attempts: int, passed: int, k: int) -> float:
    """pass^k of one task: the chance that k attempts drawn without replacement all pass,
    C(c, k) / C(n, k); unbiased (Yao et al. 2024, arXiv:2406.12045).

    Raises:
        ValueError: fewer than k attempts.
    """
    _check_attempts(attempts, passed, k)
    return math.comb(passed, k) / math.comb(attempts, k)


def _check_attempts(attempts: int, passed: int, k: int) -> None:
    if not 0 <= passed <= attempts or not 1 <= k <= attempts:
        raise ValueError("need 0 <= passed <= attempts and 1 <= k <= attempts")


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
