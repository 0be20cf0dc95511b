"""One strategy at one budget: what its visitors see and what its regret bound says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from deniable.strategies.constant import ConstantStrategy
from deniable.strategies.dynamic import DynamicStrategy
from deniable.theory import best_budget, elasticity, regret

StrategyName: TypeAlias = Literal["constant", "dynamic"]
Reading: TypeAlias = Literal["too random", "too greedy", "balanced", "cap never binds"]

STRATEGIES: dict[str, type[ConstantStrategy] | type[DynamicStrategy]] = {
    "constant": ConstantStrategy,
    "dynamic": DynamicStrategy,
}
TERMS = {"constant": regret.constant_regret_terms, "dynamic": regret.dynamic_regret_terms}
ELASTICITIES = {
    "constant": elasticity.constant_elasticity,
    "dynamic": elasticity.dynamic_elasticity,
}
GAINS = {"constant": elasticity.constant_gain, "dynamic": elasticity.dynamic_gain}
BEST = {"constant": best_budget.best_constant_budget, "dynamic": best_budget.best_dynamic_budget}
NEAR_BEST = {
    "constant": best_budget.constant_budget_for_regret,
    "dynamic": best_budget.dynamic_budget_for_regret,
}
"""The formulas of each strategy, by its name."""

BALANCED = 1e-3
"""An elasticity this close to zero says neither too random nor too greedy."""


@dataclass(frozen=True)
class Outlook:
    """A strategy at a budget.

    Attributes:
        strategy: "constant" or "dynamic".
        budget: the cap on every visitor's risk, in nats.
        exploration_first: share of random arms for a segment's first visitor.
        exploration_last: the same for the last visitor, were all in one segment.
        binds_at: the segment's visitor from whom the budget binds; None where that is after the last.
        learning: part of the regret bound on the schedule, before the budget binds.
        exploration: part from random arms once it binds.
        estimation: part from wrong greedy arms once it binds.
        regret: the whole bound.
        elasticity: percent of regret per percent of budget.
        gain: clicks saved per nat of further budget.
        reading: what the elasticity says.
        best_budget: the budget with the smallest bound.
        best_regret: the bound there.
    """

    strategy: StrategyName
    budget: float
    exploration_first: float
    exploration_last: float
    binds_at: int | None
    learning: float
    exploration: float
    estimation: float
    regret: float
    elasticity: float
    gain: float
    reading: Reading
    best_budget: float
    best_regret: float


def outlook(
    strategy: StrategyName, *, n_arms: int, horizon: int, n_segments: int, budget: float
) -> Outlook:
    """Everything the formulas say about this strategy at this budget."""
    spent = STRATEGIES[strategy](n_arms, budget)
    terms = TERMS[strategy](n_arms, horizon, budget, n_segments)
    slope = float(ELASTICITIES[strategy](n_arms, horizon, budget, n_segments))
    best = float(BEST[strategy](n_arms, horizon, n_segments))
    binds = math.isfinite(spent.binds_at) and spent.binds_at <= horizon
    return Outlook(
        strategy=strategy,
        budget=budget,
        exploration_first=float(spent.exploration(1)),
        exploration_last=float(spent.exploration(horizon)),
        binds_at=int(spent.binds_at) if binds else None,
        learning=float(terms.learning),
        exploration=float(terms.exploration),
        estimation=float(terms.estimation),
        regret=float(terms.total),
        elasticity=slope,
        gain=float(GAINS[strategy](n_arms, horizon, budget, n_segments)),
        reading=_reading(strategy, slope, budget, best),
        best_budget=best,
        best_regret=float(TERMS[strategy](n_arms, horizon, best, n_segments).total),
    )


def _reading(strategy: StrategyName, slope: float, budget: float, best: float) -> Reading:
    if strategy == "dynamic" and budget >= best:
        return "cap never binds"
    if abs(slope) < BALANCED and math.isclose(budget, best, rel_tol=1e-2):
        return "balanced"
    return "too random" if budget < best else "too greedy"
