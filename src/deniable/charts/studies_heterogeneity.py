"""A budget for each arm, as pictures: the matrix of shown arms, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.theme import ACCENT, INK, powers_of_ten, themed, values

if TYPE_CHECKING:
    import polars as pl

WIDTH, HEIGHT = 270, 210


def arm_matrix(matrix: pl.DataFrame) -> ChartType:
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


def arm_cost(cost: pl.DataFrame, limits: pl.DataFrame) -> ChartType:
    """Excess over a common risk by visitor; exploration and bound as one arm's risk falls."""
    return themed(alt.hconcat(_excess(cost), _exploration(limits), _bound(limits)))


def _excess(cost: pl.DataFrame) -> ChartType:
    last = float(cost["visitor"].max() or 1)  # type: ignore[arg-type]
    x = alt.X(
        "visitor:Q",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format="~s", values=powers_of_ten(last)),
        title="visitor",
    )
    base = alt.Chart(
        values(cost.to_dicts()), title="Excess regret of a visitor", width=WIDTH, height=HEIGHT
    ).encode(x=x)
    layers = []
    for column, words, colour, dash in (
        ("excess", "excess", "#0072B2", [1, 0]),
        ("linear_bound", "its linear bound", "#B35C00", [6, 3]),
    ):
        y = alt.Y(f"{column}:Q", title="excess of the bound")
        layers.append(base.mark_line(color=colour, strokeDash=dash).encode(y=y))
        end = alt.Chart(values(cost.tail(1).to_dicts())).encode(x=x, y=y)
        layers.append(
            end.mark_text(align="right", dy=-9, color=colour, fontSize=11).encode(
                text=alt.value(words)
            )
        )
    return alt.layer(*layers)


def _exploration(limits: pl.DataFrame) -> ChartType:
    return _over_first_risk(limits, "exploration", "Random arms", "share of random arms", ".0%")


def _bound(limits: pl.DataFrame) -> ChartType:
    return _over_first_risk(limits, "regret_bound", "Bound, 100,000 visitors", "regret bound", "~s")


def _over_first_risk(
    limits: pl.DataFrame, column: str, title: str, axis: str, form: str
) -> ChartType:
    # The smaller the risk, the stronger the protection: read from left to right.
    x = alt.X("first_risk:Q", title="risk of the first arm (others 2)")
    x = x.scale(type="log", reverse=True, nice=False).axis(values=[2, 1, 0.5, 0.2, 0.1, 0.05, 0.01])
    base = alt.Chart(values(limits.to_dicts()), title=title, width=WIDTH, height=HEIGHT).encode(
        x=x, y=alt.Y(f"{column}:Q", title=axis, axis=alt.Axis(format=form))
    )
    return base.mark_line(color=INK) + base.mark_point(
        filled=True, color=ACCENT, size=45, opacity=1
    )
