"""A plan in words: sections that the command line and notebooks render in their own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from deniable.planning.arm_plan import ArmPlan
from deniable.planning.outlook import Outlook
from deniable.planning.plan import Plan


@dataclass(frozen=True)
class Section:
    """A heading, a paragraph, and a table that may be empty."""

    title: str
    text: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def plan_sections(plan: Plan) -> list[Section]:
    """The plan, told to a person."""
    named = "budget" if plan.chosen else "recommended budget"
    return [
        Section(
            f"{plan.n_arms} arms, {plan.horizon:,} visitors, "
            f"{_plural(plan.n_segments, 'segment')}, {named} {plan.budget:.4g}",
            _belief_words(plan),
        ),
        _strategies(plan),
        *([] if plan.chosen else [_grid(plan)]),
        Section(
            f"Recommended: budget {plan.recommendation.budget:.4g}, "
            f"{plan.recommendation.strategy} strategy",
            f"It is {plan.recommendation.reason} A tracker at {plan.prior:.3g} could reach "
            f"{plan.recommendation.belief:.3f}; the regret bound is {plan.recommendation.regret:,.0f}.",
        ),
    ]


def arm_plan_sections(plan: ArmPlan) -> list[Section]:
    """The arm-specific plan, told to a person."""
    arms = [f"arm {line.arm}" for line in plan.arms]
    more = plan.regret / plan.symmetric_regret - 1
    return [
        Section(
            f"{len(arms)} arms with budgets {', '.join(f'{b:g}' for b in plan.budgets)}, "
            f"{plan.horizon:,} visitors, {_plural(plan.n_segments, 'segment')}",
            f"Seeing an arm moves a tracker's odds by at most e^(that arm's budget); over all arms "
            f"the experiment's budget is {plan.global_budget:.4g}. {plan.exploration:.1%} of visitors "
            "see a random arm, drawn by the weights below: the more sensitive an arm, the more often.",
            ("", "budget", f"belief from {plan.prior:.3g}", "weight", "shown if greedy",
             "shown otherwise", "dynamic: binds at"),
            tuple(
                (f"arm {line.arm}", f"{line.budget:.4g}", f"{line.belief:.3f}", f"{line.weight:.3f}",
                 f"{line.shown_if_greedy:.3f}", f"{line.shown_otherwise:.3f}", _clock(line.binds_at))
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
            f"Against budget {plan.global_budget:.4g} for every arm, the constant strategy's regret "
            f"bound rises from {plan.symmetric_regret:,.0f} to {plan.regret:,.0f} ({more:+.1%}). For "
            f"the last visitor the bound is {plan.per_round:.4f}, of which {plan.per_round_excess:.4f} "
            f"is due to the difference (at most {plan.per_round_excess_linear:.4f} by the linear bound; "
            f"heterogeneity gap {plan.gap:.4f}). The dynamic strategy starts with "
            f"{plan.exploration_first_dynamic:.0%} random arms and must run on one clock for the whole "
            "experiment: on clocks of their own, segments could break the smaller budgets.",
        ),
    ]  # fmt: skip


def sections_html(sections: Sequence[Section], chart: Any) -> str:
    """The sections and the chart as one HTML fragment, static and self-contained."""
    import vl_convert

    parts = []
    for section in sections:
        parts.append(f"<h4>{escape(section.title)}</h4>")
        if section.text:
            parts.append(f"<p>{escape(section.text)}</p>")
        if section.rows:
            head = "".join(f"<th>{escape(cell)}</th>" for cell in section.header)
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
                for row in section.rows
            )
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "\n".join([*parts, vl_convert.vegalite_to_svg(chart.to_dict())])


def _belief_words(plan: Plan) -> str:
    return (
        f"A tracker that believes a visitor is in some segment with probability {plan.prior:.3g} "
        f"could, after seeing the shown arm, believe anything from {plan.lowest_belief:.3f} to "
        f"{plan.highest_belief:.3f}, and nothing beyond: its odds move by at most a factor of "
        f"e^{plan.budget:.4g}. What it learns from clicks comes on top and is not promised."
    )


def _strategies(plan: Plan) -> Section:
    both = (plan.constant, plan.dynamic)
    table = (
        ("random arms, first visitor", *(f"{o.exploration_first:.1%}" for o in both)),
        ("random arms, last visitor", *(f"{o.exploration_last:.1%}" for o in both)),
        ("budget binds at a segment's visitor", *(_clock(o.binds_at) for o in both)),
        ("regret bound", *(_regret(o, plan.horizon) for o in both)),
        ("  learning on the schedule", *(f"{o.learning:,.0f}" for o in both)),
        ("  random arms once the budget binds", *(f"{o.exploration:,.0f}" for o in both)),
        ("  wrong greedy arms once it binds", *(f"{o.estimation:,.0f}" for o in both)),
        ("elasticity of regret", *(f"{o.elasticity + 0.0:+.3f}  {o.reading}" for o in both)),
        ("one more nat saves, at this rate", *(f"{o.gain + 0.0:,.0f} clicks" for o in both)),
        ("best budget", *(f"{o.best_budget:.4g}" for o in both)),
        ("regret bound there", *(f"{o.best_regret:,.0f}" for o in both)),
    )
    better = min(both, key=lambda o: o.regret)
    text = (
        f"At this budget the {better.strategy} strategy has the smaller bound. Bounds hold for any "
        "click rates: real losses are far smaller, their comparison is what counts."
    )
    return Section("What it costs", text, ("", "constant", "dynamic"), table)


def _grid(plan: Plan) -> Section:
    least = min(min(line.regret_constant, line.regret_dynamic) for line in plan.table)
    rows = tuple(
        (
            f"{line.budget:.4g}",
            f"{line.belief:.3f}",
            f"{line.exploration_constant:.1%}",
            f"{line.exploration_last_dynamic:.1%}",
            f"{line.regret_constant:,.0f}",
            f"{line.regret_dynamic:,.0f}",
            f"{min(line.regret_constant, line.regret_dynamic) / least - 1:.0%}" if least else "0%",
        )
        for line in plan.table
    )
    header = (
        "budget",
        f"belief from {plan.prior:.3g}",
        "random arms, constant",
        "dynamic, at the end",
        "regret bound, constant",
        "dynamic",
        "above the best",
    )
    return Section("Budgets", "", header, rows)


def _regret(outlook: Outlook, horizon: int) -> str:
    return f"{outlook.regret:,.0f} ({outlook.regret / horizon:.1%} of visitors)"


def _clock(clock: int | None) -> str:
    return "never" if clock is None else f"{clock:,}"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
