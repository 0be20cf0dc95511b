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
from deniable.privacy.exploration import dynamic_risk, exhaustion_clock
from deniable.privacy.mechanism import ArmSpecificResponse
from deniable.strategies.base import ClockKind


@dataclass(frozen=True, eq=False)
class _ArmSpecific(ABC):
    budgets: FloatArray

    def __init__(self, budgets: Sequence[float] | FloatArray) -> None:
        checked = check.arm_budgets("budgets", budgets).copy()
        checked.flags.writeable = False
        object.__setattr__(self, "budgets", checked)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and np.array_equal(
            self.budgets, getattr(other, "budgets", ())
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.budgets.tobytes()))

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return int(self.budgets.size)

    @property
    def global_budget(self) -> float:
        """The largest arm budget."""
        return float(self.budgets.max())

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


@dataclass(frozen=True, eq=False, init=False)
class ArmConstantStrategy(_ArmSpecific):
    """Gives every visitor the whole budget of each arm.

    >>> round(ArmConstantStrategy([0.5, 1, 2]).mechanism(1).exploration, 3)
    0.695
    """

    clock_kind: ClassVar[ClockKind] = "segment"
    binds_at: ClassVar[float] = 1.0

    def arm_risks(self, clock: ArrayLike) -> FloatArray:
        """The budgets, at any clock."""
        shape = check.count("clock", clock, 1).shape
        return np.broadcast_to(self.budgets, (*shape, self.n_arms))


@dataclass(frozen=True, eq=False, init=False)
class ArmDynamicStrategy(_ArmSpecific):
    """risk_j = min(budget_j, uncapped risk), using the clock of the experiment.

    >>> ArmDynamicStrategy([0.5, 1, 2]).arm_risks(100).round(3).tolist()
    [0.5, 1.0, 1.336]
    """

    clock_kind: ClassVar[ClockKind] = "experiment"

    @property
    def binds_at(self) -> float:
        """The clock at which the largest budget binds."""
        return float(exhaustion_clock(self.n_arms, self.global_budget))

    def arm_risks(self, clock: ArrayLike) -> FloatArray:
        """min(budget_j, uncapped risk), shape (clock's shape, K)."""
        uncapped = np.asarray(dynamic_risk(self.n_arms, clock))
        return np.minimum(self.budgets, uncapped[..., None])
