"""What to compare strategies with: random arms, perfect information and learners without privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.strategies.kernel_rules import (
    FixedRule,
    GreedyRule,
    IndexRule,
    KnownRatesRule,
    decaying_rule,
    shortest,
)

LARGEST_DISCOUNT = 0.9999


@dataclass(frozen=True)
class Gittins:
    """Optimal learning for a discounted future: show the arm with the highest Gittins index.

    The prior is Beta(1, 1); ties are broken at random.

    Attributes:
        discount: weight of the next click, in (0, .9999]; None for 1 - 1/T, at most .9999.

    >>> Gittins().rule(np.full((1, 2), 0.1), 1000).discount
    0.999
    """

    discount: float | None = None

    name: ClassVar[str] = "gittins"
    risk_cap: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        given = self.discount
        if given is None:
            return
        allowed = "a number above 0, up to .9999"
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise InvalidArgumentError("discount", given, allowed)
        if not 0 < given <= LARGEST_DISCOUNT:
            raise InvalidArgumentError("discount", given, allowed)

    @property
    def label(self) -> str:
        """gittins, with the discount if it was given."""
        return "gittins" if self.discount is None else f"gittins({shortest(self.discount)})"

    def rule(self, rates: FloatArray, horizon: int) -> IndexRule:
        """The index with the given discount, or with the horizon's."""
        if self.discount is not None:
            return IndexRule(self.discount)
        return IndexRule(min(LARGEST_DISCOUNT, max(0.5, 1 - 1 / horizon)))


@dataclass(frozen=True)
class Random:
    """Every arm with probability 1/K.

    >>> Random().rule(np.full((1, 4), 0.1), 100).shown.ravel().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    name: ClassVar[str] = "random"
    label: ClassVar[str] = "random"
    risk_cap: ClassVar[float] = 0.0

    def rule(self, rates: FloatArray, horizon: int) -> FixedRule:
        """Uniform in every segment."""
        return FixedRule(np.full(rates.shape, 1 / rates.shape[1]))


@dataclass(frozen=True)
class Perfect:
    """The best arm of each segment; if several are best, each with the same probability.

    >>> Perfect().rule(np.array([[0.3, 0.2], [0.1, 0.1]]), 100).shown.tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    name: ClassVar[str] = "perfect"
    label: ClassVar[str] = "perfect"
    risk_cap: ClassVar[float] = math.inf

    def rule(self, rates: FloatArray, horizon: int) -> FixedRule:
        """Uniform over each segment's best arms."""
        best = rates == rates.max(axis=1, keepdims=True)
        return FixedRule(best / best.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class EpsilonGreedy:
    """Exploration min(1, (K log n / n)^(1/3)) on the segment's clock n.

    >>> EpsilonGreedy().label
    'epsilon-greedy'
    """

    name: ClassVar[str] = "epsilon-greedy"
    label: ClassVar[str] = "epsilon-greedy"
    risk_cap: ClassVar[float] = math.inf

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule:
        """The decaying schedule with a floor of 0, which it never reaches."""
        return decaying_rule(rates.shape[1], floor=0.0, settles_at=math.inf)


@dataclass(frozen=True)
class BestPrivate:
    """The best table that keeps the budget, given the true click rates: the joint strategy's limit.

    Attributes:
        budget: gamma.

    >>> BestPrivate(1).label
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
