"""Private epsilon-greedy, constant strategy: every visitor is explored with the same probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.policies.contract import GreedyRule, fixed_rule
from deniable.privacy.exploration import exploitation_from_risk, exploration_from_risk


@dataclass(frozen=True)
class ConstantPolicy:
    """Exploration K / (K - 1 + e^budget) for every visitor.

    Attributes:
        budget: gamma, the privacy risk of every visitor.

    >>> ConstantPolicy(budget=3).rule(np.array([[0.3], [0.2]]), 100).exploring.round(4).tolist()
    [0.0474, 0.0474, 0.9051]
    """

    budget: float

    name: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", float(check.nonnegative("budget", self.budget)))

    @property
    def label(self) -> str:
        """constant(budget)."""
        return f"constant({self.budget:g})"

    @property
    def risk_cap(self) -> float:
        """The budget."""
        return self.budget

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule:
        """One exploration for all arms and clocks."""
        n_arms = rates.shape[0]
        exploration = float(exploration_from_risk(n_arms, self.budget))
        bonus = float(exploitation_from_risk(n_arms, self.budget))
        return fixed_rule(np.full(n_arms, exploration / n_arms), bonus)
