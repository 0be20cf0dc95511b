"""`plan`: the privacy budget of one experiment: what it means, what it costs, which to choose.

The command line, notebooks and pages all display this object; none of them computes its own plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from deniable import _validation as check
from deniable._extras import is_installed
from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import HETEROGENEITY, LIFT, Prior
from deniable.planning.expectation import TOP, Expectation, expectation
from deniable.planning.experiment import PlannedExperiment
from deniable.planning.ladder import Ladder, ladder
from deniable.planning.recommendation import Recommendation, recommend
from deniable.privacy.belief import budget_for_belief, highest_belief, lowest_belief
from deniable.strategies import STRATEGIES
from deniable.strategies.base import Reading, Strategy
from deniable.strategies.rules import Grade

if TYPE_CHECKING:
    from altair.typing import ChartType

UNLIMITED = 3.0
"""Budget of the ladder's private steps where neither a budget nor a limit on beliefs is given."""

GRID = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0)
"""Budgets in the table of every plan, in nats."""


@dataclass(frozen=True)
class StrategySummary:
    """One strategy at one budget.

    Attributes:
        strategy: name of the strategy.
        title: name for people.
        description: what it does.
        grade: grade of its promise, "across time" or "given the time".
        at_zero: what all visitors are shown at budget 0.
        bound_note: a caveat about the bound.
        servable: whether the service can make its tables for this many arms and segments.
        drawn_by_lot: smallest share of visitors whose arm does not depend on their segment.
        budget: the limit on every visitor's risk, in nats.
        exploration_first: share of random arms for a segment's first visitor; None if it depends on
            what was learned.
        exploration_last: the same for the last visitor of the largest segment.
        binds_at: the segment's visitor from which the budget binds; None if that is after the last.
        learning: part of the regret bound on the schedule, before the budget binds.
        exploration: part from random arms once it binds.
        estimation: part from wrong greedy arms once it binds.
        regret: the whole bound.
        informative: whether the bound is below the number of visitors; if not, it is uninformative.
        elasticity: percentage change of the bound per percent of budget.
        gain: clicks by which the bound falls per additional nat of budget.
        reading: classification of the budget.
        reading_words: the same as a sentence.
        best_budget: the budget with the lowest bound; if the bound always falls, the one at which
            privacy costs as much as learning.
        best_regret: the bound there.
    """

    strategy: str
    title: str
    description: str
    grade: Grade
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
class BudgetLine:
    """One budget in a plan's table.

    Attributes:
        budget: in nats.
        belief: the strongest belief that a tracker could have.
        exploration: share of random arms for the last visitor, by strategy; None if it depends on
            what was learned.
        regret: the bound, by strategy.
    """

    budget: float
    belief: float
    exploration: Mapping[str, float | None]
    regret: Mapping[str, float]


@dataclass(frozen=True)
class Plan:
    """The result of `plan`: numbers by name, `chart()`, and `_repr_html_` for notebooks.

    Attributes:
        n_arms: K.
        horizon: T, visitors.
        n_segments: J.
        shares: shares of the visitors by segment; None if the segments are of equal size.
        prior: the tracker's prior belief.
        max_belief: the strongest belief that a tracker may arrive at, or None.
        budget: the budget considered; the recommended one by default.
        chosen: whether the budget was given.
        lowest_belief: the weakest belief possible after one shown arm.
        highest_belief: the strongest belief possible.
        strategies: every strategy at this budget, by name.
        recommendation: the recommended budget.
        table: a grid of budgets.
        expected: expected lost clicks, given prior knowledge; None without a base rate.
        ladder: what each step towards personalising brings and risks, within the limit on beliefs, or
            at the given budget; None without a base rate. Read it first.

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
    expected: Expectation | None = None
    ladder: Ladder | None = None

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        size = f"{self.n_arms} arms, {self.horizon:,} visitors, {self.n_segments} segments"
        return f"Plan({size}, budget {self.budget:g})"

    def chart(self) -> ChartType:
        """Chart expected losses, belief, schedules, bounds and elasticities with Altair."""
        from deniable.charts.planning import plan_chart

        return plan_chart(self)

    def _repr_html_(self) -> str:
        from deniable.planning.report import plan_sections
        from deniable.report.html import sections_html, text_html

        if not is_installed("altair"):
            return text_html(self)
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
    budgets: Sequence[float] = GRID,
    base_rate: float | None = None,
    lift: float = LIFT,
    heterogeneity: float = HETEROGENEITY,
    per_day: float | None = None,
    experiments: int = 1,
    unobserved: float = 0.0,
    contexts: int = 1,
    by_context: float = 0.0,
) -> Plan:
    """Plan the privacy budget of one experiment.

    Args:
        n_arms: K, 2 or more.
        horizon: T, the planned number of visitors.
        n_segments: J, the groups that must not be distinguishable; by default the number of shares,
            or 2.
        shares: shares of the visitors by segment, summing to 1; equal by default.
        prior: what a tracker believes about a visitor's segment before seeing the arm.
        budget: gamma, in nats; the recommended one by default.
        max_belief: the strongest belief that a tracker may arrive at; limits the recommendation.
        budgets: the budgets in the plan's table.
        base_rate: the usual click rate. With it, the plan contains expected results and bases its
            recommendation on them.
        lift: how much arms usually differ, relative to the base rate (standard deviation).
        heterogeneity: how much of that variance differs by segment, from 0 to 1.
        per_day: visitors per day.
        experiments: number of experiments that a visitor meets, this one included. A label serves
            all of them with the budget, or they divide it.
        unobserved: share of the visits of which no third party learns.
        contexts: C, the number of values of what trackers know anyway, such as the device; 1 for none.
        by_context: how much of the variance of arms differs by context, besides `heterogeneity`.

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
    planned = PlannedExperiment.of(n_arms, horizon, n_segments, shares)
    if max_belief is not None:
        max_belief = check.single("max_belief", check.probability("max_belief", max_belief))
        if max_belief < before:
            raise InvalidArgumentError("max_belief", max_belief, f"the prior, {before:g}, or more")
    given = None if budget is None else check.single("budget", check.nonnegative("budget", budget))
    marks = check.nonnegative("budgets", budgets).ravel().tolist()
    names = tuple(STRATEGIES)  # part of the cache key, because more may be registered
    rate_prior = None if base_rate is None else Prior(base_rate, lift, heterogeneity)
    advice = recommend(planned, names, before, max_belief, rate_prior)
    cap = advice.budget if given is None else given
    strategies = {name: _summary(STRATEGIES[name], planned, cap) for name in names}
    best = {summary.best_budget for summary in strategies.values()}
    return Plan(
        n_arms=planned.n_arms,
        horizon=planned.horizon,
        n_segments=planned.n_segments,
        shares=planned.shares,
        prior=before,
        max_belief=max_belief,
        budget=cap,
        chosen=given is not None,
        lowest_belief=float(lowest_belief(before, cap)),
        highest_belief=float(highest_belief(before, cap)),
        strategies=strategies,
        recommendation=advice,
        table=_table(planned, before, sorted({*marks, cap, *best})),
        expected=None
        if rate_prior is None
        else expectation(
            planned,
            rate_prior,
            cap,
            belief_before=before,
            budgets=sorted(marks),
            per_day=per_day,
        ),
        ladder=None
        if rate_prior is None
        else ladder(
            planned,
            rate_prior,
            _limit(given, before, max_belief),
            belief_before=before,
            experiments=experiments,
            contexts=contexts,
            by_context=by_context,
            unobserved=unobserved,
        ),
    )


def _limit(budget: float | None, prior: float, max_belief: float | None) -> float:
    """Return the budget at which the ladder's private steps are compared."""
    if budget is not None:
        return budget
    if max_belief is None:
        return UNLIMITED
    return min(float(budget_for_belief(prior, max_belief)), TOP)


def _summary(
    strategy: type[Strategy], planned: PlannedExperiment, budget: float
) -> StrategySummary:
    n_arms, horizon, n_segments, shares = (
        planned.n_arms,
        planned.horizon,
        planned.n_segments,
        planned.shares,
    )
    spent = strategy(budget)
    binds = spent.binds_at(n_arms)
    terms = strategy.regret_terms(n_arms, horizon, budget, n_segments, shares=shares)
    gain = float(strategy.gain(n_arms, horizon, budget, n_segments, shares=shares))
    slope = float(strategy.elasticity(n_arms, horizon, budget, n_segments, shares=shares))
    best, best_regret = _best(planned, strategy.name, strategy)
    regret = float(terms.total)
    reading = strategy.reading(
        regret=regret, gain=gain, budget=budget, best_budget=best, best_regret=best_regret
    )
    return StrategySummary(
        strategy=strategy.name,
        title=strategy.title,
        description=strategy.description,
        grade=strategy.grade,
        at_zero=strategy.at_zero,
        bound_note=strategy.bound_note,
        servable=bool(strategy.fits(n_arms, n_segments)),
        drawn_by_lot=strategy.drawn_by_lot(n_arms, n_segments, budget),
        budget=budget,
        exploration_first=_explored(spent, 1, n_arms),
        exploration_last=_explored(spent, planned.largest, n_arms),
        binds_at=None if binds is None or binds > planned.largest else int(binds),
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


def _explored(spent: Strategy, clock: int, n_arms: int) -> float | None:
    share = spent.exploration(clock, n_arms)
    return None if share is None else float(share)


@lru_cache(maxsize=512)
def _best(planned: PlannedExperiment, name: str, strategy: type[Strategy]) -> tuple[float, float]:
    """Return the best budget of a strategy, and its bound there."""
    best = float(
        strategy.best_budget(
            planned.n_arms, planned.horizon, planned.n_segments, shares=planned.shares
        )
    )
    return best, float(planned.regret(strategy, best))


def _table(
    planned: PlannedExperiment, prior: float, budgets: Sequence[float]
) -> tuple[BudgetLine, ...]:
    bounds = {
        name: np.atleast_1d(planned.regret(strategy, np.asarray(budgets)))
        for name, strategy in STRATEGIES.items()
    }
    return tuple(
        BudgetLine(
            budget=budget,
            belief=float(highest_belief(prior, budget)),
            exploration={
                name: _explored(strategy(budget), planned.largest, planned.n_arms)
                for name, strategy in STRATEGIES.items()
            },
            regret={name: float(bounds[name][row]) for name in STRATEGIES},
        )
        for row, budget in enumerate(budgets)
    )
