"""Expected clicks, and expected clicks lost, of every strategy and budget, given a prior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
        strategy: the strategy that was evaluated.
        question: where it was evaluated.
    """

    clicks: FloatArray
    lost: FloatArray
    on_surface: NDArray[np.bool_]
    strategy: str
    question: Question

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
        """Both relative to the mean; computed only when needed, because many callers do not."""
        low, high = np.ones(self.lost.shape), np.ones(self.lost.shape)
        for where, entry in _entries(self.strategy, self.question):
            low[where], high[where] = entry.spreads(self.question.part(where))
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
    shares: ArrayLike | None = None,
) -> Expected:
    """Expected clicks and clicks lost of a strategy; all arguments but `shares` broadcast.

    The surface was fitted to segments of one size. For others, with shares w, it is read at the
    effective number of segments ``1 / sum(w^2)``, for each segment as if all had its traffic, and the
    results are averaged with weights w. This is exact for equal shares.

    Args:
        strategy: its name, or "pooled", "random", "perfect".
        n_arms: K.
        horizon: T, visitors.
        n_segments: J.
        base_rate: p.
        lift: d, standard deviation of the arms' rates relative to the base rate.
        heterogeneity: h, the part of that variance which differs by segment.
        budgets: in nats; rivals need none.
        shares: shares of the J segments if they differ in size; they sum to 1.

    >>> found = expected_loss("random", 2, 100_000, base_rate=0.1)
    >>> round(float(found.clicks)), round(float(found.lost))
    (10000, 282)
    """
    if not has_surface(strategy):
        known = (*STRATEGIES, *RIVALS)
        raise InvalidArgumentError("strategy", strategy, "one of " + ", ".join(known))
    question = Question.of(
        arms=check.count("n_arms", n_arms, 2),
        visitors=check.count("horizon", horizon, 1),
        segments=check.count("n_segments", n_segments, 1),
        base_rate=checked_base_rate(base_rate),
        lift=checked_lift(lift),
        heterogeneity=check.probability("heterogeneity", heterogeneity),
        budget=check.nonnegative("budgets", budgets),
    )
    covered = np.ones(question.arms.shape, bool)
    for where, entry in _entries(strategy, question):
        covered[where] = entry.covers(question.part(where))
    weights, sizes, segments = _effective(question, shares)
    question = replace(question, segments=segments)
    share = np.full(question.arms.shape, float(strategy == PERFECT))
    for weight, size in zip(weights, sizes, strict=True):
        alike = replace(question, visitors=question.visitors * size)
        for where, entry in _entries(strategy, alike):
            share[where] += weight * entry.shares(alike.part(where))
    best = question.visitors * np.asarray(
        best_rate(question.arms, question.base_rate, question.lift)
    )
    gain = best - question.visitors * np.asarray(mean_rate(question.base_rate, question.lift))
    lost = (1 - share) * gain
    return Expected(best - lost, lost, covered, strategy, question)


def _effective(
    question: Question, shares: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights and relative sizes of groups of equal segments, and the number of segments."""
    if shares is None:
        return np.ones(1), np.ones(1), question.segments
    parts = check.probability("shares", shares)
    if parts.shape != (question.segments.max(),) or abs(parts.sum() - 1) > 1e-9:
        allowed = "a share for each segment, summing to 1"
        raise InvalidArgumentError("shares", shares, allowed)
    segments = 1 / (parts**2).sum()
    different, counts = np.unique(parts[parts > 0], return_counts=True)
    return different * counts, different * segments, np.full(question.arms.shape, segments)


def _entries(strategy: str, question: Question) -> Iterator[tuple[NDArray[np.bool_], Entry]]:
    """Which surface holds where; none for perfect information."""
    if strategy == PERFECT:
        return
    one = question.segments == 1
    for where, name in ((one, surface_name(strategy, 1)), (~one, strategy)):
        if where.any():
            yield where, surface()[name]
