"""Epsilon-greedy policies, private and not: show the arm that looks best, with some exploration.

Constant and dynamic are the paper's two strategies with one budget; arm-constant and arm-dynamic
have a budget per arm. Epsilon-greedy is the dynamic schedule without a budget, and makes no
promise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.policies.base import (
    GreedyRule,
    Growth,
    Published,
    TableRule,
    decaying_rule,
    fixed_rule,
    shortest,
)
from deniable.privacy.exploration import (
    exhaustion_clock,
    exploitation_from_risk,
    exploration_from_risk,
)
from deniable.privacy.mechanism import ArmSpecificResponse


@dataclass(frozen=True)
class ConstantPolicy(Published):
    """Exploration K / (K - 1 + e^budget) for every visitor.

    Attributes:
        budget: gamma, the privacy risk of every visitor.

    >>> ConstantPolicy(budget=3).rule(np.array([[0.3], [0.2]]), 100).exploring.round(4).tolist()
    [0.0474, 0.0474, 0.9051]
    """

    budget: float

    name: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "budget", check.budget(self.budget))

    @property
    def label(self) -> str:
        """constant(budget)."""
        return "constant" + self.labelled(shortest(self.budget))

    @property
    def risk_cap(self) -> float:
        """The budget."""
        return self.budget

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | TableRule:
        """The same exploration for all arms and clocks."""
        n_arms = rates.shape[0]
        explored = np.full(n_arms, float(exploration_from_risk(n_arms, self.budget)) / n_arms)
        bonus = float(exploitation_from_risk(n_arms, self.budget))
        if self.publishes:
            return self.published(explored, bonus, rates.shape[1], scheduled=False)
        return fixed_rule(explored, bonus)


@dataclass(frozen=True)
class DynamicPolicy(Published):
    """Exploration max(K / (K - 1 + e^budget), (K log n / n)^(1/3)) on the segment's clock n.

    Attributes:
        budget: gamma, the limit on every visitor's privacy risk.

    >>> DynamicPolicy(budget=3).rule(np.array([[0.3], [0.2]]), 10**6).turns.tolist()
    [23599.0]
    """

    budget: float

    name: ClassVar[str] = "dynamic"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "budget", check.budget(self.budget))

    @property
    def label(self) -> str:
        """dynamic(budget)."""
        return "dynamic" + self.labelled(shortest(self.budget))

    @property
    def risk_cap(self) -> float:
        """The budget."""
        return self.budget

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | TableRule:
        """The decaying schedule with the budget's exploration as its floor."""
        n_arms = rates.shape[0]
        if self.publishes:
            bonus = float(exploitation_from_risk(n_arms, self.budget))
            explored = np.full(n_arms, 1 / n_arms)
            return self.published(explored, bonus, rates.shape[1], scheduled=True)
        return decaying_rule(
            n_arms,
            floor=float(exploration_from_risk(n_arms, self.budget)),
            settles_at=float(exhaustion_clock(n_arms, self.budget)),
        )


@dataclass(frozen=True)
class _ArmBudgets(Published):
    """Common base of policies with a budget per arm."""

    budgets: tuple[float, ...]

    name: ClassVar[str]

    def __init__(
        self,
        budgets: Sequence[float],
        *,
        growth: Growth | None = None,
        trace_budget: float | None = None,
    ) -> None:
        super().__init__(growth=growth, trace_budget=trace_budget)
        object.__setattr__(self, "budgets", tuple(check.arm_budgets("budgets", budgets).tolist()))

    @property
    def label(self) -> str:
        """The name with the budgets."""
        return self.name + self.labelled(", ".join(map(shortest, self.budgets)))

    @property
    def risk_cap(self) -> float:
        """The largest budget."""
        return max(self.budgets)


class ArmConstantPolicy(_ArmBudgets):
    """Weighted exploration c_j / (1 + C), c_j = 1 / (e^budget_j - 1), for every visitor.

    Attributes:
        budgets: the privacy risk of each shown arm.

    >>> rule = ArmConstantPolicy((0.5, 1, 2)).rule(np.full((3, 1), 0.1), 100)
    >>> rule.exploring.round(3).tolist()
    [0.47, 0.177, 0.048, 0.305]
    """

    name: ClassVar[str] = "arm-constant"

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | TableRule:
        """The same exploration by arm for all clocks."""
        explored, bonus = _weighted(self.budgets, rates.shape[0])
        if self.publishes:
            return self.published(explored, bonus, rates.shape[1], scheduled=False)
        return fixed_rule(explored, bonus)


class ArmDynamicPolicy(_ArmBudgets):
    """Risk min(budget_j, uncapped risk) for shown arm j, using the clock of the experiment.

    The clock is the same for every segment: with separate clocks, a late and a new segment would
    show an arm with a ratio above e^budget_j. Published tables are the service's instead: weights
    and a scheduled bonus, which keep e^budget_j with the segments' own clocks.

    Attributes:
        budgets: the limit on the privacy risk of each shown arm.

    >>> ArmDynamicPolicy((1, 3)).rule(np.full((2, 1), 0.1), 100).turns.tolist()
    [51.0, 23599.0]
    """

    name: ClassVar[str] = "arm-dynamic"

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | TableRule:
        """The schedule with a limit per arm; in published tables, weights and a scheduled bonus."""
        n_arms = rates.shape[0]
        explored, bonus = _weighted(self.budgets, n_arms)
        if self.publishes:
            return self.published(explored, bonus, rates.shape[1], scheduled=True)
        if max(self.budgets) == 0:
            return fixed_rule(np.full(n_arms, 1 / n_arms), 0.0)
        caps = np.asarray(self.budgets)
        return GreedyRule(
            kind="arm-dynamic",
            exploring=np.zeros(n_arms + 1),
            floor=0.0,
            budgets=caps,
            turns=np.sort(np.asarray(exhaustion_clock(n_arms, caps))),
            on_segment_clock=False,
        )


@dataclass(frozen=True)
class EpsilonGreedyPolicy:
    """Exploration min(1, (K log n / n)^(1/3)) on the segment's clock n.

    >>> EpsilonGreedyPolicy().label
    'epsilon-greedy'
    """

    name: ClassVar[str] = "epsilon-greedy"
    label: ClassVar[str] = "epsilon-greedy"
    risk_cap: ClassVar[float] = math.inf

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule:
        """The decaying schedule with a floor of 0, which it never reaches."""
        return decaying_rule(rates.shape[0], floor=0.0, settles_at=math.inf)


def _weighted(budgets: tuple[float, ...], n_arms: int) -> tuple[FloatArray, float]:
    """Return the probability of each arm without being greedy, and the greedy arm's bonus.

    Rejects budgets for a different number of arms than the experiment's.
    """
    if len(budgets) != n_arms:
        raise InvalidArgumentError("budgets", budgets, f"one budget for each of {n_arms} arms")
    shown = ArmSpecificResponse(budgets).matrix
    explored = shown[:, 0].copy()
    explored[0] = shown[0, 1]  # any column but its own: shown without being greedy
    return explored, max(0.0, float(shown[0, 0] - shown[0, 1]))
