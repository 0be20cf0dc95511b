"""Strategies: how an experiment spends its budget over its visitors.

A strategy maps a clock to a privacy risk that never exceeds the budget. The symmetric strategies run
on each segment's own clock: every risk is at most the budget, and that alone keeps e^budget between
any two segments. The arm-specific dynamic strategy does not survive different clocks (budgets .5, 1,
2: a late segment shows the first arm with .775, a new one with 1/3), so it runs on the
experiment-wide clock, the same for every segment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import exploration_from_risk
from deniable.privacy.mechanism import ArmSpecificResponse, Mechanism, RandomizedResponse
from deniable.privacy.schedule import dynamic_risk, exhaustion_clock

ClockKind: TypeAlias = Literal["segment", "experiment"]


class Strategy(Protocol):
    """What every strategy offers."""

    clock_kind: ClassVar[ClockKind]

    @property
    def n_arms(self) -> int:
        """K."""

    @property
    def global_budget(self) -> float:
        """The largest risk any visitor can be given."""

    @property
    def binds_at(self) -> float:
        """The clock from which the strategy stays as it is."""

    def exploration(self, clock: ArrayLike) -> Floats:
        """Probability of a random arm at each clock, the clock's shape."""

    def risk(self, clock: ArrayLike) -> Floats:
        """Global privacy risk at each clock, the clock's shape."""

    def mechanism(self, clock: int) -> Mechanism:
        """The mechanism that shows an arm to the visitor with this clock."""


@dataclass(frozen=True)
class _Symmetric(ABC):
    n_arms: int
    budget: float

    clock_kind: ClassVar[ClockKind] = "segment"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_arms", check.whole("n_arms", self.n_arms, 2))
        budget = check.single("budget", check.nonnegative("budget", self.budget))
        object.__setattr__(self, "budget", budget)

    @property
    def global_budget(self) -> float:
        """The budget."""
        return self.budget

    @abstractmethod
    def risk(self, clock: ArrayLike) -> Floats:
        """Privacy risk of the visitor with this clock."""

    def exploration(self, clock: ArrayLike) -> Floats:
        """K / (K - 1 + e^risk) at this clock."""
        return exploration_from_risk(self.n_arms, self.risk(clock))

    def mechanism(self, clock: int) -> RandomizedResponse:
        """Randomized response with the risk of this clock."""
        return RandomizedResponse(self.n_arms, float(self.risk(clock)))


@dataclass(frozen=True)
class ConstantStrategy(_Symmetric):
    """Every visitor gets the whole budget.

    >>> round(float(ConstantStrategy(n_arms=2, budget=3).exploration(1)), 6)
    0.094852
    """

    binds_at: ClassVar[float] = 1.0

    def risk(self, clock: ArrayLike) -> Floats:
        """The budget, whatever the clock."""
        return check.unwrap(np.full(check.count("clock", clock, 1).shape, self.budget))


@dataclass(frozen=True)
class DynamicStrategy(_Symmetric):
    """Explore early, exploit later: risk_n = min(budget, log(1 - K + K / exploration_n)).

    >>> strategy = DynamicStrategy(n_arms=2, budget=1)
    >>> strategy.binds_at, strategy.risk([10, 1000]).round(6).tolist()
    (51.0, [0.463665, 1.0])
    """

    @property
    def binds_at(self) -> float:
        """The exhaustion clock of the budget."""
        return float(exhaustion_clock(self.n_arms, self.budget))

    def risk(self, clock: ArrayLike) -> Floats:
        """min(budget, uncapped risk) at this clock."""
        return np.minimum(self.budget, dynamic_risk(self.n_arms, clock))


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
        """K."""
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
    """Every visitor gets each arm's whole budget.

    >>> round(ArmConstantStrategy([0.5, 1, 2]).mechanism(1).exploration, 3)
    0.695
    """

    clock_kind: ClassVar[ClockKind] = "segment"
    binds_at: ClassVar[float] = 1.0

    def arm_risks(self, clock: ArrayLike) -> FloatArray:
        """The budgets, whatever the clock."""
        shape = check.count("clock", clock, 1).shape
        return np.broadcast_to(self.budgets, (*shape, self.n_arms))


@dataclass(frozen=True, eq=False, init=False)
class ArmDynamicStrategy(_ArmSpecific):
    """risk_j = min(budget_j, uncapped risk), on the experiment-wide clock.

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
