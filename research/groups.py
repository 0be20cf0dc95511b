"""Experiments that exclude each other: a group costs its largest budget, not the sum."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType

from deniable import Allocation, Portfolio, allocate
from deniable.charts.theme import INK, Records, ordered_scale, themed, values
from research.charts import SI_AXIS, short
from research.firm_clicks import Firm, load_firm, policy_of, simulate_firm
from research.study import Claim, Context, Figure, StudyResult, judged

SIZES = (1, 2, 6, 26, 78)
"""Experiments per group; 1 means no groups, 78 one group of all."""

FIRM_BUDGETS = (1.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
SIMULATED = 20.0


def run(context: Context) -> StudyResult:
    """Study the same experiments and visitors, in groups of growing size."""
    firm = load_firm(context)
    rows, chosen = [], {}
    for size in SIZES:
        portfolio = grouped(firm.portfolio, size)
        for total in FIRM_BUDGETS:
            found = allocate(portfolio, total, regime="dynamic")
            rows.append(
                {"group_size": size, "firm_budget": total, "regret_bound": found.total_regret}
            )
            if total == SIMULATED:
                chosen[size] = found
    table = pl.DataFrame(rows)
    clicks = _clicks(context, firm, chosen)
    caption = (
        "Left: least regret bound over the firm budget, by experiments a group. Right: clicks beyond "
        f"random arms at a firm budget of {SIMULATED:g}, median and quartiles." + firm.mark
    )
    return StudyResult(
        headline=_headline(clicks),
        paragraphs=(
            "If a visitor can enter at most one experiment of a group, the group costs the firm only "
            "its largest budget. Here the same 78 experiments, with the same visitors, are put into "
            "groups in the order of their names. The same promise to every visitor then buys much more.",
            firm.source,
        ),
        figures=(Figure("groups", caption, group_chart(table, clicks), table),),
        claims=(_falls(table), _pays(clicks)),
        tables={"clicks": clicks},
    )


def grouped(portfolio: Portfolio, size: int) -> Portfolio:
    """Return the portfolio with each `size` neighbours in a group; size 1 leaves it unchanged."""
    if size == 1:
        return portfolio
    names = tuple(f"group {row // size}" for row in range(portfolio.size))
    return replace(portfolio, groups=names)


def _clicks(context: Context, firm: Firm, chosen: dict[int, Allocation]) -> pl.DataFrame:
    policies = {
        size: [policy_of(*pair) for pair in zip(found.strategies, found.budgets, strict=True)]
        for size, found in chosen.items()
    }
    repetitions = context.scale(30, 2)
    simulated = simulate_firm(context, firm.experiments, list(policies.values()), repetitions)
    names = [each.name for each in firm.experiments]
    rows = []
    for size, used in policies.items():
        gained = simulated.improvement(names, used)
        low, middle, high = (float(value) for value in np.quantile(gained, (0.25, 0.5, 0.75)))
        funded = int((chosen[size].budgets > 0).sum())
        rows.append(
            {"group_size": size, "funded": funded, "median": middle, "q25": low, "q75": high}
        )
    return pl.DataFrame(rows)


def _headline(clicks: pl.DataFrame) -> str:
    gain = {row["group_size"]: row["median"] for row in clicks.iter_rows(named=True)}
    return (
        f"If experiments exclude each other in sixes, a firm budget of {SIMULATED:g} gains "
        f"{gain[6] / gain[1]:.1f} times the clicks, for the same promise."
    )


def _falls(table: pl.DataFrame) -> Claim:
    at = table.filter(pl.col("firm_budget") == SIMULATED)["regret_bound"].to_list()
    return Claim(
        "Groups make the firm budget go further",
        "not studied",
        f"bound at {SIMULATED:g}: "
        + ", ".join(f"{size}: {short(value)[1:]}" for size, value in zip(SIZES, at, strict=True)),
        judged(all(a >= b for a, b in pairwise(at))),
        "Experiments a group, and the least sum of bounds. A division without groups stays possible "
        "with them, so it can only fall.",
    )


def _pays(clicks: pl.DataFrame) -> Claim:
    first, last = clicks.row(0, named=True), clicks.row(-1, named=True)
    return Claim(
        "It pays in clicks",
        "not studied",
        f"{short(first['median'])} without groups, {short(last['median'])} with one group of all",
        judged(last["q25"] > first["q75"]),
        f"{first['funded']} and {last['funded']} experiments have a budget. In practice exclusion "
        "divides visitors among experiments; that cost is not counted here.",
    )


def group_chart(bounds: pl.DataFrame, clicks: pl.DataFrame) -> ChartType:
    """Chart the regret bound over the firm budget by group size, and clicks at one firm budget.

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
    marks = base.mark_rule(strokeWidth=1.5, color=INK).encode(
        x=x, y=alt.Y("q25:Q"), y2=alt.Y2("q75:Q")
    )
    dots = base.mark_point(filled=True, size=70, opacity=1, color=INK).encode(x=x, y=y)
    return themed(alt.hconcat(lines, marks + dots))


def _named(table: pl.DataFrame) -> Records:
    return [{**row, "group_size": str(row["group_size"])} for row in table.iter_rows(named=True)]
