"""Charts of a plan with budgets by arm."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable.charts.planning import HEIGHT, WIDTH
from deniable.charts.strategies import belief_bounds
from deniable.charts.theme import INK, ordered_scale, powers_of_ten, rows, themed, values
from deniable.strategies.arm_budgets import ArmConstantStrategy, ArmDynamicStrategy


def arm_plan_chart(*, budgets: Sequence[float], horizon: int, prior: float) -> ChartType:
    """Chart shown arm by greedy arm as a heat map, beliefs by arm, and random arms over time."""
    names = [f"arm {i + 1}" for i in range(len(budgets))]
    matrix = ArmConstantStrategy(list(budgets)).mechanism(1).matrix
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
    risks = ArmDynamicStrategy(list(budgets)).arm_risks(clock)
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
        heat + text, schedule, shown.properties(title="What a watcher could believe")
    )
    return themed(chart.resolve_scale(color="independent", strokeDash="independent"))
