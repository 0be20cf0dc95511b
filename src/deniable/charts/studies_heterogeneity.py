"""A budget for each arm, as pictures: the matrix of shown arms, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from deniable.charts.data import powers_of_ten, values
from deniable.charts.theme import ACCENT, INK, themed

if TYPE_CHECKING:
    import polars as pl

WIDTH, HEIGHT = 270, 210


def arm_matrix(matrix: pl.DataFrame) -> Any:
    """Columns shown, greedy, probability: one square a pair, darker for likelier."""
    size = 74 * matrix["shown"].n_unique()
    base = alt.Chart(values(matrix.to_dicts()), width=size, height=size).encode(
        x=alt.X("greedy:O", title="greedy arm", axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("shown:O", title="shown arm"),
    )
    shade = alt.Color("probability:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=None)
    ink = alt.condition("datum.probability > 0.5", alt.value("white"), alt.value(INK))
    words = base.mark_text(fontSize=14).encode(
        text=alt.Text("probability:Q", format=".3f"), color=ink
    )
    return themed(base.mark_rect(stroke="white", strokeWidth=2).encode(color=shade) + words)


def arm_cost(cost: pl.DataFrame, limits: pl.DataFrame) -> Any:
    """Excess over a common risk by visitor; exploration and bound as one arm's risk falls."""
    return themed(alt.hconcat(_excess(cost), _exploration(limits), _bound(limits)))


def _excess(cost: pl.DataFrame) -> Any:
    named = {"excess": "excess", "linear_bound": "its linear bound"}
    long = cost.unpivot(on=list(named), index="visitor").with_columns(
        variable=cost.unpivot(on=list(named))["variable"].replace(named)
    )
    order = list(named.values())
    scale = alt.Scale(domain=order, range=["#0072B2", "#E69F00"])
    dash = alt.Scale(domain=order, range=[[1, 0], [6, 3]])
    legend = alt.Legend(orient="top-right", title=None)
    return (
        alt.Chart(values(long.to_dicts()), title="Excess regret of a visitor", width=WIDTH)
        .properties(height=HEIGHT)
        .mark_line()
        .encode(
            x=alt.X(
                "visitor:Q",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~s", values=powers_of_ten(float(cost["visitor"].max() or 1))),
                title="visitor",
            ),
            y=alt.Y("value:Q", title="excess of the bound"),
            color=alt.Color("variable:N", scale=scale, legend=legend),
            strokeDash=alt.StrokeDash("variable:N", scale=dash, legend=legend),
        )
    )


def _exploration(limits: pl.DataFrame) -> Any:
    return _over_first_risk(limits, "exploration", "Random arms", "share of random arms", ".0%")


def _bound(limits: pl.DataFrame) -> Any:
    return _over_first_risk(limits, "regret_bound", "Bound, 100,000 visitors", "regret bound", "~s")


def _over_first_risk(limits: pl.DataFrame, column: str, title: str, axis: str, form: str) -> Any:
    # The smaller the risk, the stronger the protection: read from left to right.
    x = alt.X("first_risk:Q", title="risk of the first arm (others 2)")
    x = x.scale(type="log", reverse=True).axis(values=[2, 1, 0.5, 0.2, 0.1, 0.05, 0.01])
    base = alt.Chart(values(limits.to_dicts()), title=title, width=WIDTH, height=HEIGHT).encode(
        x=x, y=alt.Y(f"{column}:Q", title=axis, axis=alt.Axis(format=form))
    )
    return base.mark_line(color=INK) + base.mark_point(
        filled=True, color=ACCENT, size=45, opacity=1
    )
