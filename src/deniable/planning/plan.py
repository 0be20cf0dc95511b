"""`plan`: the privacy budget of one experiment. What it means, what it costs, which to take.

The command line, notebooks and pages all show this object; none of them computes a plan of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from deniable import _validation as check
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import HETEROGENEITY, SEGMENTS, Prior
from deniable.expectations.prior import LIFT as USUAL_LIFT
from deniable.planning.expectation import (
    NEAR_LOST,
    TOP,
    Asked,
    Choice,
    Expectation,
    choose,
    expectation,
)
from deniable.planning.trace import (
    LIFT,
    RATE,
    TraceCost,
    TracePromise,
    trace_costs,
    trace_promise,
)
from deniable.policies.base import checked_trace_budget
from deniable.privacy.belief import budget_for_belief, highest_belief, lowest_belief
from deniable.strategies import STRATEGIES
from deniable.strategies.base import Grade, Reading, Strategy

GRID = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
"""Budgets in the table of every plan, in nats."""


@dataclass(frozen=True)
class StrategySummary:
    """One strategy at one budget.

    Attributes:
        strategy: its name.
        title: what people call it.
        description: what it does.
        grade: of its promise, "across time" or "given the time".
        across_time_cost: what the grade "across time" would cost, where it is an option.
        at_zero: what everybody is shown at budget 0.
        bound_note: what a reader of the bound must know.
        servable: whether the service makes its tables for so many arms and segments.
        drawn_by_lot: least share of visitors whose arm does not depend on their segment.
        budget: the cap on every visitor's risk, in nats.
        exploration_first: share of random arms for a segment's first visitor; None where it depends
            on what was learned.
        exploration_last: the same for the last visitor of the largest segment.
        binds_at: the segment's visitor from whom the budget binds; None where that is after the last.
        learning: part of the regret bound on the schedule, before the budget binds.
        exploration: part from random arms once it binds.
        estimation: part from wrong greedy arms once it binds.
        regret: the whole bound.
        informative: whether the bound is below the number of visitors; if not, it says nothing.
        elasticity: percent by which the bound changes per percent of budget.
        gain: clicks that the bound falls by per nat of further budget.
        reading: what that says about the budget.
        reading_words: the same as a sentence.
        best_budget: the budget with the lowest bound; where it falls forever, the one at which privacy
            costs what learning costs.
        best_regret: the bound there.
    """

    strategy: str
    title: str
    description: str
    grade: Grade
    across_time_cost: str
    at_zero: str
    bound_note: str
    servable: bool
    drawn_by_lot: float
    budget: float
    exploration_first: float | None
    exploration_last: float | None
    binds_at: int | None
    learning: float
    exploration: float
    estimation: float
    regret: float
    informative: bool
    elasticity: float
    gain: float
    reading: Reading
    reading_words: str
    best_budget: float
    best_regret: float


@dataclass(frozen=True)
class Recommendation:
    """A budget and the strategy to spend it with.

    Attributes:
        strategy: which.
        grade: of its promise.
        budget: in nats, rounded to three digits; everything else is computed at the rounded budget.
        belief: the most a tracker with the plan's prior could believe, from the trace too.
        regret: the bound.
        informative: whether the bound is below the number of visitors.
        reason: why this budget, in words.
        lost: expected clicks lost, where something is known about click rates.
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
class BudgetLine:
    """One budget of a plan's table.

    Attributes:
        budget: in nats.
        belief: the most a tracker could believe.
        exploration: share of random arms for the last visitor, by strategy; None where it depends on
            what was learned.
        regret: the bound, by strategy.
    """

    budget: float
    belief: float
    exploration: Mapping[str, float | None]
    regret: Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """What `plan` returns: numbers by name, `chart()` for a picture, `_repr_html_` for notebooks.

    Attributes:
        n_arms: K.
        horizon: T, visitors.
        n_segments: J.
        shares: of the visitors by segment; None where the segments are of one size.
        prior: the tracker's belief before.
        max_belief: the most that a tracker may come to believe, or None.
        budget: the budget looked at; the recommended one where none was given.
        chosen: whether that budget was given.
        lowest_belief: the least a tracker could believe after one shown arm.
        highest_belief: the most it could.
        strategies: every strategy at this budget, by name.
        recommendation: the budget we would take.
        table: a grid of budgets.
        trace: the promise with a trace budget; None where there is none.
        expected: clicks that will really be lost, as far as is known; None where no base rate was
            given.

    >>> planned = plan(n_arms=2, horizon=10_000, n_segments=1, budget=1)
    >>> round(planned.highest_belief, 3), planned.strategies["dynamic"].binds_at
    (0.405, 51)
    """

    n_arms: int
    horizon: int
    n_segments: int
    shares: tuple[float, ...] | None
    prior: float
    max_belief: float | None
    budget: float
    chosen: bool
    lowest_belief: float
    highest_belief: float
    strategies: Mapping[str, StrategySummary]
    recommendation: Recommendation
    table: tuple[BudgetLine, ...]
    trace: TracePromise | None = None
    expected: Expectation | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, words and lists: ready for JSON."""
        return asdict(self)

    def trace_costs(self, *, rate: float = RATE, lift: float = LIFT) -> tuple[TraceCost, ...]:
        """What the trace budget costs each strategy, simulated; nothing where there is none.

        Args:
            rate: the base click rate.
            lift: standard deviation of the arms' rates, as a part of the base rate.
        """
        if self.trace is None:
            return ()
        return trace_costs(
            n_arms=self.n_arms,
            horizon=self.horizon,
            budget=self.budget,
            trace_budget=self.trace.trace_budget,
            n_segments=self.n_segments,
            shares=self.shares,
            rate=rate,
            lift=lift,
        )

    def chart(self) -> Any:
        """Clicks lost as expected, belief, schedules, bounds and elasticities, as an Altair chart."""
        from deniable.charts.planning import plan_chart

        return plan_chart(self)

    def _repr_html_(self) -> str:
        from deniable.planning.report import plan_sections, sections_html

        return sections_html(plan_sections(self), self.chart())


def plan(
    *,
    n_arms: int,
    horizon: int,
    n_segments: int | None = None,
    shares: Sequence[float] | None = None,
    prior: float = 0.2,
    budget: float | None = None,
    max_belief: float | None = None,
    trace_budget: float | None = None,
    budgets: Sequence[float] = GRID,
    base_rate: float | None = None,
    lift: float = USUAL_LIFT,
    heterogeneity: float = HETEROGENEITY,
    per_day: float | None = None,
    simulate: bool = True,
) -> Plan:
    """Plan the privacy budget of one experiment.

    Args:
        n_arms: K, 2 or more.
        horizon: T, the visitors planned for.
        n_segments: J, the groups that must not be told apart; as many as there are shares, or 2.
        shares: of the visitors by segment, adding up to 1; equal where not given.
        prior: what a tracker believes about a visitor's segment before it sees the arm.
        budget: gamma, in nats; the recommended one where it is not given.
        max_belief: the most a tracker may come to believe; it limits the recommendation.
        trace_budget: the cap on what later tables tell about a visitor; None promises nothing there.
        budgets: the grid of the plan's table.
        base_rate: the usual click rate. With it, the plan says what to expect, and recommends by it.
        lift: how much arms usually differ, relative to the base rate (standard deviation).
        heterogeneity: how much of that differs by segment, from 0 to 1.
        per_day: visitors a day.
        simulate: whether to simulate where the expectation was not made beforehand (segments of
            different sizes, a trace budget); if not, `expected.note` says what is left out.

    >>> plan(n_arms=2, horizon=10_000, n_segments=1, budget=1).strategies["constant"].reading
    'too random'
    >>> advice = plan(n_arms=8, horizon=10**6, n_segments=2).recommendation
    >>> advice.strategy, advice.budget, advice.grade
    ('joint', 2.14, 'given the time')

    With one segment nothing can leak.

    >>> plan(n_arms=2, horizon=10_000, n_segments=1).recommendation.budget
    0.0
    """
    before = check.single("prior", check.probability("prior", prior))
    sizes = _Sizes.of(n_arms, horizon, n_segments, shares)
    if max_belief is not None:
        max_belief = check.single("max_belief", check.probability("max_belief", max_belief))
    given = None if budget is None else check.single("budget", check.nonnegative("budget", budget))
    marks = check.nonnegative("budgets", budgets).ravel().tolist()
    names = tuple(STRATEGIES)  # a part of the cache's key: the table may grow
    trace = None if trace_budget is None else checked_trace_budget(trace_budget)
    asked = None if base_rate is None else sizes.asked(Prior(base_rate, lift, heterogeneity), trace)
    advice = _recommend(sizes, names, before, max_belief, trace or 0.0, asked)
    cap = advice.budget if given is None else given
    strategies = {name: _summary(STRATEGIES[name], sizes, cap) for name in names}
    best = {summary.best_budget for summary in strategies.values()}
    return Plan(
        n_arms=sizes.n_arms,
        horizon=sizes.horizon,
        n_segments=sizes.n_segments,
        shares=sizes.shares,
        prior=before,
        max_belief=max_belief,
        budget=cap,
        chosen=given is not None,
        lowest_belief=float(lowest_belief(before, cap)),
        highest_belief=float(highest_belief(before, cap)),
        strategies=strategies,
        recommendation=advice,
        table=_table(sizes, before, sorted({*marks, cap, *best})),
        trace=None if trace is None else trace_promise(before, cap, trace),
        expected=None
        if asked is None
        else expectation(
            asked,
            cap,
            belief_before=before,
            budgets=sorted(marks),
            per_day=per_day,
            simulate=simulate,
        ),
    )


@dataclass(frozen=True)
class _Sizes:
    """An experiment, checked; hashable, so that what depends on it alone is computed once."""

    n_arms: int
    horizon: int
    n_segments: int
    shares: tuple[float, ...] | None

    @classmethod
    def of(
        cls, n_arms: int, horizon: int, n_segments: int | None, shares: Sequence[float] | None
    ) -> _Sizes:
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

    def asked(self, prior: Prior, trace: float | None) -> Asked:
        """The experiment with what is known about it."""
        size = (self.n_arms, self.horizon, self.n_segments, self.shares)
        return Asked(*size, prior, trace or 0.0)

    def regret(self, strategy: type[Strategy], budget: Any) -> Any:
        """The strategy's bound."""
        return strategy.regret(
            self.n_arms, self.horizon, budget, self.n_segments, shares=self.shares
        )


def _summary(strategy: type[Strategy], sizes: _Sizes, budget: float) -> StrategySummary:
    n_arms, horizon, n_segments, shares = (
        sizes.n_arms,
        sizes.horizon,
        sizes.n_segments,
        sizes.shares,
    )
    spent = strategy(n_arms, budget)
    binds = spent.binds_at
    terms = strategy.regret_terms(n_arms, horizon, budget, n_segments, shares=shares)
    gain = float(strategy.gain(n_arms, horizon, budget, n_segments, shares=shares))
    slope = float(strategy.elasticity(n_arms, horizon, budget, n_segments, shares=shares))
    best, best_regret = _best(sizes, strategy.name, strategy)
    regret = float(terms.total)
    reading = strategy.reading(
        regret=regret, gain=gain, budget=budget, best_budget=best, best_regret=best_regret
    )
    return StrategySummary(
        strategy=strategy.name,
        title=strategy.title,
        description=strategy.description,
        grade=strategy.grade,
        across_time_cost=strategy.across_time_cost,
        at_zero=strategy.at_zero,
        bound_note=strategy.bound_note,
        servable=bool(strategy.fits(n_arms, n_segments)),
        drawn_by_lot=strategy.drawn_by_lot(n_arms, n_segments, budget),
        budget=budget,
        exploration_first=_explored(spent, 1),
        exploration_last=_explored(spent, sizes.largest),
        binds_at=None if binds is None or binds > sizes.largest else int(binds),
        learning=float(terms.learning),
        exploration=float(terms.exploration),
        estimation=float(terms.estimation),
        regret=regret,
        informative=regret < horizon,
        elasticity=slope,
        gain=gain,
        reading=reading,
        reading_words=strategy.reading_words(reading, slope),
        best_budget=best,
        best_regret=best_regret,
    )


def _explored(spent: Strategy, clock: int) -> float | None:
    share = spent.exploration(clock)
    return None if share is None else float(share)


@lru_cache(maxsize=512)
def _best(sizes: _Sizes, name: str, strategy: type[Strategy]) -> tuple[float, float]:
    """The best budget of a strategy, and its bound there."""
    best = float(
        strategy.best_budget(sizes.n_arms, sizes.horizon, sizes.n_segments, shares=sizes.shares)
    )
    return best, float(sizes.regret(strategy, best))


def _table(sizes: _Sizes, prior: float, budgets: Sequence[float]) -> tuple[BudgetLine, ...]:
    bounds = {
        name: np.atleast_1d(sizes.regret(strategy, np.asarray(budgets)))
        for name, strategy in STRATEGIES.items()
    }
    return tuple(
        BudgetLine(
            budget=budget,
            belief=float(highest_belief(prior, budget)),
            exploration={
                name: _explored(strategy(sizes.n_arms, budget), sizes.largest)
                for name, strategy in STRATEGIES.items()
            },
            regret={name: float(bounds[name][row]) for name in STRATEGIES},
        )
        for row, budget in enumerate(budgets)
    )


@lru_cache(maxsize=512)
def _recommend(
    sizes: _Sizes,
    names: tuple[str, ...],
    prior: float,
    max_belief: float | None,
    trace: float,
    asked: Asked | None,
) -> Recommendation:
    """A strategy with its own advised budget, or the largest budget that the belief allows.

    Where something is known about click rates, it is the smallest budget near the least expected loss,
    within what the belief allows. Else the bounds decide: every strategy advises a budget; those whose
    bound is the smallest of all at their own are worth taking, and of these the one that needs the
    least. Its budget is rounded up, to be sure to get what it was advised for. Where a largest belief
    is given and asks for less, it decides: what it allows, less the trace budget, is rounded down, and
    spent with the strategy that has the smallest bound.
    """
    names = tuple(name for name in names if STRATEGIES[name].fits(sizes.n_arms, sizes.n_segments))
    limit = None if max_belief is None else float(budget_for_belief(prior, max_belief))
    if asked is not None:
        allowed = TOP if limit is None else rounded(max(0.0, limit - trace), up=False)
        choice = choose(asked, names, allowed)
        if choice is not None:
            return _expected_advice(sizes, prior, max_belief, trace, asked, choice)
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
    if limit is not None and limit - trace < budget:
        budget = rounded(max(0.0, limit - trace), up=False)
        leader = _leader(sizes, names, budget)
        reason = (
            f"It is the largest budget that keeps a tracker at {100 * prior:.3g}% from believing more "
            f"than {100 * (max_belief or 0):.3g}%{', trace budget included' if trace else ''}. "
            f"The {leader} strategy has the smallest bound there."
        )
        if limit < trace:
            reason = _trace_too_large(prior, max_belief or 0, trace)
    regret = float(sizes.regret(STRATEGIES[leader], budget))
    return Recommendation(
        strategy=leader,
        grade=STRATEGIES[leader].grade,
        budget=budget,
        belief=float(highest_belief(prior, budget + trace)),
        regret=regret,
        informative=regret < sizes.horizon,
        reason=reason,
    )


def _expected_advice(
    sizes: _Sizes,
    prior: float,
    max_belief: float | None,
    trace: float,
    asked: Asked,
    choice: Choice,
) -> Recommendation:
    """The recommendation by expected loss, in words."""
    regret = float(sizes.regret(STRATEGIES[choice.strategy], choice.budget))
    near = f"within {NEAR_LOST:.0%} of what perfect information gains over random arms"
    if max_belief is not None and float(budget_for_belief(prior, max_belief)) < trace:
        reason = _trace_too_large(prior, max_belief, trace)
    elif sizes.n_segments == 1 and choice.budget == 0:
        reason = STRATEGIES[choice.strategy].advice(1)
    elif choice.budget == 0:
        reason = (
            f"No budget is needed: {STRATEGIES[choice.strategy].at_zero} loses {near} of the least."
        )
    else:
        reason = f"It is the smallest budget whose expected loss is {near} of the least"
        reason += "." if max_belief is None else " that your limit on beliefs allows."
    if not asked.usual:
        reason += " It was chosen as if segments were of one size and there were no trace budget."
    return Recommendation(
        strategy=choice.strategy,
        grade=STRATEGIES[choice.strategy].grade,
        budget=choice.budget,
        belief=float(highest_belief(prior, choice.budget + trace)),
        regret=regret,
        informative=regret < sizes.horizon,
        reason=reason,
        lost=choice.lost,
    )


def _trace_too_large(prior: float, max_belief: float, trace: float) -> str:
    return (
        f"The trace budget of {trace:.4g} alone lets a tracker at {100 * prior:.3g}% believe "
        f"more than {100 * max_belief:.3g}%: take a smaller one."
    )


def _advised(sizes: _Sizes, strategy: type[Strategy]) -> float:
    budget = strategy.advised_budget(
        sizes.n_arms, sizes.horizon, sizes.n_segments, shares=sizes.shares
    )
    return rounded(float(budget), up=True)


def _leader(sizes: _Sizes, names: Sequence[str], budget: float) -> str:
    """The strategy with the smallest bound at this budget.

    Bounds above the number of visitors all say the same, nothing; then it is the one for which privacy
    costs least.
    """

    def cost(name: str) -> tuple[float, float]:
        terms = STRATEGIES[name].regret_terms(
            sizes.n_arms, sizes.horizon, budget, sizes.n_segments, shares=sizes.shares
        )
        return min(float(terms.total), sizes.horizon), float(terms.exploration)

    return min(names, key=cost)


def rounded(budget: float, *, up: bool) -> float:
    """A budget to three digits, which people can type.

    >>> rounded(1.0986122886681098, up=True), rounded(1.0986, up=False), rounded(2.0, up=True)
    (1.1, 1.09, 2.0)
    """
    exact = Decimal(repr(budget))
    if not exact:
        return 0.0
    digit = Decimal(1).scaleb(exact.adjusted() - 2)
    return float(exact.quantize(digit, rounding=ROUND_CEILING if up else ROUND_FLOOR))
