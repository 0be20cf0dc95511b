"""`plan_arms`: a budget for each arm, and what the difference between them costs; also as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from deniable import _validation as check
from deniable._extras import is_installed
from deniable._formatting import counted
from deniable._types import JsonObject
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import SEGMENTS
from deniable.planning.report import clock_words
from deniable.privacy.belief import highest_belief
from deniable.privacy.exploration import exhaustion_clock
from deniable.report.content import Section, section
from deniable.report.html import sections_html, text_html
from deniable.strategies.arm_budgets import ArmConstant, ArmDynamic
from deniable.theory.arm_specific import (
    arm_specific_constant_regret,
    arm_specific_excess,
    arm_specific_excess_linear,
    arm_specific_per_round_regret,
    heterogeneity_gap,
)
from deniable.theory.regret import constant_regret

if TYPE_CHECKING:
    from altair.typing import ChartType


@dataclass(frozen=True)
class ArmLine:
    """One arm: its budget, what seeing it can reveal, and how often it is shown."""

    arm: int
    budget: float
    belief: float
    weight: float
    shown_if_greedy: float
    shown_otherwise: float
    binds_at: int | None


@dataclass(frozen=True)
class ArmPlan:
    """The result of `plan_arms`.

    Attributes:
        budgets: one per shown arm, in nats.
        horizon: T.
        n_segments: J.
        prior: the tracker's prior belief.
        global_budget: the largest budget, which is the experiment's.
        exploration: share of random arms once every budget binds.
        arms: one line per arm.
        matrix: shown arm (row) by greedy arm (column).
        per_round: bound for the last visitor.
        per_round_excess: what unequal budgets add to it, compared with the largest one for every
            arm.
        per_round_excess_linear: the linear upper bound on that.
        gap: the heterogeneity gap.
        regret: the constant strategy's bound over all visitors.
        informative: whether that is below the number of visitors; if not, the bound is
            uninformative.
        symmetric_regret: the same with the largest budget for every arm.
        exploration_first_dynamic: share of random arms for the first visitor with the dynamic
            strategy.

    >>> round(plan_arms(arm_budgets=[0.5, 1, 2], horizon=10_000).exploration, 3)
    0.695
    """

    budgets: tuple[float, ...]
    horizon: int
    n_segments: int
    prior: float
    global_budget: float
    exploration: float
    arms: tuple[ArmLine, ...]
    matrix: tuple[tuple[float, ...], ...]
    per_round: float
    per_round_excess: float
    per_round_excess_linear: float
    gap: float
    regret: float
    informative: bool
    symmetric_regret: float
    exploration_first_dynamic: float

    def to_dict(self) -> JsonObject:
        """Return plain numbers, strings and lists for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        budgets = ", ".join(f"{budget:g}" for budget in self.budgets)
        return f"ArmPlan(budgets {budgets}, {self.horizon:,} visitors)"

    def chart(self) -> ChartType:
        """Chart the matrix, the beliefs and the schedule with Altair."""
        from deniable.charts.strategies import arm_plan_chart

        return arm_plan_chart(budgets=self.budgets, horizon=self.horizon, prior=self.prior)

    def _repr_html_(self) -> str:
        if not is_installed("altair"):
            return text_html(self)
        return sections_html(arm_plan_sections(self), self.chart())


def plan_arms(
    *, arm_budgets: Sequence[float], horizon: int, n_segments: int = SEGMENTS, prior: float = 0.2
) -> ArmPlan:
    """Plan an experiment whose arms have their own budgets.

    Args:
        arm_budgets: one per shown arm, all above 0.
        horizon: T.
        n_segments: J.
        prior: the tracker's prior belief.

    >>> planned = plan_arms(arm_budgets=[0.5, 1, 2], horizon=10_000)
    >>> [round(line.shown_if_greedy, 3) for line in planned.arms]
    [0.775, 0.482, 0.353]
    """
    budgets = check.arm_budgets("arm_budgets", arm_budgets)
    if (budgets == 0).any():
        raise InvalidArgumentError("arm_budgets", arm_budgets, "budgets above 0")
    visitors = check.whole("horizon", horizon, 1)
    segments = check.whole("n_segments", n_segments, 1)
    before = check.single("prior", check.probability("prior", prior))
    strategy = ArmConstant(budgets)
    final = strategy.mechanism(1)
    matrix = final.matrix
    largest = strategy.risk_cap
    regret = float(arm_specific_constant_regret(budgets, visitors, segments, form="summed"))
    return ArmPlan(
        budgets=tuple(map(float, budgets)),
        horizon=visitors,
        n_segments=segments,
        prior=before,
        global_budget=largest,
        exploration=final.exploration,
        arms=tuple(
            ArmLine(
                arm=arm + 1,
                budget=float(budget),
                belief=float(highest_belief(before, budget)),
                weight=float(final.weights[arm]),
                shown_if_greedy=float(matrix[arm, arm]),
                shown_otherwise=float(matrix[arm, arm - 1]),
                binds_at=_within(float(exhaustion_clock(len(budgets), budget)), visitors),
            )
            for arm, budget in enumerate(budgets)
        ),
        matrix=tuple(tuple(map(float, row)) for row in matrix),
        per_round=float(arm_specific_per_round_regret(budgets, visitors)),
        per_round_excess=float(arm_specific_excess(budgets, visitors)),
        per_round_excess_linear=float(arm_specific_excess_linear(budgets, visitors)),
        gap=float(heterogeneity_gap(budgets)),
        regret=regret,
        informative=regret < visitors,
        symmetric_regret=float(
            constant_regret(len(budgets), visitors, largest, segments, form="summed")
        ),
        exploration_first_dynamic=float(ArmDynamic(budgets).exploration(1)),
    )


def _within(clock: float, horizon: int) -> int | None:
    return int(clock) if clock <= horizon else None


# -- as text ---------------------------------------------------------------------------------------


def arm_plan_sections(plan: ArmPlan) -> list[Section]:
    """Return the arm-specific plan as text for people."""
    arms = [f"arm {line.arm}" for line in plan.arms]
    return [
        section(
            f"{len(arms)} arms with budgets {', '.join(f'{b:g}' for b in plan.budgets)}, "
            f"{plan.horizon:,} visitors, {counted(plan.n_segments, 'segment')}",
            f"Seeing an arm moves a tracker's odds by at most e^(that arm's budget); over all arms "
            f"the experiment's budget is {plan.global_budget:.4g}. {plan.exploration:.1%} of visitors "
            "see a random arm, drawn by the weights below: the more sensitive an arm, the more often.",
            ("", "budget", f"belief from {plan.prior:.3g}", "weight", "shown if greedy",
             "shown otherwise", "dynamic: binds at"),
            tuple(
                (f"arm {line.arm}", f"{line.budget:.4g}", f"{line.belief:.3f}", f"{line.weight:.3f}",
                 f"{line.shown_if_greedy:.3f}", f"{line.shown_otherwise:.3f}",
                 clock_words(line.binds_at))
                for line in plan.arms
            ),
        ),
        section(
            "Shown arm (row) by greedy arm (column)",
            "",
            ("shown", *(f"greedy {arm}" for arm in arms)),
            tuple(
                (arm, *(f"{p:.3f}" for p in row))
                for arm, row in zip(arms, plan.matrix, strict=True)
            ),
        ),
        section(
            "What unequal budgets cost",
            f"{arm_cost_words(plan)} For the last visitor the bound is {plan.per_round:.4f}, of which "
            f"{plan.per_round_excess:.4f} is due to the difference (at most "
            f"{plan.per_round_excess_linear:.4f} by the linear bound; heterogeneity gap "
            f"{plan.gap:.4f}). The dynamic strategy starts with "
            f"{plan.exploration_first_dynamic:.0%} random arms and must run on one clock for the "
            "whole experiment: on clocks of their own, segments could break the smaller budgets.",
        ),
    ]  # fmt: skip


def arm_cost_words(plan: ArmPlan) -> str:
    """Explain what unequal budgets cost, compared with the largest for every arm."""
    more = plan.regret / plan.symmetric_regret - 1
    words = (
        f"Against budget {plan.global_budget:.4g} for every arm, the constant strategy's regret bound "
        f"rises by {more:.1%}"
    )
    if plan.informative:
        return f"{words}, from {plan.symmetric_regret:,.0f} to {plan.regret:,.0f} clicks."
    return f"{words}; it is above the {plan.horizon:,} visitors and says nothing about clicks."
