"""Private epsilon-greedy with a budget for each arm, the same for every visitor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.policies.contract import GreedyRule, fixed_rule
from deniable.privacy.mechanism import ArmSpecificResponse


@dataclass(frozen=True)
class ArmConstantPolicy:
    """Weighted exploration c_j / (1 + C), c_j = 1 / (e^budget_j - 1), for every visitor.

    Attributes:
        budgets: the privacy risk of each shown arm.

    >>> import numpy as np
    >>> rule = ArmConstantPolicy((0.5, 1, 2)).rule(np.full((3, 1), 0.1), 100)
    >>> rule.exploring.round(3).tolist()
    [0.47, 0.177, 0.048, 0.305]
    """

    budgets: tuple[float, ...]

    name: ClassVar[str] = "arm-constant"

    def __init__(self, budgets: Sequence[float]) -> None:
        object.__setattr__(self, "budgets", tuple(check.arm_budgets("budgets", budgets).tolist()))

    @property
    def label(self) -> str:
        """arm-constant(budgets)."""
        return f"arm-constant({', '.join(f'{b:g}' for b in self.budgets)})"

    @property
    def risk_cap(self) -> float:
        """The largest budget."""
        return max(self.budgets)

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule:
        """One exploration by arm for all clocks."""
        budget_for_each(self.budgets, rates.shape[0])
        shown = ArmSpecificResponse(self.budgets).matrix
        exploring = shown[:, 0].copy()
        exploring[0] = shown[0, 1]  # any column but its own: shown without being greedy
        return fixed_rule(exploring, max(0.0, float(shown[0, 0] - shown[0, 1])))


def budget_for_each(budgets: tuple[float, ...], n_arms: int) -> None:
    """Refuse budgets of another number of arms than the experiment's."""
    if len(budgets) != n_arms:
        raise InvalidArgumentError("budgets", budgets, f"one budget for each of {n_arms} arms")
