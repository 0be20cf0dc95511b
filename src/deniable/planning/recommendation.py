"""Recommends a budget and a strategy, by expected results or by the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from deniable.expectations.prior import Prior
from deniable.planning.expectation import NEAR_LOST, TOP, Choice, choose
from deniable.planning.experiment import PlannedExperiment
from deniable.privacy.belief import budget_for_belief, highest_belief
from deniable.strategies import STRATEGIES
from deniable.strategies.base import Strategy
from deniable.strategies.rules import Grade


@dataclass(frozen=True)
class Recommendation:
    """A recommended budget and strategy.

    Attributes:
        strategy: name of the strategy.
        grade: grade of its promise.
        budget: in nats, rounded to three digits; everything else is computed at the rounded budget.
        belief: the strongest belief possible with the plan's prior.
        regret: the bound.
        informative: whether the bound is below the number of visitors.
        reason: why this budget, as text.
        lost: expected lost clicks, if something is known about click rates.
    """

    strategy: str
    grade: Grade
    budget: float
    belief: float
    regret: float
    informative: bool
    reason: str
    lost: float | None = None


@lru_cache(maxsize=512)
def recommend(
    planned: PlannedExperiment,
    names: tuple[str, ...],
    prior: float,
    max_belief: float | None,
    rate_prior: Prior | None,
) -> Recommendation:
    """Recommend a strategy with its advised budget, or the largest budget that the belief allows.

    If something is known about click rates, the result is the smallest budget near the least
    expected loss, within what the belief allows. Otherwise the bounds decide: every strategy
    advises a budget; those whose bound is the smallest of all at their own budget qualify, and the
    one that needs the least is chosen. Its budget is rounded up, to achieve what it was advised
    for. If a largest belief is given and requires less, it decides: what it allows is rounded down, and
    spent with the strategy that has the smallest bound.
    """
    names = tuple(
        name for name in names if STRATEGIES[name].fits(planned.n_arms, planned.n_segments)
    )
    allows = math.inf if max_belief is None else float(budget_for_belief(prior, max_belief))
    limit = allows if math.isfinite(allows) else None
    if rate_prior is not None:
        allowed = TOP if limit is None else rounded(limit, up=False)
        choice = choose(planned, rate_prior, names, allowed)
        if choice is not None:
            return _expected_advice(planned, prior, max_belief, rate_prior, choice)
    advised = {name: _advised(planned, STRATEGIES[name]) for name in names}
    worthy = [name for name in names if name == _leader(planned, names, advised[name])]
    leader = min(
        worthy or names,
        key=lambda name: (advised[name], float(planned.regret(STRATEGIES[name], advised[name]))),
    )
    budget = advised[leader]
    if not worthy:
        leader = _leader(planned, names, budget)
    regret = float(planned.regret(STRATEGIES[leader], budget))
    if budget == 0 and planned.n_segments > 1:
        reason = (
            f"{planned.horizon:,} visitors are too few for {planned.n_arms} arms: by the bounds, no "
            f"budget buys more than learning costs. At budget 0: {STRATEGIES[leader].at_zero}."
        )
    elif regret >= planned.horizon and planned.n_segments > 1:
        reason = (
            "At this size the regret bounds say nothing: all are above the "
            f"{planned.horizon:,} visitors. This budget is where they begin to be "
            "balanced; simulate before you rely on it."
        )
    else:
        reason = STRATEGIES[leader].advice(planned.n_segments)
    if limit is not None and limit < budget:
        budget = rounded(limit, up=False)
        leader = _leader(planned, names, budget)
        reason = (
            f"It is the largest budget that keeps a tracker at {100 * prior:.3g}% from believing more "
            f"than {100 * (max_belief or 0):.3g}%. The {leader} strategy has the smallest bound there."
        )
    regret = float(planned.regret(STRATEGIES[leader], budget))
    return Recommendation(
        strategy=leader,
        grade=STRATEGIES[leader].grade,
        budget=budget,
        belief=float(highest_belief(prior, budget)),
        regret=regret,
        informative=regret < planned.horizon,
        reason=reason,
    )


def _expected_advice(
    planned: PlannedExperiment,
    prior: float,
    max_belief: float | None,
    rate_prior: Prior,
    choice: Choice,
) -> Recommendation:
    """Explain the recommendation by expected loss."""
    regret = float(planned.regret(STRATEGIES[choice.strategy], choice.budget))
    near = f"(within {NEAR_LOST:.0%} of what perfect information gains over random arms)"
    if planned.n_segments == 1 and choice.budget == 0:
        reason = STRATEGIES[choice.strategy].advice(1)
    elif choice.budget == 0:
        reason = f"No budget is needed: at 0 the expected loss is near the least {near}."
    else:
        allowed = "" if max_belief is None else " that your limit on beliefs allows"
        reason = f"It is the smallest budget whose expected loss is near the least{allowed} {near}."
    if not planned.expected(rate_prior, choice.strategy, choice.budget).on_surface:
        reason += " It was chosen by the edge of the surface, which does not cover this experiment."
    return Recommendation(
        strategy=choice.strategy,
        grade=STRATEGIES[choice.strategy].grade,
        budget=choice.budget,
        belief=float(highest_belief(prior, choice.budget)),
        regret=regret,
        informative=regret < planned.horizon,
        reason=reason,
        lost=choice.lost,
    )


def _advised(planned: PlannedExperiment, strategy: type[Strategy]) -> float:
    budget = strategy.advised_budget(
        planned.n_arms, planned.horizon, planned.n_segments, shares=planned.shares
    )
    return rounded(float(budget), up=True)


def _leader(planned: PlannedExperiment, names: Sequence[str], budget: float) -> str:
    """Return the strategy with the smallest bound at this budget.

    Bounds above the number of visitors are equally uninformative; then the strategy for which
    privacy costs least is chosen.
    """

    def cost(name: str) -> tuple[float, float]:
        terms = STRATEGIES[name].regret_terms(
            planned.n_arms, planned.horizon, budget, planned.n_segments, shares=planned.shares
        )
        return min(float(terms.total), planned.horizon), float(terms.exploration)

    return min(names, key=cost)


def rounded(budget: float, *, up: bool) -> float:
    """Round a budget to three digits, which people can type.

    >>> rounded(1.0986122886681098, up=True), rounded(1.0986, up=False), rounded(2.0, up=True)
    (1.1, 1.09, 2.0)
    """
    exact = Decimal(repr(budget))
    if not exact:
        return 0.0
    digit = Decimal(1).scaleb(exact.adjusted() - 2)
    return float(exact.quantize(digit, rounding=ROUND_CEILING if up else ROUND_FLOOR))
