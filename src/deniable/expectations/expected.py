"""Expected clicks, and expected clicks lost, of every strategy and budget, given a prior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import (
    HETEROGENEITY,
    LIFT,
    best_rate,
    checked_base_rate,
    checked_lift,
    mean_rate,
)
from deniable.expectations.surface import (
    PERFECT,
    POOLED,
    RANDOM,
    Entry,
    Question,
    surface,
    surface_name,
)
from deniable.strategies import STRATEGIES

RIVALS = (RANDOM, POOLED, PERFECT)
"""What strategies are compared with. Random arms and one bandit for everybody need no budget."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What an experiment is expected to bring; arrays of one shape, or one number each.

    Attributes:
        clicks: expected, of all visitors.
        lost: expected clicks lost against perfect information, which shows every segment its best arm.
        on_surface: whether the surface was fitted there; elsewhere its edge is taken.
        strategy: whose.
        asked: where.
    """

    clicks: FloatArray
    lost: FloatArray
    on_surface: NDArray[np.bool_]
    strategy: str
    asked: Question

    @property
    def low(self) -> FloatArray:
        """10% quantile of the clicks lost, over the prior and the luck of learning."""
        return self.lost * self._spreads[0]

    @property
    def high(self) -> FloatArray:
        """90% quantile."""
        return self.lost * self._spreads[1]

    @cached_property
    def _spreads(self) -> tuple[FloatArray, FloatArray]:
        """Both relative to the mean; computed where they are looked at, as many callers do not."""
        low, high = np.ones(self.lost.shape), np.ones(self.lost.shape)
        for where, entry in _entries(self.strategy, self.asked):
            low[where], high[where] = entry.spreads(self.asked.part(where))
        return low, high


def has_surface(strategy: str) -> bool:
    """Whether a strategy's expectation is known without simulating."""
    return strategy in RIVALS or strategy in surface()


def expected_loss(
    strategy: str,
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    base_rate: ArrayLike,
    lift: ArrayLike = LIFT,
    heterogeneity: ArrayLike = HETEROGENEITY,
    budgets: ArrayLike = 0.0,
) -> Expected:
    """Expected clicks and clicks lost of a strategy, for segments of one size; all arguments broadcast.

    Args:
        strategy: its name, or "pooled", "random", "perfect".
        n_arms: K.
        horizon: T, visitors.
        n_segments: J.
        base_rate: p.
        lift: d, standard deviation of the arms' rates relative to the base rate.
        heterogeneity: h, the part of that variance which differs by segment.
        budgets: in nats; rivals need none.

    >>> found = expected_loss("random", 2, 100_000, base_rate=0.1)
    >>> round(float(found.clicks)), round(float(found.lost))
    (10000, 282)
    """
    if not has_surface(strategy):
        known = (*STRATEGIES, *RIVALS)
        raise InvalidArgumentError("strategy", strategy, "one of " + ", ".join(known))
    asked = Question.of(
        arms=check.count("n_arms", n_arms, 2),
        visitors=check.count("horizon", horizon, 1),
        segments=check.count("n_segments", n_segments, 1),
        base_rate=checked_base_rate(base_rate),
        lift=checked_lift(lift),
        heterogeneity=check.probability("heterogeneity", heterogeneity),
        budget=check.nonnegative("budgets", budgets),
    )
    share, covered = np.ones(asked.arms.shape), np.ones(asked.arms.shape, bool)
    for where, entry in _entries(strategy, asked):
        part = asked.part(where)
        share[where], covered[where] = entry.shares(part), entry.covers(part)
    best = asked.visitors * np.asarray(best_rate(asked.arms, asked.base_rate, asked.lift))
    gain = best - asked.visitors * np.asarray(mean_rate(asked.base_rate, asked.lift))
    lost = (1 - share) * gain
    return Expected(best - lost, lost, covered, strategy, asked)


def _entries(strategy: str, asked: Question) -> Iterator[tuple[NDArray[np.bool_], Entry]]:
    """Which surface holds where; none for perfect information."""
    if strategy == PERFECT:
        return
    one = asked.segments == 1
    for where, name in ((one, surface_name(strategy, 1)), (~one, strategy)):
        if where.any():
            yield where, surface()[name]
