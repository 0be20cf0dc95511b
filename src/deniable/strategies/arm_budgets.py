"""Budgets by arm: strategies for experiments whose arms have their own budgets.

The constant strategy keeps e^budget_j for every arm. The dynamic one does not with different clocks
(budgets .5, 1, 2: a late segment shows the first arm with .775, a new one with 1/3), so it uses the
clock of the experiment, the same for every segment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError
from deniable.privacy.exploration import dynamic_risk, exhaustion_clock
from deniable.privacy.mechanism import ArmSpecificResponse
from deniable.strategies.base import ClockKind
from deniable.strategies.kernel_rules import (
    GreedyRule,
    Growth,
    Published,
    PublishedRule,
    fixed_rule,
    shortest,
)


@dataclass(frozen=True)
class _ArmBudgets(Published, ABC):
    """Common base of both; `budgets` has one budget for each arm, in nats."""

    budgets: tuple[float, ...]

    name: ClassVar[str]

    def __init__(
        self, budgets: Sequence[float] | FloatArray, *, growth: Growth | None = None
    ) -> None:
        super().__init__(growth=growth)
        object.__setattr__(self, "budgets", tuple(check.arm_budgets("budgets", budgets).tolist()))

    @property
    def label(self) -> str:
        """The name with the budgets."""
        return self.name + self.labelled(", ".join(map(shortest, self.budgets)))

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.budgets)

    @property
    def risk_cap(self) -> float:
        """The largest arm budget."""
        return max(self.budgets)

    @abstractmethod
    def arm_risks(self, clock: ArrayLike) -> FloatArray:
        """Risk of each arm at each clock: the clock's shape, then (K,)."""

    def risk(self, clock: ArrayLike) -> Floats:
        """The largest arm risk at each clock."""
        return check.unwrap(np.asarray(self.arm_risks(clock).max(axis=-1)))

    def exploration(self, clock: ArrayLike) -> Floats:
        """C / (1 + C) at each clock."""
        risks = self.arm_risks(clock)
        flat = [ArmSpecificResponse(row).exploration for row in risks.reshape(-1, self.n_arms)]
        return check.unwrap(np.array(flat).reshape(risks.shape[:-1]))

    def mechanism(self, clock: int) -> ArmSpecificResponse:
        """Arm-specific response with the risks of this clock."""
        return ArmSpecificResponse(self.arm_risks(check.whole("clock", clock, 1)))


@dataclass(frozen=True, init=False)
class ArmConstant(_ArmBudgets):
    """Gives every visitor the whole budget of each arm.

    >>> round(ArmConstant([0.5, 1, 2]).mechanism(1).exploration, 3)
    0.695
    """

    clock_kind: ClassVar[ClockKind] = "segment"
    binds_at: ClassVar[float] = 1.0
    name: ClassVar[str] = "arm-constant"

    def arm_risks(self, clock: ArrayLike) -> FloatArray:
        """The budgets, at any clock."""
        shape = check.count("clock", clock, 1).shape
        return np.broadcast_to(self.budgets, (*shape, self.n_arms))

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | PublishedRule:
        """The same exploration by arm for all clocks."""
        explored, bonus = _weighted(self.budgets, rates.shape[1])
        if self.publishes:
            return self.published(explored, bonus, rates.shape[0], scheduled=False)
        return fixed_rule(explored, bonus)


@dataclass(frozen=True, init=False)
class ArmDynamic(_ArmBudgets):
    """risk_j = min(budget_j, uncapped risk), using the clock of the experiment.

    Published tables are the service's instead: weights and a scheduled bonus, which keep e^budget_j with
    the segments' own clocks.

    >>> ArmDynamic([0.5, 1, 2]).arm_risks(100).round(3).tolist()
    [0.5, 1.0, 1.336]
    """

    clock_kind: ClassVar[ClockKind] = "experiment"
    name: ClassVar[str] = "arm-dynamic"

    @property
    def binds_at(self) -> float:
        """The clock at which the largest budget binds."""
        return float(exhaustion_clock(self.n_arms, self.risk_cap))

    def arm_risks(self, clock: ArrayLike) -> FloatArray:
        """min(budget_j, uncapped risk), shape (clock's shape, K)."""
        uncapped = np.asarray(dynamic_risk(self.n_arms, clock))
        return np.minimum(self.budgets, uncapped[..., None])

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule | PublishedRule:
        """The schedule with a limit per arm; in published tables, weights and a scheduled bonus."""
        n_arms = rates.shape[1]
        explored, bonus = _weighted(self.budgets, n_arms)
        if self.publishes:
            return self.published(explored, bonus, rates.shape[0], scheduled=True)
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
