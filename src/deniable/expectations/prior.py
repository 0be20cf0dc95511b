"""What a firm knows about click rates before an experiment: base rate, lift, heterogeneity.

``r(a, s) = p (1 + d (sqrt(1-h) z_a + sqrt(h) z_as))`` with standard normal z, clipped to
[p/20, 1 - (1-p)/20]: p the base rate, d the lift (standard deviation of the arms' rates, relative to the
base rate), h the heterogeneity (the part of the variance that differs by segment).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError

LIFT, HETEROGENEITY = 0.05, 0.5
"""Defaults: arms differ by 5% of the base rate, half of it (as variance) by segment."""

SEGMENTS = 2
"""Default number of segments; with one there is nothing to protect."""

_CLIP = 20
_STEPS = np.linspace(-9.0, 9.0, 3601)  # of the normal distribution; trapezoids of width .005
_NORMAL = 0.5 * np.array([math.erfc(-z / math.sqrt(2)) for z in _STEPS])


@dataclass(frozen=True)
class Prior:
    """What is known about click rates.

    Attributes:
        base_rate: p, the usual click rate; above 0, below 1.
        lift: d, how much arms usually differ: standard deviation relative to the base rate.
        heterogeneity: h, from 0 (an arm's lift is the same in all segments) to 1 (unrelated).

    >>> Prior(0.1).lift
    0.05
    """

    base_rate: float
    lift: float = LIFT
    heterogeneity: float = HETEROGENEITY

    def __post_init__(self) -> None:
        for name, checked in (
            ("base_rate", checked_base_rate(self.base_rate)),
            ("lift", checked_lift(self.lift)),
            ("heterogeneity", check.probability("heterogeneity", self.heterogeneity)),
        ):
            object.__setattr__(self, name, check.single(name, checked))

    def draw(
        self, n_arms: int, n_segments: int, count: int, rng: np.random.Generator
    ) -> FloatArray:
        """Click rates of `count` experiments, (count, J, K).

        >>> Prior(0.1, 0.2).draw(3, 2, 5, np.random.default_rng(1)).shape
        (5, 2, 3)
        """
        shared = rng.standard_normal((count, 1, n_arms))
        own = rng.standard_normal((count, n_segments, n_arms))
        part = self.heterogeneity
        return self.clipped(math.sqrt(1 - part) * shared + math.sqrt(part) * own)

    def clipped(self, z: FloatArray) -> FloatArray:
        """The rates of standardized lifts z."""
        rates = self.base_rate * (1 + self.lift * z)
        low, high = self.base_rate / _CLIP, 1 - (1 - self.base_rate) / _CLIP
        return np.clip(rates, low, high)


def mean_rate(base_rate: ArrayLike, lift: ArrayLike) -> Floats:
    """Expected click rate of one arm: the base rate, but for the clipping.

    >>> round(float(mean_rate(0.1, 0.05)), 12)
    0.1
    """
    return best_rate(1, base_rate, lift)


def best_rate(n_arms: ArrayLike, base_rate: ArrayLike, lift: ArrayLike) -> Floats:
    """Expected rate of a segment's best arm: what perfect information gets of a visitor.

    The best of K independent clipped normals, whatever the heterogeneity; an integral of Phi^K.

    >>> round(float(best_rate(2, 0.1, 0.05)), 6), round(float(best_rate(10, 0.1, 0.05)), 6)
    (0.102821, 0.107694)
    """
    arms = check.count("n_arms", n_arms, 1)
    base, spread = checked_base_rate(base_rate), checked_lift(lift)
    arms, base, spread = np.broadcast_arrays(arms, base, spread)
    with np.errstate(over="ignore"):
        low = np.maximum(-(1 - 1 / _CLIP) / spread, _STEPS[0])
    high = np.minimum(highest_lift(base, spread), _STEPS[-1])
    lowest, highest = np.empty(arms.shape), np.empty(arms.shape)
    for count in np.unique(arms):
        here = arms == count
        areas = _areas(int(count))
        lowest[here] = np.interp(low[here], _STEPS, areas)
        highest[here] = np.interp(high[here], _STEPS, areas)
    return check.unwrap(base * (1 + spread * (high - (highest - lowest))))


def highest_lift(base_rate: FloatArray, lift: FloatArray) -> FloatArray:
    """Where rates are clipped at the top, in standard deviations above the base rate."""
    with np.errstate(over="ignore"):  # tiny rates and lifts: nothing is clipped
        return (1 - 1 / _CLIP) * (1 - base_rate) / base_rate / lift


def checked_base_rate(value: ArrayLike) -> FloatArray:
    """Base rates: above 0 and below 1."""
    rates = check.probability("base_rate", value)
    if not ((rates > 0) & (rates < 1)).all():
        raise InvalidArgumentError("base_rate", value, "a click rate above 0 and below 1")
    return rates


def checked_lift(value: ArrayLike) -> FloatArray:
    """Lifts: above 0, at most 1; .05 is 5%."""
    lifts = check.nonnegative("lift", value)
    if not ((lifts > 0) & (lifts <= 1)).all():
        raise InvalidArgumentError("lift", value, "a relative difference above 0, up to 1")
    return lifts


@lru_cache(maxsize=256)
def _areas(n_arms: int) -> FloatArray:
    """Integral of Phi^K up to each step."""
    heights = _NORMAL**n_arms
    parts = (heights[1:] + heights[:-1]) / 2 * np.diff(_STEPS)
    return np.concatenate([[0.0], np.cumsum(parts)])
