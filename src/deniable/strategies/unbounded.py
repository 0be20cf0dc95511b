"""A bandit whose rows need no bound, because a row tells nothing that a tracker may not know.

Rows are contexts, which trackers know anyway, or labels, which are private already, or both. Clicks are
modelled as

    rate(row, arm) = base(row) (1 + arm's part + arm's part in the row's context + arm's part in the row)

with normal parts. Their three spreads are not known: a grid of them is weighted by how well each
explains the counts (empirical Bayes), so that rows that behave alike are pooled and rows that differ are
not. Given the counts, the rates of the arms in a row are independent and taken to be normal. Each arm is
shown with the probability that it is the best of its row, with deviations that shrink as the end comes
nearer.

Everything is a function of the counts: no random numbers, so that an auditor finds the same table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.joint_table import SMALLEST, mean_row
from deniable.privacy.tables import Row, Table, neutral_row
from deniable.strategies.kernel_rules import EpochRule
from deniable.strategies.rules import Counts, Grade, TableRule

ROW_SPREADS = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
ARM_SPREADS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 1.0])
"""Candidate spreads of the parts, relative to the base rate."""

CURIOSITY = 0.6
"""Deviations are those of the posterior times min(1, CURIOSITY sqrt(log(T / t)))."""

OPEN_END = 10.0
"""T / t if nobody knows T, or T has passed: as if nine times as many were still to come."""

SAME_CHANCE = 1e-9
"""Tolerance for an auditor's own table: floating-point functions differ in their last digits."""

_NODES = np.linspace(-5, 5, 41)  # of each arm's distribution, in standard deviations
_NORMAL_AT = np.linspace(-9, 9, 1801)
_NORMAL = np.array([math.erfc(-x / math.sqrt(2)) / 2 for x in _NORMAL_AT.tolist()])


class Evidence(NamedTuple):
    """What counts say about one unknown number, or many: a normal likelihood.

    Attributes:
        precision: 1 / variance of the estimate; 0 without data.
        total: precision times the estimate.
        squares: twice the negative log likelihood at 0, up to a constant.
        logs: logarithm of the variance relative to that of the data alone.
    """

    precision: FloatArray
    total: FloatArray
    squares: FloatArray
    logs: FloatArray

    def about_mean(self, variance: FloatArray) -> Evidence:
        """Return what it says about the mean of numbers that have this variance around it."""
        wider = 1 + variance * self.precision
        return Evidence(
            self.precision / wider,
            self.total / wider,
            self.squares - variance * self.total**2 / wider,
            self.logs + np.log(wider),
        )

    def summed(self, axis: int) -> Evidence:
        """Return what independent pieces say together."""
        return Evidence(*(part.sum(axis=axis, keepdims=True) for part in self))

    def posterior(
        self, mean: FloatArray, mean_variance: FloatArray, variance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of numbers that have this variance around an uncertain mean."""
        wider = 1 + variance * self.precision
        return (
            (variance * self.total + mean) / wider,
            variance / wider + mean_variance / wider**2,
        )


def unbounded_table(
    shows: ArrayLike, clicks: ArrayLike, horizon: float | None = None, *, contexts: int = 1
) -> FloatArray:
    """Return the next table, P(arm | row), in the shape of the counts.

    Args:
        shows: visitors by row and shown arm so far; rows are ordered by context, then label.
        clicks: clicks among them.
        horizon: T, the visitors expected in all; None, or fewer than there were, for open-ended.
        contexts: number of contexts among the rows.

    >>> alike, apart = [[60, 40], [60, 40]], [[60, 40], [40, 60]]
    >>> shows = [[1000, 1000], [1000, 1000]]
    >>> unbounded_table(shows, alike, 10_000).round(2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    >>> unbounded_table(shows, apart, 10_000).round(2).tolist()
    [[0.99, 0.01], [0.01, 0.99]]
    """
    seen, clicked = check.nonnegative("shows", shows), check.nonnegative("clicks", clicks)
    if seen.ndim != 2 or seen.shape[1] < 2 or len(seen) % contexts:
        raise InvalidArgumentError("shows", seen.shape, f"rows of 2 or more arms, {contexts} times")
    if clicked.shape != seen.shape or (clicked > seen).any():
        raise InvalidArgumentError("clicks", clicked.shape, "at most as many clicks as shows")
    visitors = max(float(seen.sum()), 1.0)
    ahead = OPEN_END if horizon is None or horizon <= visitors else horizon / visitors
    mean, variance = learned(seen, clicked, contexts)
    deviation = np.sqrt(variance) * min(1.0, CURIOSITY * math.sqrt(math.log(ahead)))
    return np.array([chances_to_be_best(*row) for row in zip(mean, deviation, strict=True)])


def learned(shows: FloatArray, clicks: FloatArray, contexts: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of each arm's parts in each row, relative to the row's base rate."""
    n_rows, n_arms = shows.shape
    labels = n_rows // contexts
    relative, precision = relative_rates(shows, clicks)
    # Axes: candidates for the spread of rows, of contexts and of arms; context; label; arm.
    cells = (1, 1, 1, contexts, labels, n_arms)
    y, weight = relative.reshape(cells), precision.reshape(cells)
    own = _spreads(ROW_SPREADS if labels > 1 else None, 0)
    by_context = _spreads(ROW_SPREADS if contexts > 1 else None, 1)
    by_arm = _spreads(ARM_SPREADS, 2)
    row = Evidence(weight, weight * y, weight * y**2, np.zeros(cells))
    context = row.about_mean(own).summed(axis=4)
    arm = context.about_mean(by_context).summed(axis=3)
    fit = arm.about_mean(by_arm).summed(axis=5)
    # Base rates were fitted to the same counts, which takes one of K degrees of freedom.
    misfit = fit.squares + fit.logs * (n_arms - 1) / n_arms
    likely = np.exp((misfit.min() - misfit) / 2)
    likely /= likely.sum()
    nothing = np.zeros((1,) * 6)
    mean, variance = arm.posterior(nothing, nothing, by_arm)
    mean, variance = context.posterior(mean, variance, by_context)
    mean, variance = row.posterior(mean, variance, own)
    spreads = (0, 1, 2)
    average = (likely * mean).sum(axis=spreads)
    square = (likely * (mean**2 + variance)).sum(axis=spreads)
    return average.reshape(shows.shape), (square - average**2).reshape(shows.shape)


def _spreads(candidates: FloatArray | None, axis: int) -> FloatArray:
    """Return the candidates' squares along one of six axes; None for a part that no data can tell."""
    squares = np.zeros(1) if candidates is None else candidates**2
    return squares.reshape(tuple(-1 if place == axis else 1 for place in range(6)))


def relative_rates(shows: FloatArray, clicks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each cell's click rate relative to its row's base rate, minus 1, and its precision.

    Base rates and precisions come from a fit of row x arm factors, so that cells without clicks have
    them too. A cell without shows has the precision 0.
    """
    overall = (clicks.sum() + 1) / (shows.sum() + 2)
    factors = np.ones((len(shows), 1))
    for _ in range(3):
        arms = (clicks.sum(axis=0) + 1) / ((shows * factors).sum(axis=0) + 1 / overall)
        factors = (clicks.sum(axis=1) + 4)[:, None] / ((shows * arms).sum(axis=1) + 4)[:, None]
    base = np.minimum(overall * factors, 0.95)
    # An arm without luck so far is not known better than one of average rate.
    rate = np.maximum(np.minimum(arms * factors, 0.95), base)
    relative = np.where(shows > 0, clicks / (np.maximum(shows, 1) * base) - 1, 0.0)
    return relative, shows * base**2 / (rate * (1 - rate))


def chances_to_be_best(mean: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the probability that each of some independent normal numbers is the largest.

    The integral over the largest number has nodes at fixed quantiles of all of them.

    >>> chances_to_be_best(np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.01])).round(2).tolist()
    [0.15, 0.15, 0.71]
    """
    spread = np.maximum(deviation, 1e-9)
    nodes = np.sort((mean + np.multiply.outer(_NODES, spread)).ravel())
    nodes = nodes[nodes >= (mean + _NODES[0] * spread).max()]  # the largest is hardly ever below
    below = np.interp((nodes[:, None] - mean) / spread, _NORMAL_AT, _NORMAL)
    between = np.maximum((below[1:] + below[:-1]) / 2, 1e-30)
    others = between.prod(axis=1, keepdims=True) / between
    best = (np.diff(below, axis=0) * others).sum(axis=0)
    return np.asarray(best / best.sum())


@dataclass(frozen=True)
class Unbounded(TableRule):
    """A bandit for each context or label, pooled as far as they are alike; no bound between rows.

    For experiments whose rows need none: contexts, which trackers know anyway, labels, which are
    private already, visits that nobody observes, and experiments with a single row. It commits no
    budget.

    >>> Unbounded().label, Unbounded.bounded
    ('unbounded', False)
    """

    name: ClassVar[str] = "unbounded"
    title: ClassVar[str] = "Unbounded"
    description: ClassVar[str] = "a bandit by context or label, pooled as far as they are alike"
    grade: ClassVar[Grade] = "given the time"
    bounded: ClassVar[bool] = False
    arm_budgets: ClassVar[bool] = False
    label: ClassVar[str] = "unbounded"
    risk_cap: ClassVar[float] = math.inf

    def rule(self, rates: FloatArray, horizon: int) -> EpochRule:
        """A table per epoch, with a row for each segment: of the environment, a label or a context."""
        return EpochRule("unbounded", math.inf, horizon)

    @classmethod
    def table(cls, budgets: Row, counts: Counts) -> Table:
        """See TableRule. Unlisted rows get the mean of the others, weighted by their visitors."""
        learned_rows = unbounded_table(
            *counts.arrays(), counts.horizon, contexts=counts.contexts
        ).tolist()
        # Each arm keeps a chance, however small, so that a table's ratios are numbers.
        rows = tuple(
            neutral_row([max(int(chance * SPACE), SMALLEST) for chance in row])
            for row in learned_rows
        )
        return Table(rows, mean_row(rows, counts.weights))

    @classmethod
    def replays(cls, published: Table, made: Table, counts: Counts) -> bool:
        """Whether every chance is the auditor's own for the same counts, to 1e-9."""
        rows = zip((*published.rows, published.unlisted), (*made.rows, made.unlisted), strict=True)
        return all(
            abs(stored - own) <= SAME_CHANCE * SPACE
            for row, again in rows
            for stored, own in zip(row, again, strict=True)
        )
