"""Policies that publish one table for all segments: joint, pooled, and their limit.

The joint strategy keeps P(arm | segment) within e^budget between segments, and adds no more
randomness than that requires. Pooled is one bandit for all segments: every segment has the same
row, so its risk is 0 whatever it learns. Best-private is the best table that keeps the budget,
given the true click rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.policies.base import EpochRule, KnownRatesRule, shortest


@dataclass(frozen=True)
class JointPolicy:
    """The joint strategy, given the time of the first visit.

    Attributes:
        budget: gamma, the limit on every visitor's privacy risk.
        told_horizon: the number of visitors that the strategy expects; None for the true one, 0 if
            unknown.
        trace_budget: the limit on what later tables reveal about a visitor; 0 for no such promise.

    >>> JointPolicy(1).label, JointPolicy(1, told_horizon=0).label
    ('joint(1)', 'joint(1, told 0)')
    """

    budget: float
    told_horizon: int | None = None
    trace_budget: float = 0.0

    name: ClassVar[str] = "joint"
    across_time: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", check.budget(self.budget))
        if self.told_horizon is not None:
            check.whole("told_horizon", self.told_horizon, 0)
        trace = float(check.nonnegative("trace_budget", self.trace_budget))
        object.__setattr__(self, "trace_budget", trace)

    @property
    def label(self) -> str:
        """The name with the budget and any non-default parameters."""
        told = "" if self.told_horizon is None else f", told {self.told_horizon}"
        trace = f", trace {shortest(self.trace_budget)}" if self.trace_budget else ""
        return f"{self.name}({shortest(self.budget)}{told}{trace})"

    @property
    def risk_cap(self) -> float:
        """The budget."""
        return self.budget

    def rule(self, rates: FloatArray, horizon: int) -> EpochRule:
        """A table per epoch, from the counts before it."""
        told = horizon if self.told_horizon is None else self.told_horizon
        kind: Literal["across-time", "joint"] = "across-time" if self.across_time else "joint"
        return EpochRule(kind, self.budget, told, self.trace_budget)


class AcrossTimePolicy(JointPolicy):
    """The joint strategy across time: the same row for all at first, then one band for life.

    >>> AcrossTimePolicy(1).label
    'joint-across-time(1)'
    """

    name: ClassVar[str] = "joint-across-time"
    across_time: ClassVar[bool] = True


@dataclass(frozen=True)
class PooledPolicy:
    """One bandit for all segments: the same row for each, with risk 0 whatever it learns.

    >>> PooledPolicy().risk_cap
    0.0
    """

    name: ClassVar[str] = "pooled"
    label: ClassVar[str] = "pooled"
    risk_cap: ClassVar[float] = 0.0

    def rule(self, rates: FloatArray, horizon: int) -> EpochRule:
        """A row per epoch, from the counts of all segments together."""
        return EpochRule("pooled", 0.0, horizon, 0.0)


@dataclass(frozen=True)
class BestPrivatePolicy:
    """The best table that keeps the budget, given the true click rates: the joint strategy's limit.

    Attributes:
        budget: gamma.

    >>> BestPrivatePolicy(1).label
    'best-private(1)'
    """

    budget: float

    name: ClassVar[str] = "best-private"

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", check.budget(self.budget))

    @property
    def label(self) -> str:
        """best-private(budget)."""
        return f"best-private({shortest(self.budget)})"

    @property
    def risk_cap(self) -> float:
        """The budget."""
        return self.budget

    def rule(self, rates: FloatArray, horizon: int) -> KnownRatesRule:
        """A single table, computed by the simulator for its environment's shares."""
        return KnownRatesRule(self.budget)
