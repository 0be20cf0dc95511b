"""Charts of the studies: strategies, the firm's experiments, what its budget earns, total clicks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np
from altair.typing import ChartType
from numpy.typing import ArrayLike

from deniable._validation import Floats
from deniable.charts.theme import (
    ACCENT,
    BENCHMARK_COLOURS,
    INK,
    STRATEGY_COLOURS,
    Records,
    ordered_scale,
    powers_of_ten,
    rows,
    themed,
    values,
)
from deniable.strategies import STRATEGIES

if TYPE_CHECKING:
    import polars as pl


SI_AXIS = alt.Axis(
    labelExpr="datum.value == 0 ? '0' : replace(format(datum.value, '~s'), 'G', 'B')"
)
"""Thousands, millions and billions; a plain 0."""

RULE_COLOURS = {"regret-based": "#0072B2", "equal split": "#E69F00"}
REGIME_SHAPES = {"flexible": "circle", "constant": "triangle-up", "dynamic": "square"}
_RULE_APART = {"regret-based": -0.2, "equal split": 0.2}
_REGIME_APART = {"flexible": -0.11, "constant": 0.0, "dynamic": 0.11}


def summary_panels(
    arms: Sequence[int], visitors: Sequence[int], rates: Sequence[float], uplifts: Sequence[float]
) -> ChartType:
    """Chart arms and visitors per experiment, and click rates and uplifts per arm.

    Args:
        arms: one per experiment.
        visitors: one per experiment.
        rates: one per arm, in percent.
        uplifts: one per treatment, in percentage points over its control.
    """
    number = [{"x": value} for value in arms]
    size = {"width": 300, "height": 170}
    counts = (
        alt.Chart(values(number), title="Arms of an experiment", **size)
        .mark_bar(color="#0072B2")
        .encode(
            x=alt.X("x:O", title="arms", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("count()", title="experiments"),
        )
    )
    logs = [{"x": math.log10(value)} for value in visitors]
    sizes = _histogram(logs, "Visitors of an experiment", "visitors", "experiments", 0.25, size)
    sizes = sizes.encode(
        x=alt.X(
            "x:Q",
            bin=alt.Bin(step=0.25),
            title="visitors",
            axis=alt.Axis(
                values=[5, 6, 7, 8], labelExpr="format(pow(10, datum.value), '~s')", grid=False
            ),
        )
    )
    click = _histogram(
        [{"x": value} for value in rates], "Click rates", "click rate, %", "arms", 5, size
    )
    gain = _histogram(
        [{"x": value} for value in uplifts],
        "Uplift over the control",
        "percentage points",
        "treatments",
        0.1,
        size,
    )
    return themed(alt.vconcat(alt.hconcat(counts, sizes), alt.hconcat(click, gain)))


def _histogram(
    records: list[dict[str, float]], title: str, x: str, y: str, step: float, size: dict[str, int]
) -> ChartType:
    return (
        alt.Chart(values(records), title=title, **size)
        .mark_bar(color="#0072B2")
        .encode(
            x=alt.X(
                "x:Q",
                bin=alt.Bin(step=step),
                title=x,
                axis=alt.Axis(grid=False, format="~g", labelOverlap="parity", labelSeparation=6),
            ),
            y=alt.Y("count()", title=y),
        )
    )


def firm_clicks(table: pl.DataFrame, upper: float, perfect: float) -> ChartType:
    """Chart the median improvement over random arms by firm budget, with quartiles and differences.

    Args:
        table: columns rule, regime, firm_budget, median, q25, q75.
        upper: the median improvement of each experiment's best budget.
        perfect: the improvement with perfect information.
    """
    firm_budgets = sorted(table["firm_budget"].drop_nulls().unique().to_list())
    place = {budget: index for index, budget in enumerate(firm_budgets)}
    records = [
        {
            **row,
            "x": place[row["firm_budget"]]
            + _RULE_APART[row["rule"]]
            + _REGIME_APART[row["regime"]],
        }
        for row in table.iter_rows(named=True)
        if row["firm_budget"] is not None
    ]
    labels = "[" + ",".join(f"'{budget:g}'" for budget in firm_budgets) + "][datum.value]"
    x = alt.X(
        "x:Q",
        title="firm budget",
        scale=alt.Scale(domain=[-0.6, len(firm_budgets) - 0.4], nice=False),
        axis=alt.Axis(values=list(place.values()), labelExpr=labels, grid=False),
    )
    y = alt.Y("median:Q", title="clicks more than random arms", axis=SI_AXIS)
    rule = alt.Color(
        "rule:N",
        scale=alt.Scale(domain=list(RULE_COLOURS), range=list(RULE_COLOURS.values())),
        legend=alt.Legend(title="rule"),
    )
    regime = alt.Shape(
        "regime:N",
        scale=alt.Scale(domain=list(REGIME_SHAPES), range=list(REGIME_SHAPES.values())),
        legend=alt.Legend(title="strategies allowed", symbolFillColor=INK, symbolStrokeWidth=0),
    )
    base = alt.Chart(values(records), width=700, height=330)
    bars = base.mark_rule(strokeWidth=1.5).encode(
        x=x, y=alt.Y("q25:Q"), y2=alt.Y2("q75:Q"), color=rule
    )
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(
        x=x, y=y, color=rule, shape=regime
    )
    return themed(
        alt.layer(
            _level(0.0, "random arms", [5, 4], below=True),
            _level(upper, "every experiment at its best budget", [1, 0]),
            _level(perfect, "perfect information", [2, 3]),
            bars,
            dots,
            _differences(records, place, x),
        )
    )


def _level(height: float, words: str, dash: list[int], *, below: bool = False) -> ChartType:
    base = alt.Chart(values([{"y": height, "text": words}])).encode(y=alt.Y("y:Q"))
    text = base.mark_text(align="left", dx=6, dy=9 if below else -7, fontSize=10, color=INK)
    return base.mark_rule(color=INK, opacity=0.7, strokeDash=dash) + text.encode(
        x=alt.value(0), text=alt.Text("text:N")
    )


def _differences(records: Records, place: dict[float, int], x: alt.X) -> ChartType:
    """Show the regret-based median minus the equal split's, flexible regime, above the points."""
    medians = {
        (row["rule"], row["firm_budget"]): row for row in records if row["regime"] == "flexible"
    }
    words = []
    for budget, index in place.items():
        best, even = (medians[rule, budget] for rule in RULE_COLOURS)
        gap = best["median"] - even["median"]
        top = max(row["q75"] for row in records if row["firm_budget"] == budget)
        words.append({"x": index, "median": top, "text": f"Δ {short(gap)}"})
    return (
        alt.Chart(values(words))
        .mark_text(dy=-10, fontSize=10.5, color=ACCENT)
        .encode(x=x, y=alt.Y("median:Q"), text=alt.Text("text:N"))
    )


def short(number: float) -> str:
    """Format a number with its sign in three digits.

    >>> short(1_234_567), short(-45_600), short(12)
    ('+1.23M', '−45.6k', '+12')
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:+.3g}{letter}".replace("-", "\N{MINUS SIGN}")
    return f"{number:+.0f}".replace("-", "\N{MINUS SIGN}")


# -- how a strategy spends its budget ---------------------------------------------------------------

PANELS = {
    "risk": "privacy risk",
    "exploration": "share of random arms",
    "exploitation": "share of greedy arms",
}
"""Column -> axis title, in the constant figure's order."""


def strategy_panels(
    strategy: str,
    *,
    n_arms: int = 2,
    horizon: int = 100_000,
    budgets: Sequence[float] = (0.05, 0.5, 1, 3, 5),
    width: int = 220,
    height: int = 220,
) -> ChartType:
    """Chart three panels over the visitor's clock: the paper's figure of this strategy."""
    names = [f"{budget:g}" for budget in budgets]
    colours, dashes = ordered_scale(names)
    clock = np.unique(np.geomspace(1, horizon, 160).round())
    records = []
    for name, budget in zip(names, budgets, strict=True):
        spent = STRATEGIES[strategy](budget)
        rate = np.asarray(spent.exploration(clock, n_arms))
        records += rows(
            clock=clock,
            risk=spent.risk(clock, n_arms),
            exploration=rate,
            exploitation=1 - rate,
            budget=name,
        )
    data = values(records)
    colour = alt.Color(
        "budget:N", sort=names, scale=alt.Scale(domain=names, range=colours), title="budget"
    )
    dash = alt.StrokeDash(
        "budget:N", sort=names, scale=alt.Scale(domain=names, range=dashes), title="budget"
    )
    return alt.hconcat(
        *(
            alt.Chart(data, width=width, height=height)
            .mark_line()
            .encode(
                x=alt.X(
                    "clock:Q",
                    title="visitor of the segment",
                    scale=alt.Scale(type="log", nice=False),
                    axis=alt.Axis(format="~s", values=powers_of_ten(horizon)),
                ),
                y=alt.Y(
                    f"{column}:Q",
                    title=title,
                    scale=alt.Undefined if column == "risk" else alt.Scale(domain=[0, 1]),
                    axis=alt.Axis() if column == "risk" else alt.Axis(format=".0%"),
                ),
                color=colour,
                strokeDash=dash,
            )
            for column, title in PANELS.items()
        )
    )


def elasticity_panels(
    strategy: str,
    *,
    arms: Sequence[int] = (2, 5, 20),
    horizons: Sequence[int] = (10_000, 100_000, 1_000_000),
    largest_budget: float = 7,
    width: int = 220,
    height: int = 220,
) -> ChartType:
    """Chart one panel per number of arms, one line per number of visitors, in the paper's form.

    A point marks each best budget. There the elasticity crosses zero, or the line ends because the
    cap never binds beyond it and the elasticity stays 0.
    """

    def elasticity(n_arms: int, horizon: int, budget: ArrayLike) -> Floats:
        return STRATEGIES[strategy].elasticity(n_arms, horizon, budget, form="paper")

    names = [f"{horizon:,}" for horizon in horizons]
    lines, points = [], []
    for n_arms in arms:
        for name, horizon in zip(names, horizons, strict=True):
            end = float(STRATEGIES[strategy].best_budget(n_arms, horizon, form="paper"))
            ends = float(elasticity(n_arms, horizon, end + 1e-6)) == 0
            top = end if ends else largest_budget
            budget = np.linspace(0, top, 201)[:-1]
            panel = f"{n_arms} arms"
            height_of = elasticity(n_arms, horizon, budget)
            lines += rows(budget=budget, elasticity=height_of, visitors=name, panel=panel)
            last = float(elasticity(n_arms, horizon, budget[-1] if ends else end))
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

    def of_panel(records: Records, n_arms: int) -> ChartType:
        return alt.Chart(values(r for r in records if r["panel"] == f"{n_arms} arms"))

    return alt.hconcat(
        *(
            (
                alt.Chart(values(rows(y=[0])))
                .mark_rule(color=INK, opacity=0.5)
                .encode(y=alt.Y("y:Q"))
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


# -- total clicks by strategy and budget -----------------------------------------------------------

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
            x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=colour
        ),
        everyone.mark_point(filled=True, size=48, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape
        ),
    ).resolve_scale(y="shared")
