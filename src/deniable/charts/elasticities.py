"""The privacy elasticity of regret over the budget, for several experiment sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from deniable.charts.data import rows, values
from deniable.charts.theme import ACCENT, INK, ordered_scale
from deniable.theory.best_budget import best_constant_budget, best_dynamic_budget
from deniable.theory.elasticity import constant_elasticity, dynamic_elasticity

FORMULAS = {
    "constant": (constant_elasticity, best_constant_budget),
    "dynamic": (dynamic_elasticity, best_dynamic_budget),
}


def elasticity_panels(
    strategy: Literal["constant", "dynamic"],
    *,
    arms: Sequence[int] = (2, 5, 20),
    horizons: Sequence[int] = (10_000, 100_000, 1_000_000),
    largest_budget: float = 7,
    width: int = 220,
    height: int = 220,
) -> Any:
    """One panel a number of arms, one line a number of visitors, a point at each best budget.

    The constant elasticity crosses zero there; the dynamic one ends there, because beyond it the
    cap never binds and the elasticity is 0.
    """
    elasticity, best = FORMULAS[strategy]
    names = [f"{horizon:,}" for horizon in horizons]
    lines, points = [], []
    for n_arms in arms:
        for name, horizon in zip(names, horizons, strict=True):
            end = float(best(n_arms, horizon))
            top = largest_budget if strategy == "constant" else end
            budget = np.linspace(0, top, 201)[:-1]
            panel = f"{n_arms} arms"
            height_of = elasticity(n_arms, horizon, budget)
            lines += rows(budget=budget, elasticity=height_of, visitors=name, panel=panel)
            last = float(elasticity(n_arms, horizon, end if strategy == "constant" else budget[-1]))
            points += rows(budget=[end], elasticity=[last], visitors=name, panel=panel)
    colours, dashes = ordered_scale(names)
    x = alt.X("budget:Q", title="privacy budget")
    y = alt.Y("elasticity:Q", title="elasticity of regret")
    colour = alt.Color(
        "visitors:N", sort=names, scale=alt.Scale(domain=names, range=colours), title="visitors"
    )
    dash = alt.StrokeDash(
        "visitors:N", sort=names, scale=alt.Scale(domain=names, range=dashes), title="visitors"
    )

    def of_panel(records: list[dict[str, Any]], n_arms: int) -> Any:
        return alt.Chart(values(r for r in records if r["panel"] == f"{n_arms} arms"))

    return alt.hconcat(
        *(
            (
                alt.Chart(values(rows(y=[0]))).mark_rule(color=INK, opacity=0.5).encode(y="y:Q")
                + of_panel(lines, n_arms)
                .mark_line()
                .encode(x=x, y=y, color=colour, strokeDash=dash)
                + of_panel(points, n_arms)
                .mark_point(filled=True, size=50, color=ACCENT, opacity=1)
                .encode(x=x, y=y)
            ).properties(title=f"{n_arms} arms", width=width, height=height)
            for n_arms in arms
        )
    ).resolve_scale(y="shared")
