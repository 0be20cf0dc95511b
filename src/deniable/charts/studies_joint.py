"""Share of perfect information's gain against the budget, by strategy and world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.theme import themed, values

if TYPE_CHECKING:
    import polars as pl

SERIES: dict[str, tuple[str, list[int]]] = {
    "limit": ("#555555", [2, 2]),
    "joint": ("#882255", [1, 0]),
    "dynamic": ("#0072B2", [1, 0]),
    "constant": ("#D55E00", [6, 3]),
    "pooled": ("#E69F00", [4, 2]),
    "random": ("#999999", [1, 3]),
}
"""Colour and dash of each series, best first."""


def budget_shares(table: pl.DataFrame) -> ChartType:
    """A panel a world, two in a row.

    Args:
        table: columns world, strategy, budget, share, low, high.
    """
    worlds = table["world"].unique(maintain_order=True).to_list()
    panels = [_panel(table, world) for world in worlds]
    return themed(alt.vconcat(*(alt.hconcat(*panels[i : i + 2]) for i in range(0, len(panels), 2))))


def _panel(table: pl.DataFrame, world: str) -> ChartType:
    import polars as pl

    rows = table.filter((pl.col("world") == world) & pl.col("strategy").is_in(list(SERIES)))
    x = alt.X("budget:Q", title="privacy budget", scale=alt.Scale(domain=[0, 3], nice=False))
    y = alt.Y(
        "share:Q",
        title="share of perfect information",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0, 1]),
    )
    colour = alt.Color(
        "strategy:N",
        title="strategy",
        sort=list(SERIES),
        scale=alt.Scale(domain=list(SERIES), range=[colour for colour, _ in SERIES.values()]),
    )
    dash = alt.StrokeDash(
        "strategy:N",
        title="strategy",
        sort=list(SERIES),
        scale=alt.Scale(domain=list(SERIES), range=[dash for _, dash in SERIES.values()]),
        legend=alt.Legend(symbolType="stroke"),
    )
    base = alt.Chart(values(rows.to_dicts()), title=world, width=300, height=190)
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_rule(strokeWidth=1.5).encode(x=x, y="low:Q", y2="high:Q", color=colour),
    )
