"""Bounds beside simulated regret, and budgets by one beside the other, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.studies_firm import SI_AXIS
from deniable.charts.theme import INK, STRATEGY_COLOURS, themed, values

if TYPE_CHECKING:
    import polars as pl

WAYS = {"bound": "#0072B2", "simulated regret": "#009E73"}


def bound_chart(table: pl.DataFrame) -> ChartType:
    """Regret over the budget on a logarithmic scale: bounds dashed, the worst simulated solid.

    Args:
        table: columns strategy, budget, bound, worst_regret.
    """
    kinds = {"bound": "bound", "worst_regret": "simulated, worst"}
    records = [
        {"strategy": row["strategy"], "budget": row["budget"], "kind": word, "regret": row[column]}
        for row in table.iter_rows(named=True)
        for column, word in kinds.items()
    ]
    base = alt.Chart(values(records), width=460, height=260).encode(
        x=alt.X("budget:Q", title="privacy budget"),
        y=alt.Y(
            "regret:Q",
            title="clicks lost",
            scale=alt.Scale(type="log", domain=[300, 200_000], nice=False),
            axis=alt.Axis(format="~s", values=[1000, 10_000, 100_000]),
        ),
        color=alt.Color(
            "strategy:N",
            scale=alt.Scale(domain=list(STRATEGY_COLOURS), range=list(STRATEGY_COLOURS.values())),
        ),
    )
    dash = alt.StrokeDash(
        "kind:N", title=None, scale=alt.Scale(domain=list(kinds.values()), range=[[5, 4], [1, 0]])
    )
    return themed(
        base.mark_line().encode(strokeDash=dash) + base.mark_point(filled=True, size=35, opacity=1)
    )


def difference_chart(budgets: pl.DataFrame, lost: pl.DataFrame) -> ChartType:
    """A point an experiment, budget by budget; and clicks lost in all by firm budget.

    Args:
        budgets: columns experiment, by_bound, by_simulation.
        lost: columns firm_budget, allocated_by, lost_clicks.
    """
    top = 1.05 * max([1.0, *budgets["by_bound"].to_list(), *budgets["by_simulation"].to_list()])
    scale = alt.Scale(domain=[0, top], nice=False)
    diagonal = alt.Chart(values([{"a": 0.0, "b": 0.0}, {"a": top, "b": top}]))
    points = (
        alt.Chart(values(budgets.to_dicts()), title="Budgets at a firm budget of 20")
        .mark_point(filled=True, size=45, opacity=0.45, color="#0072B2")
        .encode(
            x=alt.X("by_bound:Q", title="by bound", scale=scale),
            y=alt.Y("by_simulation:Q", title="by simulated regret", scale=scale),
        )
    )
    line = diagonal.mark_line(color=INK, strokeWidth=1, opacity=0.5).encode(x="a:Q", y="b:Q")
    bars = (
        alt.Chart(values(lost.to_dicts()), title="Clicks lost", width=300, height=260)
        .mark_bar()
        .encode(
            x=alt.X("firm_budget:O", title="firm budget", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("allocated_by:N", sort=list(WAYS)),
            y=alt.Y("lost_clicks:Q", title="clicks lost by all experiments", axis=SI_AXIS),
            color=alt.Color(
                "allocated_by:N",
                title="allocated by",
                scale=alt.Scale(domain=list(WAYS), range=list(WAYS.values())),
            ),
        )
    )
    return themed(alt.hconcat((line + points).properties(width=260, height=260), bars))
