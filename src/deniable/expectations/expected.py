"""Expected clicks, and expected clicks lost, of every strategy and budget, given a prior."""

from __future__ import annotations

from dataclasses import dataclass

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
from deniable.expectations.surface import ONE_SEGMENT, PERFECT, POOLED, RANDOM, Question, surface
from deniable.strategies import STRATEGIES

RIVALS = (RANDOM, POOLED, PERFECT)
"""What strategies are compared with. Random arms and one bandit for everybody need no budget."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What an experiment is expected to bring; arrays of one shape, or one number each.

    Attributes:
        clicks: expected, of all visitors.
        lost: expected clicks lost against perfect information, which shows every segment its best arm.
        low: 10% quantile of the clicks lost, over the prior and the luck of learning.
        high: 90% quantile.
        on_surface: whether the surface was fitted there; elsewhere its edge is taken.
    """

    clicks: FloatArray
    lost: FloatArray
    low: FloatArray
    high: FloatArray
    on_surface: NDArray[np.bool_]


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
    share, low, high, covered = _looked_up(strategy, asked)
    best = asked.visitors * np.asarray(best_rate(asked.arms, asked.base_rate, asked.lift))
    gain = best - asked.visitors * np.asarray(mean_rate(asked.base_rate, asked.lift))
    lost = (1 - share) * gain
    return Expected(best - lost, lost, low * lost, high * lost, covered)


def _looked_up(
    strategy: str, asked: Question
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]:
    """Share of the gain, the two quantiles of the loss relative to its mean, and where it is known."""
    shape = asked.arms.shape
    if strategy == PERFECT:
        return np.ones(shape), np.ones(shape), np.ones(shape), np.ones(shape, bool)
    found = surface()
    results = [np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape, bool)]
    one = asked.segments == 1
    for where, name in ((one, strategy + ONE_SEGMENT), (~one, strategy)):
        entry = found.get(name, found[strategy])
        if not where.any():
            continue
        part = asked.part(where)
        for result, value in zip(
            results, (entry.shares(part), *entry.spreads(part), entry.covers(part)), strict=True
        ):
            result[where] = value
    share, low, high, covered = results
    return share, low, high, covered.astype(bool)
