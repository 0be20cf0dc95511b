"""A plan with budgets by arm as text, in sections as in `report.py`."""

from __future__ import annotations

from deniable.planning.arm_plan import ArmPlan
from deniable.planning.report import Section, clock_words, plural


def arm_plan_sections(plan: ArmPlan) -> list[Section]:
    """Return the arm-specific plan as text for people."""
    arms = [f"arm {line.arm}" for line in plan.arms]
    return [
        Section(
            f"{len(arms)} arms with budgets {', '.join(f'{b:g}' for b in plan.budgets)}, "
            f"{plan.horizon:,} visitors, {plural(plan.n_segments, 'segment')}",
            f"Seeing an arm moves a watcher's odds by at most e^(that arm's budget); over all arms "
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
        Section(
            "Shown arm (row) by greedy arm (column)",
            "",
            ("shown", *(f"greedy {arm}" for arm in arms)),
            tuple(
                (arm, *(f"{p:.3f}" for p in row))
                for arm, row in zip(arms, plan.matrix, strict=True)
            ),
        ),
        Section(
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
