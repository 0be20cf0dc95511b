"""Charts of total clicks by strategy and budget, next to policies without a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.theme import BENCHMARK_COLOURS, INK, STRATEGY_COLOURS, Records, themed, values

if TYPE_CHECKING:
    import polars as pl

COLOURS = STRATEGY_COLOURS | BENCHMARK_COLOURS
SHAPES = {
    "constant": "circle",
    "dynamic": "square",
    "epsilon-greedy": "triangle-up",
    "gittins": "diamond",
    "perfect": "cross",
    "random": "triangle-down",
}
_APART = {"constant": -0.1, "dynamic": 0.1}
_OTHERS = {"random": -0.36, "gittins": -0.12, "epsilon-greedy": 0.12, "perfect": 0.36}


def total_clicks(
    frame: pl.DataFrame,
    budgets: Sequence[float],
    *,
    columns: str,
    rows: str | None = None,
    width: int = 215,
    height: int = 190,
) -> ChartType:
    """Chart panels of mean clicks with 95% intervals.

    Args:
        frame: columns policy, budget (null for benchmarks), mean, low, high and those below.
        budgets: on the horizontal axis, evenly spaced; the benchmarks are to their right.
        columns: the column whose values determine the panels of a row.
        rows: the column whose values determine the rows; None for one row.
        width: width of a panel.
        height: height of a panel.
    """
    across = frame[columns].unique(maintain_order=True).to_list()
    down = frame[rows].unique(maintain_order=True).to_list() if rows else [None]
    drawn = [
        alt.hconcat(
            *(
                _panel(
                    [
                        record
                        for record in frame.to_dicts()
                        if record[columns] == column and (rows is None or record[rows] == row)
                    ],
                    budgets,
                    title=column if row is None else f"{row}, {column}",
                ).properties(width=width, height=height)
                for column in across
            )
        )
        for row in down
    ]
    return themed(alt.vconcat(*drawn))


def _panel(records: Records, budgets: Sequence[float], *, title: str) -> ChartType:
    place = {budget: index for index, budget in enumerate(budgets)}
    end = len(budgets)
    for record in records:
        policy = record["policy"]
        budget = record["budget"]
        record["x"] = end + _OTHERS[policy] if budget is None else place[budget] + _APART[policy]
    labels = [f"{budget:g}" for budget in budgets] + ["other"]
    words = "[" + ",".join(f"'{label}'" for label in labels) + "][datum.value]"
    x = alt.X(
        "x:Q",
        title="privacy budget",
        scale=alt.Scale(domain=[-0.5, end + 0.6], nice=False),
        axis=alt.Axis(values=list(range(end + 1)), labelExpr=words, grid=False),
    )
    y = alt.Y("mean:Q", title="total clicks", scale=alt.Scale(zero=False, nice=True))
    y = y.axis(format="~s", tickCount=5)
    names = list(COLOURS)
    colour = alt.Color(
        "policy:N",
        scale=alt.Scale(domain=names, range=list(COLOURS.values())),
        legend=alt.Legend(title=None),
    )
    shape = alt.Shape(
        "policy:N",
        scale=alt.Scale(domain=names, range=list(SHAPES.values())),
        legend=alt.Legend(title=None),
    )
    everyone = alt.Chart(values(records), title=title)
    spending = alt.Chart(values(r for r in records if r["budget"] is not None))
    limits = alt.Chart(values(r for r in records if r["policy"] in ("perfect", "random")))
    return alt.layer(
        limits.mark_rule(strokeDash=[4, 3], opacity=0.55, color=INK).encode(y=y),
        spending.mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour),
        everyone.mark_rule(strokeWidth=1.5).encode(
            x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour
        ),
        everyone.mark_point(filled=True, size=48, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape
        ),
    ).resolve_scale(y="shared")
