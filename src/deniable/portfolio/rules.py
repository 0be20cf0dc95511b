"""Alternative rules that a firm might use: each experiment's best budget, an equal split, nothing.

A budget is a cap: as in an allocation, an experiment leaves unspent what hardly helps it. So no rule
within the firm budget is better than the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError
from deniable.portfolio.allocation import Allocation
from deniable.portfolio.curves import Curves, build_curves, expected_table
from deniable.portfolio.problem import (
    UNLIMITED_NANO,
    NanoArray,
    Portfolio,
    check_regime,
    firm_nano,
)


@dataclass(frozen=True, eq=False)
class RuleOutcome:
    """The budgets that a rule gives, their cost, and the resulting loss.

    Attributes:
        rule: name of the rule.
        budgets_nano: the budgets in nano-nats.
        strategies: the better strategy of each at its budget, among those allowed.
        regret: the bound of each.
        total_regret: their sum.
        cost_nano: cost to the firm.
        affordable: whether that is within the firm budget.

    >>> outcome = equal_split(Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper"), 3)
    >>> outcome.rule, outcome.cost_nano, outcome.strategies
    ('equal split', 3000000000, ('dynamic', 'dynamic'))
    """

    rule: str
    budgets_nano: NanoArray
    strategies: tuple[str, ...]
    regret: FloatArray
    total_regret: float
    cost_nano: int
    affordable: bool

    @property
    def budgets(self) -> FloatArray:
        """The budgets in nats."""
        return self.budgets_nano / NANO


def best_budgets(portfolio: Portfolio, firm_budget: float, regime: str = "flexible") -> RuleOutcome:
    """Give each experiment its own best budget, whatever the sum.

    >>> outcome = best_budgets(Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper"), 4)
    >>> outcome.budgets.round(4).tolist(), outcome.affordable
    ([1.9927, 2.7289], False)
    """
    curves = build_curves(portfolio, check_regime(regime))
    index = np.arange(curves.experiment.size)
    at_best = curves.regret(index, curves.high)
    order = np.lexsort((at_best, curves.experiment))
    first = np.append(True, np.diff(curves.experiment[order]) != 0)
    chosen = np.rint(curves.high[order[first]] * NANO).astype(np.int64)
    return _outcome("best budgets", portfolio, curves, chosen, firm_budget)


def equal_split(portfolio: Portfolio, firm_budget: float, regime: str = "flexible") -> RuleOutcome:
    """Give every experiment the same budget, with the better strategy at that cap.

    A group counts once. If minimums, maximums or commitments bind, the others share the rest.

    >>> equal_split(Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper"), 4).budgets.tolist()
    [2.0, 2.0]
    """
    curves = build_curves(portfolio, check_regime(regime))
    available = firm_nano("firm_budget", firm_budget)

    def level(height: int) -> NanoArray:
        return np.asarray(np.clip(height, portfolio.min_nano, portfolio.max_nano))

    low, high = 0, UNLIMITED_NANO // (2 * portfolio.size)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if portfolio.cost(level(middle)) <= available else (low, middle - 1)
        )
    return _outcome("equal split", portfolio, curves, level(low), firm_budget)


def zero_budgets(
    portfolio: Portfolio, firm_budget: float = 0.0, regime: str = "flexible"
) -> RuleOutcome:
    """Give nothing beyond commitments and minimums, with the best strategy at that budget.

    At budget 0 the joint strategy gives all segments the same, learned probabilities.

    >>> round(zero_budgets(Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper")).total_regret)
    14031
    """
    curves = build_curves(portfolio, check_regime(regime))
    return _outcome("zero", portfolio, curves, portfolio.min_nano.copy(), firm_budget)


def random_arms(
    portfolio: Portfolio, firm_budget: float = 0.0, regime: str = "flexible"
) -> RuleOutcome:
    """Budget 0 in the paper's sense: random arms, so that every visitor's click may be lost.

    >>> random_arms(Portfolio.from_sizes([2, 2], [1000, 10_000])).total_regret
    11000.0
    """
    zero = zero_budgets(portfolio, firm_budget, regime)
    nothing = zero.budgets_nano == 0
    if portfolio.objective == "expected":
        random = expected_table(portfolio, "random", np.arange(portfolio.size))[:, 0]
    else:
        random = portfolio.visitors * portfolio.worth
    regret = np.where(nothing, random, zero.regret)
    names = (
        "random" if none else name for none, name in zip(nothing, zero.strategies, strict=True)
    )
    return replace(
        zero,
        rule="random arms",
        strategies=tuple(names),
        regret=regret,
        total_regret=math.fsum(regret),
    )


RULES: dict[str, Callable[[Portfolio, float, str], RuleOutcome]] = {
    "best budgets": best_budgets,
    "equal split": equal_split,
    "zero": zero_budgets,
    "random arms": random_arms,
}
"""All rules by name; `compare_rules` runs them all."""


def compare_rules(allocation: Allocation) -> list[RuleOutcome]:
    """Compare the allocation, first, with every rule on the same portfolio, budget and regime.

    >>> from deniable.portfolio.allocation import allocate
    >>> best = allocate(Portfolio.from_sizes([2, 2], [1000, 10_000], form="paper"), 4)
    >>> [(o.rule, round(o.total_regret)) for o in compare_rules(best)]
    [('optimal', 5938), ('best budgets', 5612), ('equal split', 7375), ('zero', 14031),
     ('random arms', 11000)]
    """
    if not isinstance(allocation, Allocation):
        raise InvalidArgumentError("allocation", allocation, "an Allocation: allocate(...)")
    portfolio = allocation.portfolio
    optimal = RuleOutcome(
        "optimal",
        allocation.budgets_nano,
        allocation.strategies,
        allocation.regret,
        allocation.total_regret,
        allocation.spent_nano,
        True,
    )
    others = (rule(portfolio, allocation.firm_budget, allocation.regime) for rule in RULES.values())
    return [optimal, *others]


def _outcome(
    name: str, portfolio: Portfolio, curves: Curves, budgets: NanoArray, firm_budget: float
) -> RuleOutcome:
    index = np.arange(curves.experiment.size)
    regret = curves.regret(index, np.minimum(budgets[curves.experiment] / NANO, curves.high))
    order = np.lexsort((regret, curves.experiment))
    chosen = order[np.append(True, np.diff(curves.experiment[order]) != 0)]
    cost = portfolio.cost(budgets)
    return RuleOutcome(
        name,
        budgets,
        curves.strategies(chosen),
        regret[chosen],
        math.fsum(regret[chosen]),
        cost,
        cost <= firm_nano("firm_budget", firm_budget),
    )
