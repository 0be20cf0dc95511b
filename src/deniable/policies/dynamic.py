"""Private epsilon-greedy, dynamic strategy: explore early, exploit later, up to the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.policies.contract import GreedyRule, falling_rule
from deniable.privacy.exploration import exploration_from_risk
from deniable.privacy.schedule import exhaustion_clock


@dataclass(frozen=True)
class DynamicPolicy:
    """Exploration max(K / (K - 1 + e^budget), (K log n / n)^(1/3)) on the segment's clock n.

    Attributes:
        budget: gamma, the cap on every visitor's privacy risk.

    >>> import numpy as np
    >>> DynamicPolicy(budget=3).rule(np.array([[0.3], [0.2]]), 10**6).turns.tolist()
    [23599.0]
    """

    budget: float

    name: ClassVar[str] = "dynamic"

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", float(check.nonnegative("budget", self.budget)))

    @property
    def label(self) -> str:
        """dynamic(budget)."""
        return f"dynamic({self.budget:g})"

    @property
    def risk_cap(self) -> float:
        """The budget."""
        return self.budget

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule:
        """The falling schedule with the budget's exploration as its floor."""
        n_arms = rates.shape[0]
        return falling_rule(
            n_arms,
            floor=float(exploration_from_risk(n_arms, self.budget)),
            settles_at=float(exhaustion_clock(n_arms, self.budget)),
        )
