"""The paper's two experiments: budget flows to the larger marginal gain, or all of it to one."""

from __future__ import annotations

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable._validation import FloatArray
from deniable.charts.theme import ACCENT, INK, rows, themed, values
from deniable.portfolio.allocation import allocate
from deniable.portfolio.illustration import TWO_EXPERIMENTS
from deniable.theory.best_budget import best_dynamic_budget
from deniable.theory.elasticity import dynamic_gain

_COLOURS = alt.Scale(domain=["A", "B"], range=["#CC79A7", "#0072B2"])
_STAGES = ("equal split", "half-way", "optimal")


def two_experiments(firm_budgets: tuple[float, ...] = (4.0, 1.5)) -> ChartType:
    """Chart one row per firm budget, from an equal split to the optimum, dynamic strategy only."""
    panels = []
    for firm in firm_budgets:
        best = allocate(TWO_EXPERIMENTS, firm, regime="dynamic")
        even = np.full(2, firm / 2)
        for stage, part in zip(_STAGES, (0.0, 0.5, 1.0), strict=True):
            budgets = even + part * (best.budgets - even)
            then = even + min(part + 0.5, 1.0) * (best.budgets - even)
            panels.append(_panel(f"Firm budget {firm:g}: {stage}", budgets, then))
    return themed(alt.concat(*panels, columns=len(_STAGES)).resolve_scale(x="shared", y="shared"))


def _panel(title: str, budgets: FloatArray, then: FloatArray) -> ChartType:
    lines, points, arrows = [], [], []
    for i, name in enumerate(TWO_EXPERIMENTS.ids):
        visitors = int(TWO_EXPERIMENTS.visitors[i])
        end = float(best_dynamic_budget(2, visitors))
        grid = np.linspace(0, end, 240)[:-1]
        lines += rows(budget=grid, gain=dynamic_gain(2, visitors, grid), experiment=name)
        lines += rows(budget=[end, end + 1e-6], gain=[np.nan, 0], experiment=name)
        here = min(float(budgets[i]), end - 1e-9)
        gain = float(dynamic_gain(2, visitors, here))
        points += rows(budget=[here], gain=[gain], experiment=name)
        if abs(then[i] - budgets[i]) > 1e-6:
            arrows += rows(budget=[here], to=[float(then[i])], gain=[gain], experiment=name)
    x = alt.X("budget:Q", title="privacy budget", scale=alt.Scale(domain=[0, 3]))
    y = alt.Y("gain:Q", title="marginal learning gain", scale=alt.Scale(domain=[0, 5000]))
    colour = alt.Color("experiment:N", scale=_COLOURS, title="experiment")
    line = (
        alt.Chart(values(r for r in lines if r["gain"] is not None))
        .mark_line()
        .encode(x=x, y=y, color=colour)
    )
    dot = alt.Chart(values(points)).mark_point(filled=True, size=80, opacity=1)
    layers = [line, dot.encode(x="budget:Q", y="gain:Q", color=colour)]
    if arrows:
        move = alt.Chart(values(arrows))
        layers.append(
            move.mark_rule(color=ACCENT, strokeWidth=2).encode(x="budget:Q", x2="to:Q", y="gain:Q")
        )
        layers.append(
            move.mark_point(shape="triangle-right", filled=True, color=ACCENT, size=70, opacity=1)
            .transform_calculate(turn="datum.to > datum.budget ? 0 : 180")
            .encode(x="to:Q", y="gain:Q", angle=alt.Angle("turn:Q", scale=None))
        )
    place = {"dy": -13, "fontSize": 11}
    words = alt.Chart(values(points)).encode(
        x="budget:Q", y="gain:Q", text=alt.Text("budget:Q", format=".2f")
    )
    layers += [words.mark_text(**place, stroke="white", strokeWidth=4)]
    layers += [words.mark_text(**place, color=INK)]
    return alt.layer(*layers).properties(title=title, width=230, height=170)
