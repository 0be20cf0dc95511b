"""What a shown arm can tell, by budget; and a plan with budgets by arm."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable.charts.planning import HEIGHT, WIDTH
from deniable.charts.theme import (
    ACCENT,
    INK,
    ordered_scale,
    powers_of_ten,
    rows,
    themed,
    values,
)
from deniable.privacy.belief import belief_curve, highest_belief
from deniable.strategies.arm_budgets import ArmConstant, ArmDynamic

PERCENT = alt.Axis(format=".0%")


def belief_bounds(
    budgets: Sequence[float] = (0.05, 0.5, 1, 3, 5),
    *,
    marked: Sequence[tuple[float, float]] = ((0.2, 0.05), (0.2, 1)),
    width: int = 420,
    height: int = 320,
) -> ChartType:
    """Chart the lowest and highest posterior for each prior, one pair of curves per budget.

    Args:
        budgets: small budgets are dark.
        marked: (prior, budget) pairs shown as red points, as in the paper's figure.
        width: width of the plot.
        height: height of the plot.
    """
    names = [f"{budget:g}" for budget in budgets]
    colours, dashes = ordered_scale(names)
    curves = []
    for name, budget in zip(names, budgets, strict=True):
        prior, low, high = belief_curve(budget)
        curves += rows(prior=prior, belief=low, budget=name, bound="low")
        curves += rows(prior=prior, belief=high, budget=name, bound="high")
    lines = (
        alt.Chart(values(curves))
        .mark_line()
        .encode(
            x=alt.X("prior:Q", title="prior belief of the tracker", axis=PERCENT),
            y=alt.Y("belief:Q", title="belief after one shown arm", axis=PERCENT),
            color=alt.Color(
                "budget:N", sort=names, scale=alt.Scale(domain=names, range=colours), title="budget"
            ),
            strokeDash=alt.StrokeDash(
                "budget:N", sort=names, scale=alt.Scale(domain=names, range=dashes), title="budget"
            ),
            detail=alt.Detail("bound:N"),
            order=alt.Order("prior:Q"),
        )
    )
    diagonal = (
        alt.Chart(values(rows(prior=[0, 1], belief=[0, 1])))
        .mark_line(color=INK, strokeWidth=1, opacity=0.5)
        .encode(x=alt.X("prior:Q"), y=alt.Y("belief:Q"))
    )
    return (diagonal + lines + _points(marked)).properties(width=width, height=height)


def _points(marked: Sequence[tuple[float, float]]) -> ChartType:
    points = [
        {"prior": p, "belief": float(b), "text": f"{p:.0%} → {float(b):.1%}"}
        for p, b in ((p, highest_belief(p, risk)) for p, risk in marked)
    ]
    base = alt.Chart(values(points)).encode(x=alt.X("prior:Q"), y=alt.Y("belief:Q"))
    dots = base.mark_point(filled=True, size=70, color=ACCENT, opacity=1)
    words = base.encode(text=alt.Text("text:N"))
    place = {"align": "left", "dx": 10, "dy": 10, "fontSize": 11}
    halo = words.mark_text(**place, stroke="white", strokeWidth=5)
    return halo + words.mark_text(**place, color=ACCENT, fontWeight="bold") + dots


def arm_plan_chart(*, budgets: Sequence[float], horizon: int, prior: float) -> ChartType:
    """Chart shown arm by greedy arm as a heat map, beliefs by arm, and random arms over time."""
    names = [f"arm {i + 1}" for i in range(len(budgets))]
    matrix = ArmConstant(list(budgets)).mechanism(1).matrix
    cells = [
        {"shown": names[j], "greedy": names[i], "probability": float(matrix[j, i])}
        for j in range(len(names))
        for i in range(len(names))
    ]
    base = alt.Chart(values(cells), title="Probability of the shown arm", width=260, height=HEIGHT)
    base = base.encode(
        x=alt.X("greedy:N", sort=names, title="greedy arm", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("shown:N", sort=names, title="shown arm"),
    )
    heat = base.mark_rect().encode(
        color=alt.Color(
            "probability:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=None
        )
    )
    text = base.mark_text(fontSize=12).encode(
        text=alt.Text("probability:Q", format=".3f"),
        color=alt.condition("datum.probability > 0.55", alt.value("white"), alt.value(INK)),
    )
    colours, dashes = ordered_scale(names)
    clock = np.unique(np.geomspace(1, max(horizon, 2), 200).round())
    risks = ArmDynamic(list(budgets)).arm_risks(clock)
    spent = [
        row for i, name in enumerate(names) for row in rows(clock=clock, risk=risks[:, i], arm=name)
    ]
    schedule = (
        alt.Chart(
            values(spent), title="Risk of each arm, dynamic strategy", width=WIDTH, height=HEIGHT
        )
        .mark_line()
        .encode(
            x=alt.X(
                "clock:Q",
                title="visitor of the experiment",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~s", values=powers_of_ten(horizon)),
            ),
            y=alt.Y("risk:Q", title="privacy risk"),
            color=alt.Color("arm:N", sort=names, scale=alt.Scale(domain=names, range=colours)),
            strokeDash=alt.StrokeDash(
                "arm:N", sort=names, scale=alt.Scale(domain=names, range=dashes)
            ),
        )
    )
    shown = belief_bounds(
        sorted(set(budgets)),
        marked=[(prior, b) for b in (min(budgets), max(budgets))],
        width=WIDTH,
        height=HEIGHT,
    )
    chart = alt.hconcat(
        heat + text, schedule, shown.properties(title="What a tracker could believe")
    )
    return themed(chart.resolve_scale(color="independent", strokeDash="independent"))
