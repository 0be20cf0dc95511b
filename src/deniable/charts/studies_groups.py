"""What mutually exclusive groups buy, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.studies_firm import SI_AXIS
from deniable.charts.theme import INK, Records, ordered_scale, themed, values

if TYPE_CHECKING:
    import polars as pl


def group_chart(bounds: pl.DataFrame, clicks: pl.DataFrame) -> ChartType:
    """Regret bound over the firm budget, one line a group size; clicks at one firm budget.

    Args:
        bounds: columns group_size, firm_budget, regret_bound.
        clicks: columns group_size, median, q25, q75.
    """
    names = [str(size) for size in bounds["group_size"].unique(maintain_order=True).to_list()]
    colours, dashes = ordered_scale(names)
    legend = alt.Legend(title="experiments a group")
    colour = alt.Color(
        "group_size:N", sort=names, scale=alt.Scale(domain=names, range=colours), legend=legend
    )
    dash = alt.StrokeDash(
        "group_size:N", sort=names, scale=alt.Scale(domain=names, range=dashes), legend=legend
    )
    lines = (
        alt.Chart(values(_named(bounds)), title="Least regret bound", width=330, height=240)
        .mark_line()
        .encode(
            x=alt.X(
                "firm_budget:Q",
                title="firm budget",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(values=bounds["firm_budget"].unique().sort().to_list(), format="~g"),
            ),
            y=alt.Y("regret_bound:Q", title="sum of bounds", axis=SI_AXIS),
            color=colour,
            strokeDash=dash,
        )
    )
    base = alt.Chart(
        values(_named(clicks)), title="Clicks beyond random arms", width=300, height=240
    )
    x = alt.X("group_size:N", sort=names, title="experiments a group", axis=alt.Axis(labelAngle=0))
    y = alt.Y("median:Q", title="clicks", axis=SI_AXIS)
    marks = base.mark_rule(strokeWidth=1.5, color=INK).encode(x=x, y="q25:Q", y2="q75:Q")
    dots = base.mark_point(filled=True, size=70, opacity=1, color=INK).encode(x=x, y=y)
    return themed(alt.hconcat(lines, marks + dots))


def _named(table: pl.DataFrame) -> Records:
    return [{**row, "group_size": str(row["group_size"])} for row in table.iter_rows(named=True)]
