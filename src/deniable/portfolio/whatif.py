"""The optimum as a function of the firm budget, and the smallest budget for a share of the gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import NANO
from deniable.portfolio.allocation import CERTIFIED_GAP, TIME_LIMIT, Allocator
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.rules import best_budgets

_STEPS = 60


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The optimum for each of several firm budgets.

    Attributes:
        firm_budgets: in nats, ascending.
        total_regret: the smallest total found for each.
        lower_bound: proven lower bound for each.
        shadow_value: lambda at each.
        certified: whether each reached the requested gap.
        unlimited_cost: the firm budget beyond which nothing is gained.

    >>> curve = what_if(Portfolio.from_sizes([2], [10_000], form="paper"), n_points=3)
    >>> curve.share_of_gain.round(3).tolist()
    [0.0, 0.365, 1.0]
    """

    firm_budgets: FloatArray
    total_regret: FloatArray
    lower_bound: FloatArray
    shadow_value: FloatArray
    certified: tuple[bool, ...]
    unlimited_cost: float

    @property
    def share_of_gain(self) -> FloatArray:
        """The share of the largest possible saving that each budget reaches, if the curve spans it."""
        most = self.total_regret[0] - self.total_regret[-1]
        saved = self.total_regret[0] - self.total_regret
        return np.asarray(saved / most if most > 0 else np.ones_like(saved))


def what_if(
    portfolio: Portfolio,
    firm_budgets: Sequence[float] | None = None,
    *,
    regime: str = "flexible",
    n_points: int = 33,
) -> WhatIf:
    """Allocate many firm budgets; by default from the smallest possible to the largest useful.

    >>> two = Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper")
    >>> curve = what_if(two, [1.5, 4], regime="dynamic")
    >>> curve.total_regret.round(1).tolist(), round(curve.unlimited_cost, 4)
    ([8934.9, 5938.2], 4.7215)
    """
    return what_if_curve(Allocator(portfolio, regime), firm_budgets, n_points=n_points)


def what_if_curve(
    allocator: Allocator,
    firm_budgets: Sequence[float] | None = None,
    *,
    n_points: int = 33,
    gap: float = CERTIFIED_GAP,
    time_limit: float = TIME_LIMIT,
) -> WhatIf:
    """Return the same curve from a solver that is prepared, each point with these limits."""
    least = allocator.least_nano / NANO
    most = best_budgets(allocator.portfolio, 0.0, allocator.regime).cost_nano / NANO
    if firm_budgets is None:
        points = check.whole("n_points", n_points, 2)
        # Denser at small budgets, where the curve bends.
        budgets = least + (max(least, most) - least) * np.linspace(0, 1, points) ** 2
        budgets = np.ceil(budgets * NANO) / NANO
    else:
        budgets = np.unique(
            check.nonnegative("firm_budgets", np.asarray(firm_budgets, dtype=float))
        )
    found = [
        allocator.allocate(float(budget), gap=gap, time_limit=time_limit) for budget in budgets
    ]
    return WhatIf(
        budgets,
        np.array([a.total_regret for a in found]),
        np.array([a.lower_bound for a in found]),
        np.array([a.shadow_value for a in found]),
        tuple(a.certified for a in found),
        most,
    )


def budget_for_share(portfolio: Portfolio, share: float, *, regime: str = "flexible") -> float:
    """Return the smallest firm budget that reaches a share of what an unlimited one saves.

    Args:
        portfolio: the experiments.
        share: 0.9 for 90% of the saving.
        regime: as in `allocate`.

    Returns:
        Nats, rounded up to a millionth. The saving is relative to the smallest possible firm budget,
        which is the sum of commitments and minimums.

    >>> round(budget_for_share(Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper"), 0.9), 3)
    2.7
    """
    part = check.single("share", check.probability("share", share))
    allocator = Allocator(portfolio, regime)
    low = allocator.least_nano / NANO
    high = max(low, best_budgets(portfolio, 0.0, regime).cost_nano / NANO)
    worst = allocator.allocate(low).total_regret
    best = allocator.allocate(high).total_regret
    target = worst - part * (worst - best)
    if worst <= target:
        return low
    above, below = worst, best
    for step in range(_STEPS):
        if high - low <= 5e-7:
            break
        # A secant is fast on the smooth curve; bisecting every third step keeps it safe.
        middle = low + (high - low) * (above - target) / max(above - below, 1e-300)
        middle = (low + high) / 2 if step % 3 == 2 else min(max(middle, low + 1e-7), high - 1e-7)
        regret = allocator.allocate(middle).total_regret
        if regret <= target:
            high, below = middle, regret
        else:
            low, above = middle, regret
    return float(np.ceil(high * 1e6) / 1e6)
