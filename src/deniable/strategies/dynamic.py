"""The dynamic strategy: explore early, exploit later, up to the budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from deniable._validation import Floats
from deniable.policies.greedy import DynamicPolicy
from deniable.privacy.schedule import dynamic_risk, exhaustion_clock
from deniable.privacy.tables import Row, dynamic_bonus
from deniable.strategies.base import SymmetricStrategy
from deniable.theory import best_budget, elasticity, regret
from deniable.theory.regret import Form, RegretTerms


@dataclass(frozen=True)
class DynamicStrategy(SymmetricStrategy):
    """Explore early, exploit later: risk_n = min(budget, log(1 - K + K / exploration_n)).

    >>> strategy = DynamicStrategy(n_arms=2, budget=1)
    >>> strategy.binds_at, strategy.risk([10, 1000]).round(6).tolist()
    (51.0, [0.463665, 1.0])
    >>> round(float(DynamicStrategy.regret(2, 10_000, 1, form="paper")), 3)
    8530.937
    """

    name: ClassVar[str] = "dynamic"
    title: ClassVar[str] = "Dynamic"
    description: ClassVar[str] = "random arms at first, then the budget as it learns"

    @property
    def binds_at(self) -> float:
        """The exhaustion clock of the budget."""
        return float(exhaustion_clock(self.n_arms, self.budget))

    def risk(self, clock: ArrayLike) -> Floats:
        """min(budget, uncapped risk) at this clock."""
        return np.minimum(self.budget, dynamic_risk(self.n_arms, clock))

    @classmethod
    def bonus(cls, budgets: Row, clock: int) -> Fraction:
        """What the schedule leaves to the greedy arms: min(beta*, 1 - exploration_n) / beta*."""
        return dynamic_bonus(budgets, clock)

    def policy(self) -> DynamicPolicy:
        """The falling schedule with the budget's exploration as its floor."""
        return DynamicPolicy(self.budget)

    @classmethod
    def regret_terms(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        budget: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> RegretTerms:
        """Learning on the schedule; random and wrong greedy arms once the budget binds."""
        return regret.dynamic_regret_terms(
            n_arms, horizon, budget, n_segments, form=form, shares=shares
        )

    @classmethod
    def gain(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        budget: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """In closed form; 0 where the budget does not bind in any segment."""
        return elasticity.dynamic_gain(
            n_arms, horizon, budget, n_segments, form=form, shares=shares
        )

    @classmethod
    def best_budget(
        cls,
        n_arms: ArrayLike,
        horizon: ArrayLike,
        n_segments: ArrayLike = 1,
        *,
        form: Form = "summed",
        shares: ArrayLike | None = None,
    ) -> Floats:
        """In closed form for "paper"; by minimization for "summed"."""
        return best_budget.best_dynamic_budget(
            n_arms, horizon, n_segments, form=form, shares=shares
        )
