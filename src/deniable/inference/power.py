"""How many visitors a comparison of two arms needs, and which difference a number of visitors can show.

A plan asks before the first visitor, a verdict while the experiment runs. Both use the asymptotic
confidence sequence that decides in the end: with weight W = sum p_a p_b / (p_a + p_b) over the
visitors and residual variance v, a difference is decided once ``u(v W) / W`` is below it, where u
is `deniable.inference.boundaries.normal_mixture`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.inference.boundaries import normal_mixture
from deniable.inference.intervals import LEAST_VISITORS, least_variance

LONGEST = 1e9
"""A comparison that needs more visitors than this counts as one that will not be decided."""

FORESEEABLE = 100
"""A comparison that needs more than this many times the visitors so far, or those planned if they are
more, is not decided with this traffic: the estimate is too uncertain to name a number."""


@dataclass(frozen=True)
class Forecast:
    """How long a comparison takes, in a plan, in a verdict and on the overview.

    Attributes:
        visitors: further visitors of the whole experiment; None if it is not decided with this traffic.
        days: the same in days; None without traffic, or if `visitors` is None.
    """

    visitors: int | None
    days: int | None


def forecast(
    needed: float, *, share: float = 1.0, expected: float, per_day: float | None = None
) -> Forecast:
    """Return the forecast for a comparison within a segment, or for everybody.

    Args:
        needed: further visitors of the segment, from `visitors_until_decided`.
        share: the segment's share of all visitors; 1 for everybody.
        expected: visitors of the whole experiment: those planned, or those so far if they are more.
        per_day: visitors of the whole experiment per day.

    >>> forecast(1_000, share=0.25, expected=10_000, per_day=900)
    Forecast(visitors=4000, days=5)
    >>> forecast(16e6, expected=68_000, per_day=900)
    Forecast(visitors=None, days=None)
    """
    if share <= 0 or needed / share > FORESEEABLE * expected:
        return Forecast(None, None)
    visitors = math.ceil(needed / share)
    return Forecast(visitors, math.ceil(visitors / per_day) if per_day else None)


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
