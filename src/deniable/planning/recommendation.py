"""Recommends a budget and a strategy, by expected results or by the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import Floats
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import SEGMENTS, Prior
from deniable.planning.asked import Asked
from deniable.planning.expectation import NEAR_LOST, TOP, Choice, choose
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


@dataclass(frozen=True)
class Sizes:
    """A validated experiment; hashable, for caching."""

    n_arms: int
    horizon: int
    n_segments: int
    shares: tuple[float, ...] | None

    @classmethod
    def of(
        cls, n_arms: int, horizon: int, n_segments: int | None, shares: Sequence[float] | None
    ) -> Sizes:
        """Validate the arguments, or raise InvalidArgumentError."""
        arms = check.whole("n_arms", n_arms, 2)
        visitors = check.whole("horizon", horizon, 1)
        segments = None if n_segments is None else check.whole("n_segments", n_segments, 1)
        if shares is None:
            return cls(arms, visitors, SEGMENTS if segments is None else segments, None)
        parts = check.probability("shares", shares)
        if parts.ndim != 1 or not np.isclose(parts.sum(), 1, rtol=0, atol=1e-9):
            raise InvalidArgumentError("shares", shares, "a share for each segment, adding up to 1")
        if segments not in (None, parts.size):
            raise InvalidArgumentError("shares", shares, f"{segments} shares, one for each segment")
        return cls(arms, visitors, parts.size, tuple(map(float, parts)))

    @property
    def largest(self) -> int:
        """Visitors of the largest segment, at least one."""
        share = 1 / self.n_segments if self.shares is None else max(self.shares)
        return max(1, int(self.horizon * share))

    def asked(self, prior: Prior) -> Asked:
        """Combine the experiment with prior knowledge."""
        return Asked(self.n_arms, self.horizon, self.n_segments, self.shares, prior)

    def regret(self, strategy: type[Strategy], budget: ArrayLike) -> Floats:
        """Return the strategy's bound."""
        return strategy.regret(
            self.n_arms, self.horizon, budget, self.n_segments, shares=self.shares
        )


@lru_cache(maxsize=512)
def recommend(
    sizes: Sizes,
    names: tuple[str, ...],
    prior: float,
    max_belief: float | None,
    asked: Asked | None,
) -> Recommendation:
    """Recommend a strategy with its advised budget, or the largest budget that the belief allows.

    If something is known about click rates, the result is the smallest budget near the least
    expected loss, within what the belief allows. Otherwise the bounds decide: every strategy
    advises a budget; those whose bound is the smallest of all at their own budget qualify, and the
    one that needs the least is chosen. Its budget is rounded up, to achieve what it was advised
    for. If a largest belief is given and requires less, it decides: what it allows is rounded down, and
    spent with the strategy that has the smallest bound.
    """
    names = tuple(name for name in names if STRATEGIES[name].fits(sizes.n_arms, sizes.n_segments))
    limit = None if max_belief is None else float(budget_for_belief(prior, max_belief))
    if asked is not None:
        allowed = TOP if limit is None else rounded(limit, up=False)
        choice = choose(asked, names, allowed)
        if choice is not None:
            return _expected_advice(sizes, prior, max_belief, asked, choice)
    advised = {name: _advised(sizes, STRATEGIES[name]) for name in names}
    worthy = [name for name in names if name == _leader(sizes, names, advised[name])]
    leader = min(
        worthy or names,
        key=lambda name: (advised[name], float(sizes.regret(STRATEGIES[name], advised[name]))),
    )
    budget = advised[leader]
    if not worthy:
        leader = _leader(sizes, names, budget)
    regret = float(sizes.regret(STRATEGIES[leader], budget))
    if budget == 0 and sizes.n_segments > 1:
        reason = (
            f"{sizes.horizon:,} visitors are too few for {sizes.n_arms} arms: by the bounds, no budget "
            f"buys more than learning costs. At budget 0: {STRATEGIES[leader].at_zero}."
        )
    elif regret >= sizes.horizon and sizes.n_segments > 1:
        reason = (
            f"At this size the regret bounds say nothing: all are above the {sizes.horizon:,} visitors. "
            "This budget is where they begin to be balanced; simulate before you rely on it."
        )
    else:
        reason = STRATEGIES[leader].advice(sizes.n_segments)
    if limit is not None and limit < budget:
        budget = rounded(limit, up=False)
        leader = _leader(sizes, names, budget)
        reason = (
            f"It is the largest budget that keeps a tracker at {100 * prior:.3g}% from believing more "
            f"than {100 * (max_belief or 0):.3g}%. The {leader} strategy has the smallest bound there."
        )
    regret = float(sizes.regret(STRATEGIES[leader], budget))
    return Recommendation(
        strategy=leader,
        grade=STRATEGIES[leader].grade,
        budget=budget,
        belief=float(highest_belief(prior, budget)),
        regret=regret,
        informative=regret < sizes.horizon,
        reason=reason,
    )


def _expected_advice(
    sizes: Sizes,
    prior: float,
    max_belief: float | None,
    asked: Asked,
    choice: Choice,
) -> Recommendation:
    """Explain the recommendation by expected loss."""
    regret = float(sizes.regret(STRATEGIES[choice.strategy], choice.budget))
    near = f"(within {NEAR_LOST:.0%} of what perfect information gains over random arms)"
    if sizes.n_segments == 1 and choice.budget == 0:
        reason = STRATEGIES[choice.strategy].advice(1)
    elif choice.budget == 0:
        reason = f"No budget is needed: at 0 the expected loss is near the least {near}."
    else:
        allowed = "" if max_belief is None else " that your limit on beliefs allows"
        reason = f"It is the smallest budget whose expected loss is near the least{allowed} {near}."
    if not asked.usual:
        reason += " It was chosen as if segments were of one size."
    elif not asked.look_up(choice.strategy, choice.budget).on_surface:
        reason += " It was chosen by the edge of the surface, which does not cover this experiment."
    return Recommendation(
        strategy=choice.strategy,
        grade=STRATEGIES[choice.strategy].grade,
        budget=choice.budget,
        belief=float(highest_belief(prior, choice.budget)),
        regret=regret,
        informative=regret < sizes.horizon,
        reason=reason,
        lost=choice.lost,
    )


def _advised(sizes: Sizes, strategy: type[Strategy]) -> float:
    budget = strategy.advised_budget(
        sizes.n_arms, sizes.horizon, sizes.n_segments, shares=sizes.shares
    )
    return rounded(float(budget), up=True)


def _leader(sizes: Sizes, names: Sequence[str], budget: float) -> str:
    """Return the strategy with the smallest bound at this budget.

    Bounds above the number of visitors are equally uninformative; then the strategy for which
    privacy costs least is chosen.
    """

    def cost(name: str) -> tuple[float, float]:
        terms = STRATEGIES[name].regret_terms(
            sizes.n_arms, sizes.horizon, budget, sizes.n_segments, shares=sizes.shares
        )
        return min(float(terms.total), sizes.horizon), float(terms.exploration)

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
