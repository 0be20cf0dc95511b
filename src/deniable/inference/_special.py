"""Three special functions that NumPy lacks. Avoiding SciPy keeps this layer light."""

from __future__ import annotations

import math

import numpy as np

from deniable._validation import FloatArray

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_LARGE = 8


def log_gamma(values: FloatArray) -> FloatArray:
    """Return the logarithm of the gamma function of positive numbers, to about 14 digits.

    Uses Stirling's series above 8, and the recurrence Gamma(x) = Gamma(x + 1) / x below.

    >>> log_gamma(np.array([0.5, 5.0, 100.0])).round(6).tolist()
    [0.572365, 3.178054, 359.134205]
    """
    x = np.asarray(values, dtype=np.float64)
    product = np.ones_like(x)
    for _ in range(_LARGE):
        low = x < _LARGE
        product = np.where(low, product * x, product)
        x = np.where(low, x + 1, x)
    inverse = 1 / x
    square = inverse * inverse
    series = np.zeros_like(x)
    for coefficient in reversed(_STIRLING):
        series = series * square + coefficient
    stirling = (x - 0.5) * np.log(x) - x + 0.5 * math.log(2 * math.pi) + series * inverse
    result: FloatArray = stirling - np.log(product)
    return result


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Return P(X >= statistic) for a chi-square X, as a finite sum starting from erfc or exp.

    >>> round(chi_square_tail(3.841459, 1), 6), round(chi_square_tail(5.991465, 2), 6)
    (0.05, 0.05)
    """
    if degrees == 0 or statistic <= 0:
        return 1.0
    if math.isinf(statistic):
        return 0.0
    half = statistic / 2
    result, order = (math.erfc(math.sqrt(half)), 0.5) if degrees % 2 else (math.exp(-half), 1.0)
    while order < degrees / 2:  # Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1)
        result += math.exp(order * math.log(half) - half - math.lgamma(order + 1))
        order += 1
    return min(result, 1.0)


def binomial_two_sided(successes: int, trials: int, probability: float) -> float:
    """Return twice the smaller tail of an exact binomial test, at most 1.

    >>> round(binomial_two_sided(0, 10, 0.5), 6)
    0.001953
    """
    if probability in (0.0, 1.0):
        return 1.0 if successes == trials * probability else 0.0
    below = successes <= trials * probability
    if below:  # count failures instead, so that it is always the upper tail
        successes, probability = trials - successes, 1 - probability
    reach = 60 + 40 * math.sqrt(trials * probability * (1 - probability) + 1)
    x = np.arange(successes, min(trials, successes + int(reach)) + 1, dtype=np.float64)
    n = np.full_like(x, trials)
    terms = (
        log_gamma(n + 1)
        - log_gamma(x + 1)
        - log_gamma(n - x + 1)
        + x * math.log(probability)
        + (n - x) * math.log1p(-probability)
    )
    return float(min(1.0, 2 * np.exp(terms).sum()))
