"""How many visitors a comparison of two arms needs, and which difference a number of visitors can show.

A plan asks before the first visitor, a verdict while the experiment runs. Both use the asymptotic
confidence sequence that decides in the end: with weight W = sum p_a p_b / (p_a + p_b) over the
visitors and residual variance v, a difference is decided once ``u(v W) / W`` is below it, where u
is `deniable.inference.boundaries.normal_mixture`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.inference.boundaries import normal_mixture
from deniable.inference.intervals import LEAST_VISITORS, least_variance

LONGEST = 1e9
"""A comparison that needs more visitors than this counts as one that will not be decided."""


def visitors_until_decided(
    difference: ArrayLike,
    *,
    weight_each: ArrayLike,
    variance: ArrayLike,
    planned_weight: ArrayLike,
    alpha: float,
    visitors: ArrayLike = 0.0,
    weight: ArrayLike = 0.0,
) -> Floats:
    """Return how many more visitors are needed; infinite beyond `LONGEST`.

    Args:
        difference: the true difference of the two mean rewards.
        weight_each: p_a p_b / (p_a + p_b), the weight that each further visitor adds.
        variance: v, the residual variance of a reward; p (1 - p) for clicks.
        planned_weight: the weight at which the confidence sequence is narrowest.
        alpha: error probability of this one comparison.
        visitors: visitors so far.
        weight: W, their weight.

    Two arms with 10% and 16% clicks, each shown to half of the visitors:

    >>> float(
    ...     visitors_until_decided(
    ...         0.06, weight_each=0.25, variance=0.1131, planned_weight=1000, alpha=0.05
    ...     )
    ... )
    1273.0
    """
    gap, each, spread, planned, seen, heavy = np.broadcast_arrays(
        *(
            np.asarray(part, dtype=float)
            for part in (difference, weight_each, variance, planned_weight, visitors, weight)
        )
    )

    def decided(more: FloatArray) -> NDArray[np.bool_]:
        heavier = heavy + more * each
        enough = (seen + more >= LEAST_VISITORS) & (spread * heavier >= least_variance(alpha))
        radius = _radius(heavier, spread, planned, alpha)
        return np.asarray(enough & (radius < np.abs(gap)))

    low, high = np.zeros(gap.shape), np.full(gap.shape, math.log(LONGEST))
    reachable = decided(np.exp(high))
    for _ in range(60):
        middle = (low + high) / 2
        done = decided(np.exp(middle))
        low, high = np.where(done, low, middle), np.where(done, middle, high)
    return check.unwrap(np.where(reachable, np.ceil(np.exp(high)), np.inf))


def detectable_difference(
    visitors: ArrayLike, *, weight_each: ArrayLike, variance: ArrayLike, alpha: float
) -> Floats:
    """Return the smallest difference that this many visitors decide, if they are as many as planned.

    Args:
        visitors: how many.
        weight_each: p_a p_b / (p_a + p_b), the weight of each.
        variance: v, the residual variance of a reward.
        alpha: error probability of this one comparison.

    >>> round(
    ...     float(detectable_difference(4000, weight_each=0.25, variance=0.1131, alpha=0.05)), 4
    ... )
    0.0323
    """
    count = check.nonnegative("visitors", visitors)
    weight = count * np.asarray(weight_each)
    return check.unwrap(_radius(weight, np.asarray(variance), weight, alpha))


def _radius(
    weight: FloatArray, variance: FloatArray, planned: FloatArray, alpha: float
) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = normal_mixture(variance * weight, weight / planned, alpha) / weight
    return np.where(weight > 0, radius, np.inf)
