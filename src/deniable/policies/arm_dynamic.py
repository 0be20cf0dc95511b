"""Private epsilon-greedy with a budget for each arm, reached along the dynamic schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.policies.arm_constant import budget_for_each
from deniable.policies.contract import GreedyRule, fixed_rule
from deniable.privacy.schedule import exhaustion_clock


@dataclass(frozen=True)
class ArmDynamicPolicy:
    """Risk min(budget_j, uncapped risk) for shown arm j, on the experiment-wide clock.

    The clock is the same for every segment: with clocks of their own, a late and a new segment
    would show an arm with a ratio above e^budget_j.

    Attributes:
        budgets: the cap on the privacy risk of each shown arm.

    >>> ArmDynamicPolicy((1, 3)).rule(np.full((2, 1), 0.1), 100).turns.tolist()
    [51.0, 23599.0]
    """

    budgets: tuple[float, ...]

    name: ClassVar[str] = "arm-dynamic"

    def __init__(self, budgets: Sequence[float]) -> None:
        object.__setattr__(self, "budgets", tuple(check.arm_budgets("budgets", budgets).tolist()))

    @property
    def label(self) -> str:
        """arm-dynamic(budgets)."""
        return f"arm-dynamic({', '.join(f'{b:g}' for b in self.budgets)})"

    @property
    def risk_cap(self) -> float:
        """The largest budget."""
        return max(self.budgets)

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule:
        """The schedule with a cap for each arm."""
        n_arms = rates.shape[0]
        budget_for_each(self.budgets, n_arms)
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
