"""The constant strategy: the whole budget for every visitor."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import exploitation_from_risk, exploration_from_risk
from deniable.privacy.tables import Row
from deniable.strategies.base import Formulas
from deniable.strategies.kernel_rules import GreedyRule, PublishedRule, fixed_rule
from deniable.strategies.symmetric import SymmetricStrategy
from deniable.theory import best_budget, elasticity, regret
from deniable.theory.regret import Form


@dataclass(frozen=True)
class Constant(SymmetricStrategy):
    """Gives every visitor the whole budget.

    >>> round(float(Constant(budget=3).exploration(clock=1, n_arms=2)), 6)
    0.094852
    >>> round(float(Constant.regret(2, 10_000, 1)), 3)
    8689.255
    """

    name: ClassVar[str] = "constant"
    title: ClassVar[str] = "Constant"
    description: ClassVar[str] = "the whole budget from the first visitor on"
    formulas: ClassVar[Formulas] = Formulas(
        regret.constant_regret_terms, elasticity.constant_gain, best_budget.best_constant_budget
    )

    def binds_at(self, n_arms: int) -> float:
        """The first visitor."""
        return 1.0

    def risk(self, clock: ArrayLike, n_arms: int) -> Floats:
        """The budget, at any clock."""
        return check.unwrap(np.full(check.count("clock", clock, 1).shape, self.budget))

    @classmethod
    def bonus(cls, budgets: Row, clock: int) -> Fraction:
        """The whole bonus, at any clock."""
        return Fraction(1)

    @classmethod
    def dominated(cls, n_segments: ArrayLike, *, form: Form) -> NDArray[np.bool_]:
        """With one segment, by the dynamic strategy, in the paper's form.

        That bound is lower by 2 sqrt(2) n e (2 sqrt(log T / log n) - 1), where n is the exhaustion
        clock.
        """
        return np.asarray((np.asarray(n_segments) == 1) & (form == "paper"))

    @classmethod
    def explored(cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike) -> FloatArray:
        """The budget's exploration."""
        share, _ = np.broadcast_arrays(exploration_from_risk(n_arms, budget), visitors)
        return share

    @classmethod
    def explored_last(cls, n_arms: ArrayLike, visitors: ArrayLike, budget: ArrayLike) -> FloatArray:
        """The budget's exploration."""
        return cls.explored(n_arms, visitors, budget)

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | PublishedRule:
        """The same exploration for all arms and clocks."""
        n_arms = rates.shape[1]
        explored = np.full(n_arms, float(exploration_from_risk(n_arms, self.budget)) / n_arms)
        bonus = float(exploitation_from_risk(n_arms, self.budget))
        if self.publishes:
            return self.published(explored, bonus, rates.shape[0], scheduled=False)
        return fixed_rule(explored, bonus)
