"""`plan`: one experiment's privacy budget, planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deniable import _validation as check
from deniable.planning.outlook import Outlook, outlook
from deniable.planning.recommendation import Recommendation, recommend
from deniable.privacy.belief import highest_belief, lowest_belief

GRID = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
"""Budgets that a plan without one looks at, in nats."""


@dataclass(frozen=True)
class BudgetLine:
    """One budget of a plan's table: what it means and both bounds."""

    budget: float
    belief: float
    exploration_constant: float
    exploration_last_dynamic: float
    regret_constant: float
    regret_dynamic: float


@dataclass(frozen=True)
class Plan:
    """What `plan` returns: numbers by name, `chart()` for a picture, `_repr_html_` for notebooks.

    Attributes:
        n_arms: K.
        horizon: T, visitors.
        n_segments: J.
        prior: the tracker's belief before.
        budget: the budget looked at; the recommended one where none was given.
        chosen: whether that budget was given.
        lowest_belief: the least a tracker could believe after one shown arm.
        highest_belief: the most it could.
        constant: the constant strategy at this budget.
        dynamic: the dynamic strategy at this budget.
        recommendation: the budget we would take.
        table: a grid of budgets.

    >>> planned = plan(n_arms=2, horizon=10_000, budget=1)
    >>> round(planned.highest_belief, 3), planned.dynamic.binds_at
    (0.405, 51)
    """

    n_arms: int
    horizon: int
    n_segments: int
    prior: float
    budget: float
    chosen: bool
    lowest_belief: float
    highest_belief: float
    constant: Outlook
    dynamic: Outlook
    recommendation: Recommendation
    table: tuple[BudgetLine, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, words and lists: ready for JSON."""
        return asdict(self)

    def chart(self) -> Any:
        """Belief, schedules, regret and elasticity, as an Altair chart."""
        from deniable.charts.planning import plan_chart
        from deniable.charts.theme import themed

        return themed(
            plan_chart(
                n_arms=self.n_arms,
                horizon=self.horizon,
                n_segments=self.n_segments,
                prior=self.prior,
                budget=self.budget,
            )
        )

    def _repr_html_(self) -> str:
        from deniable.planning.report import plan_sections, sections_html

        return sections_html(plan_sections(self), self.chart())


def plan(
    *,
    n_arms: int,
    horizon: int,
    n_segments: int = 1,
    prior: float = 0.2,
    budget: float | None = None,
    max_belief: float | None = None,
    budgets: Sequence[float] = GRID,
) -> Plan:
    """Plan the privacy budget of one experiment.

    Args:
        n_arms: K, 2 or more.
        horizon: T, the visitors planned for.
        n_segments: J.
        prior: what a tracker believes about a visitor's segment before it sees the arm.
        budget: gamma, in nats; the recommended one where it is not given.
        max_belief: the most a tracker may come to believe; it limits the recommendation.
        budgets: the grid of the plan's table.

    >>> plan(n_arms=2, horizon=10_000, budget=1).constant.reading
    'too random'
    >>> round(plan(n_arms=2, horizon=10_000).recommendation.budget, 3)
    2.672
    """
    arms = check.whole("n_arms", n_arms, 2)
    visitors = check.whole("horizon", horizon, 1)
    segments = check.whole("n_segments", n_segments, 1)
    before = check.single("prior", check.probability("prior", prior))
    if max_belief is not None:
        check.probability("max_belief", max_belief)
    advice = recommend(
        n_arms=arms, horizon=visitors, n_segments=segments, prior=before, max_belief=max_belief
    )
    cap = advice.budget if budget is None else _one_budget(budget)
    sizes = {"n_arms": arms, "horizon": visitors, "n_segments": segments}
    constant, dynamic = (outlook(name, **sizes, budget=cap) for name in ("constant", "dynamic"))
    marks = {
        *check.nonnegative("budgets", budgets).ravel().tolist(),
        cap,
        constant.best_budget,
        dynamic.best_budget,
    }
    return Plan(
        **sizes,
        prior=before,
        budget=cap,
        chosen=budget is not None,
        lowest_belief=float(lowest_belief(before, cap)),
        highest_belief=float(highest_belief(before, cap)),
        constant=constant,
        dynamic=dynamic,
        recommendation=advice,
        table=tuple(_line(mark, before, sizes) for mark in sorted(marks)),
    )


def _one_budget(budget: float) -> float:
    return check.single("budget", check.nonnegative("budget", budget))


def _line(budget: float, prior: float, sizes: dict[str, int]) -> BudgetLine:
    constant, dynamic = (outlook(name, **sizes, budget=budget) for name in ("constant", "dynamic"))
    return BudgetLine(
        budget=budget,
        belief=float(highest_belief(prior, budget)),
        exploration_constant=constant.exploration_last,
        exploration_last_dynamic=dynamic.exploration_last,
        regret_constant=constant.regret,
        regret_dynamic=dynamic.regret,
    )
