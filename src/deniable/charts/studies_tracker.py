"""Beliefs of a simulated tracker beside their bounds, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.theme import ACCENT, STRATEGY_COLOURS, Records, themed, values

if TYPE_CHECKING:
    import polars as pl

_APART = {"constant": -0.16, "dynamic": 0.16}
_WHO = {"members_mean": "members", "others_mean": "others"}


def belief_ranges(table: pl.DataFrame) -> ChartType:
    """A panel a channel: ranges and means by budget and strategy, bounds as red ticks.

    Args:
        table: columns strategy, budget, channel, members_mean, others_mean, q01, q99, bound_low,
            bound_high.
    """
    budgets = table["budget"].unique().sort().to_list()
    place = {budget: index for index, budget in enumerate(budgets)}
    labels = "[" + ",".join(f"'{budget:g}'" for budget in budgets) + "][datum.value]"
    x = alt.X(
        "x:Q",
        title="privacy budget",
        scale=alt.Scale(domain=[-0.5, len(budgets) - 0.5], nice=False),
        axis=alt.Axis(values=list(place.values()), labelExpr=labels, grid=False),
    )
    panels = []
    for (channel,), rows in table.group_by("channel", maintain_order=True):
        records = [
            {**row, "x": place[row["budget"]] + _APART[row["strategy"]]}
            for row in rows.iter_rows(named=True)
        ]
        title = f"After the {channel}"
        panels.append(_panel(records, x, title).properties(width=320, height=240))
    return themed(alt.hconcat(*panels))


def _panel(records: Records, x: alt.X, title: str) -> ChartType:
    y = alt.Y(
        "q01:Q",
        title="belief of the tracker",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format=".0%"),
    )
    colour = alt.Color(
        "strategy:N",
        title="strategy",
        scale=alt.Scale(domain=list(STRATEGY_COLOURS), range=list(STRATEGY_COLOURS.values())),
    )
    shape = alt.Shape(
        "who:N",
        title="mean for",
        scale=alt.Scale(domain=list(_WHO.values()), range=["circle", "diamond"]),
        legend=alt.Legend(symbolFillColor="#2B2B2B", symbolStrokeWidth=0),
    )
    base = alt.Chart(values(records), title=title).encode(x=x)
    means = [
        {"x": row["x"], "strategy": row["strategy"], "who": who, "mean": row[column]}
        for row in records
        for column, who in _WHO.items()
    ]
    ticks = [
        {"left": row["x"] - 0.13, "right": row["x"] + 0.13, "y": row[bound]}
        for row in records
        for bound in ("bound_low", "bound_high")
    ]
    return alt.layer(
        base.mark_rule(strokeWidth=7, opacity=0.35).encode(y=y, y2="q99:Q", color=colour),
        alt.Chart(values(ticks))
        .mark_rule(color=ACCENT, strokeWidth=2)
        .encode(x=alt.X("left:Q"), x2="right:Q", y="y:Q"),
        alt.Chart(values(means))
        .mark_point(filled=True, size=50, opacity=1)
        .encode(x=x, y="mean:Q", color=colour, shape=shape),
    )
