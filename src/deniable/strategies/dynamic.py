"""The dynamic strategy: explore early, exploit later, up to the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import (
    _risk,
    dynamic_exploration,
    dynamic_risk,
    exhaustion_clock,
    exhaustion_root,
    exploitation_from_risk,
    exploration_from_risk,
)
from deniable.privacy.tables import Row, dynamic_bonus
from deniable.strategies.base import Formulas
from deniable.strategies.kernel_rules import GreedyRule, PublishedRule, decaying_rule
from deniable.strategies.symmetric import SymmetricStrategy
from deniable.theory import best_budget, elasticity, regret
from deniable.theory.regret import Form

_NODES, _WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(64))
_NODES = _NODES + 0.5  # from 0 to 1
# With two arms the clock stays at e until exploration falls to this.
_BRANCH_RATE = np.cbrt(2 / math.e)


@dataclass(frozen=True)
class Dynamic(SymmetricStrategy):
    """Explore early, exploit later: risk_n = min(budget, log(1 - K + K / exploration_n)).

    >>> strategy = Dynamic(budget=1)
    >>> strategy.binds_at(n_arms=2), strategy.risk([10, 1000], n_arms=2).round(6).tolist()
    (51.0, [0.463665, 1.0])
    >>> round(float(Dynamic.regret(2, 10_000, 1, form="paper")), 3)
    8530.937
    """

    name: ClassVar[str] = "dynamic"
    title: ClassVar[str] = "Dynamic"
    description: ClassVar[str] = "random arms at first, then the budget as it learns"
    formulas: ClassVar[Formulas] = Formulas(
        regret.dynamic_regret_terms, elasticity.dynamic_gain, best_budget.best_dynamic_budget
    )

    def binds_at(self, n_arms: int) -> float:
        """The exhaustion clock of the budget."""
        return float(exhaustion_clock(n_arms, self.budget))

    def risk(self, clock: ArrayLike, n_arms: int) -> Floats:
        """min(budget, uncapped risk) at this clock."""
        return np.minimum(self.budget, dynamic_risk(n_arms, clock))

    @classmethod
    def bonus(cls, budgets: Row, clock: int) -> Fraction:
        """The schedule's bonus for the greedy arms: min(beta*, 1 - exploration_n) / beta*."""
        return dynamic_bonus(budgets, clock)

    @classmethod
    def kinks(
        cls, n_arms: FloatArray, horizon: FloatArray, n_segments: FloatArray, *, form: Form
    ) -> FloatArray:
        """Where the exhaustion clock leaves e, for two arms.

        With several segments in the paper's form, also where the budget starts to bind.
        """
        two = np.where(n_arms == 2, _risk(np.array(2.0), np.array(_BRANCH_RATE)), np.nan)
        if form != "paper":
            return two[:, None]
        clock = horizon / n_segments
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.cbrt(n_arms * np.log(clock) / clock)
            late = (n_segments > 1) & (clock > math.e) & (rate < 1)
            several = np.where(late, _risk(n_arms, rate), np.nan)
        return np.stack([two, several], axis=1)

    @classmethod
    def explored(cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike) -> FloatArray:
        """The schedule until the budget binds, then the budget's exploration."""
        arms, end, cap = np.broadcast_arrays(n_arms, visitors, budget)
        ends = np.maximum(end, 1).astype(np.float64)
        binds = np.minimum(np.maximum(exhaustion_root(arms, cap), 1.0), ends)
        # Many experiments and budgets share few pairs, because a budget binds at the same clock in
        # all.
        pairs, place = np.unique(arms.ravel() + 1j * binds.ravel(), return_inverse=True)
        scheduled = _scheduled(pairs.real, pairs.imag)[place].reshape(binds.shape)
        late = (ends - binds) * np.asarray(exploration_from_risk(arms, cap))
        return np.asarray(np.minimum((scheduled + late) / ends, 1.0))

    @classmethod
    def explored_last(cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike) -> FloatArray:
        """The larger of the schedule's and the budget's exploration."""
        clock = np.maximum(np.floor(visitors), 1.0)
        floor = np.asarray(exploration_from_risk(n_arms, budget))
        return np.maximum(dynamic_exploration(n_arms, clock), floor)

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | PublishedRule:
        """The falling schedule with the budget's exploration as its floor."""
        n_arms = rates.shape[1]
        if self.publishes:
            bonus = float(exploitation_from_risk(n_arms, self.budget))
            explored = np.full(n_arms, 1 / n_arms)
            return self.published(explored, bonus, rates.shape[0], scheduled=True)
        return decaying_rule(
            n_arms,
            floor=float(exploration_from_risk(n_arms, self.budget)),
            settles_at=self.binds_at(n_arms),
        )


def _scheduled(arms: FloatArray, clock: FloatArray) -> FloatArray:
    """Return the number of random arms of the schedule up to a clock, by Gauss quadrature.

    The schedule falls like the cube root of the clock n. As a function of x with n = clock x^(3/2),
    it is nearly linear.
    """
    n = clock[:, None] * _NODES**1.5
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.minimum(1.0, np.cbrt(arms[:, None] * np.log(n) / n))
    share = np.where(n < math.e, 1.0, share)
    return np.asarray(clock * (share @ (1.5 * np.sqrt(_NODES) * _WEIGHTS)))
