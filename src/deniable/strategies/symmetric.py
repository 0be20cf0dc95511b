"""Strategies based on randomized response, which treats all arms alike except the greedy ones."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import exploration_from_risk
from deniable.privacy.mechanism import RandomizedResponse
from deniable.privacy.tables import Band, Row, Table, nested_table
from deniable.privacy.tables import band as nested_band
from deniable.strategies.base import Strategy
from deniable.strategies.kernel_rules import Published, shortest
from deniable.strategies.rules import Counts, Grade


@dataclass(frozen=True)
class SymmetricStrategy(Strategy, Published):
    """A strategy that shows arms by symmetric randomized response, at a risk set by the clock.

    Every risk is at most the budget. This alone keeps e^budget between any two segments and any two
    times, whatever their clocks.
    """

    grade: ClassVar[Grade] = "across time"
    at_zero: ClassVar[str] = "random arms for everybody"

    @classmethod
    def drawn_by_lot(cls, n_arms: int, n_segments: int, budget: float) -> float:
        """See Strategy. The exploration K / (K - 1 + e^budget), whatever the number of segments."""
        return float(exploration_from_risk(n_arms, budget))

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        Published.__post_init__(self)

    @property
    def label(self) -> str:
        """The name with the budget, and how often tables are published."""
        return self.name + self.labelled(shortest(self.budget))

    @abstractmethod
    def binds_at(self, n_arms: int) -> float:
        """The clock from which the budget limits what is shown; infinite if it never does."""

    @abstractmethod
    def risk(self, clock: ArrayLike, n_arms: int) -> Floats:
        """Return the privacy risk at each clock, at most the budget, in the clock's shape."""

    @classmethod
    def band(cls, budgets: Row) -> Band:
        """See Strategy. The band of the nested family."""
        return nested_band(budgets)

    @classmethod
    @abstractmethod
    def bonus(cls, budgets: Row, clock: int) -> Fraction:
        """Return the share of the largest bonus that a segment's greedy arms get at this clock, 0 to 1.

        Exact and identical on every machine, so that an auditor can recompute the table.
        """

    @classmethod
    def table(cls, budgets: Row, counts: Counts) -> Table:
        """See Strategy. The clock of a segment is the number of its next visitor."""
        bonuses = [cls.bonus(budgets, sum(row) + 1) for row in counts.shows]
        return nested_table(cls.band(budgets), counts.shows, counts.rewards, bonuses)

    def exploration(self, clock: ArrayLike, n_arms: int) -> Floats:
        """K / (K - 1 + e^risk) at this clock."""
        return exploration_from_risk(n_arms, self.risk(clock, n_arms))

    @classmethod
    def explored(cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike) -> FloatArray:
        """See Strategy. Uses the trapezoidal rule, on a grid that is finer at the start."""
        arms, end, cap = np.broadcast_arrays(
            check.count("n_arms", n_arms, 2),
            check.risk("visitors", visitors),
            check.nonnegative("budget", budget),
        )
        shares = np.empty(arms.shape)
        for place in np.ndindex(arms.shape):
            clock = np.unique(np.round(np.geomspace(1, max(2.0, float(end[place])), 400)))
            share = np.asarray(cls(float(cap[place])).exploration(clock, int(arms[place])))
            shares[place] = np.trapezoid(share, clock) / (clock[-1] - clock[0])
        return shares

    @classmethod
    def explored_last(cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike) -> FloatArray:
        """See Strategy."""
        arms, end, cap = np.broadcast_arrays(n_arms, visitors, budget)
        shares = np.empty(arms.shape)
        for place in np.ndindex(arms.shape):
            last = max(1.0, np.floor(float(end[place])))
            shares[place] = cls(float(cap[place])).exploration(last, int(arms[place]))
        return shares

    def mechanism(self, clock: int, n_arms: int) -> RandomizedResponse:
        """Return randomized response with the risk of this clock."""
        return RandomizedResponse(n_arms, float(self.risk(clock, n_arms)))
