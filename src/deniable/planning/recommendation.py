"""Which budget to take, which strategy to spend it with, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from deniable.planning.outlook import BEST, NEAR_BEST, TERMS, StrategyName
from deniable.privacy.belief import budget_for_belief, highest_belief

EXCESS = 0.05
"""A bound this much above the best is as good: the last percents cost the most privacy."""


@dataclass(frozen=True)
class Recommendation:
    """A budget and a strategy.

    Attributes:
        strategy: which to spend it with.
        budget: in nats.
        belief: the most a tracker with the plan's prior could believe.
        regret: the bound.
        reason: in words.
    """

    strategy: StrategyName
    budget: float
    belief: float
    regret: float
    reason: str


def recommend(
    *, n_arms: int, horizon: int, n_segments: int, prior: float, max_belief: float | None
) -> Recommendation:
    """The smallest budget within 5% of the best bound there is, or the largest the belief allows.

    The best bound is the smaller of the two strategies' bounds at their best budgets. Where a
    largest belief is given and asks for less, it decides, and the better strategy at that budget.
    """
    sizes = (n_arms, horizon)
    names = get_args(StrategyName)
    best = {name: float(BEST[name](*sizes, n_segments)) for name in names}
    leader = min(names, key=lambda s: float(TERMS[s](*sizes, best[s], n_segments).total))
    budget = float(NEAR_BEST[leader](*sizes, EXCESS, n_segments))
    if best[leader] == 0:
        reason = (
            f"{horizon:,} visitors are too few for {n_arms} arms: by the bound, no budget teaches "
            "more than random arms do."
        )
    else:
        reason = (
            f"the smallest budget whose regret bound is within {EXCESS:.0%} of the best one there "
            f"is (the {leader} strategy's); more budget would cost privacy and buy almost nothing."
        )
    cap = None if max_belief is None else float(budget_for_belief(prior, max_belief))
    if cap is not None and cap < budget:
        budget = cap
        leader = min(names, key=lambda s: float(TERMS[s](*sizes, cap, n_segments).total))
        reason = (
            f"the largest budget that keeps a tracker with prior {prior:.3g} at or below "
            f"{max_belief:.3g}; the {leader} strategy has the smaller bound there."
        )
    return Recommendation(
        strategy=leader,
        budget=budget,
        belief=float(highest_belief(prior, budget)),
        regret=float(TERMS[leader](*sizes, budget, n_segments).total),
        reason=reason,
    )
