"""Charts of an allocation: who gets what, why, and the effect of another firm budget.

Each panel is a chart without data; `PANELS` names the data it reads, and `allocation_data` creates it.
The portfolio page keeps its panels and replaces their data while a slider moves; `allocation_chart`
combines the same panels.

Also the paper's two experiments: budget flows to the larger marginal gain, or all of it to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable._formatting import short
from deniable._types import Record
from deniable._validation import FloatArray
from deniable.charts.experiments import ARM_COLOURS
from deniable.charts.theme import (
    ACCENT,
    BLUE,
    INK,
    STRATEGY_COLOURS,
    Panel,
    Records,
    rows,
    themed,
    values,
    with_datasets,
)
from deniable.errors import NANO
from deniable.portfolio.allocation import Allocation, WhatIf, allocate
from deniable.portfolio.curves import IntArray
from deniable.portfolio.labels import LabelComparison
from deniable.portfolio.problem import TWO_EXPERIMENTS
from deniable.portfolio.rules import RuleOutcome, compare_rules
from deniable.theory.best_budget import best_dynamic_budget
from deniable.theory.elasticity import dynamic_gain

WIDTH, HEIGHT = 400, 240
MOST_BARS = 24
MOST_CURVES = 6
CURVE_POINTS = 60
RULE_NAMES = {
    "optimal": "this allocation",
    "equal split": "equal split",
    "zero": "zero",
    "random arms": "random arms",
    "best budgets": "best for each",
}
"""Rule -> its name for people, in the order of the chart."""

_SHORT = "replace(format(datum.value, '~s'), 'G', 'B')"  # 2B instead of the SI prefix 2G


def allocation_chart(
    found: Allocation,
    *,
    compared: bool = False,
    label: LabelComparison | None = None,
    n_points: int = 25,
) -> ChartType:
    """Chart budgets, marginal gains that meet at lambda, and the what-if curve.

    Args:
        found: the allocation.
        compared: add the rules' total regret.
        label: add what the same budgets lose if they are spent on one label.
        n_points: number of firm budgets on the what-if curve.
    """
    outcomes = compare_rules(found) if compared else []
    curve = found.what_if(n_points=n_points)
    data = {**allocation_data(found, outcomes), "what_if": what_if_records(curve)}
    lost = _loss_title(found)
    panels = [
        bars_panel().properties(title=_bars_title(found, len(data["bars"]))),
        gains_panel().properties(title=PANELS["gains"].title),
        what_if_panel(lost).properties(title=PANELS["what_if"].title),
    ]
    if compared:
        panels.append(rules_panel(lost, worded=True).properties(title=PANELS["rules"].title))
    if label is not None:
        panels.append(label_panel(label, found.firm_budget))
    chart = alt.concat(*(panel.properties(width=WIDTH) for panel in panels), columns=2, spacing=28)
    chart = chart.resolve_scale(color="independent")
    drawn = [*PANELS.values()][: 4 if compared else 3]
    wanted = [name for panel in drawn for name in panel.datasets]
    return with_datasets(themed(chart), {name: data[name] for name in wanted})


def allocation_html(found: Allocation, most: int = 25) -> str:
    """Render the largest budgets, what is proven, and the chart: static and self-contained."""
    import vl_convert

    frame = found.frame().head(most)
    names = ("id", "arms", "visitors", "segments", "strategy", "budget", "regret", "saved")
    heads = dict(zip(names, names, strict=True)) | {"regret": _loss_title(found)}
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in names) + "</tr>"
        for row in frame.iter_rows(named=True)
    )
    head = "".join(f"<th>{escape(heads[name])}</th>" for name in names)
    words = (
        f"{found.portfolio.size:,} experiments, firm budget {found.firm_budget:g}: "
        f"{_loss_title(found)} {found.total_regret:,.0f}. {found.certificate}"
    )
    svg = vl_convert.vegalite_to_svg(allocation_chart(found).to_dict())
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p>{escape(words)}</p>{table}\n{svg}"


def _cell(value: object) -> str:
    return (
        short(value, 4)
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _loss_title(found: Allocation) -> str:
    return "expected loss" if found.portfolio.objective == "expected" else "total regret bound"


def _bars_title(found: Allocation, shown: int) -> str:
    title = f"Budgets: {found.spent_nano / NANO:.6g} of {found.firm_budget:g} nats"
    rest = found.portfolio.size - shown
    if not rest:
        return title
    others = "1 more experiment has" if rest == 1 else f"{rest:,} more experiments have"
    return f"{title}; {others} {'less, or none' if shown == MOST_BARS else 'none'}"


def allocation_data(found: Allocation, outcomes: Sequence[RuleOutcome]) -> dict[str, Records]:
    """Return the data of every panel by dataset name; `what_if` is empty until its curve is known.

    Args:
        found: the allocation.
        outcomes: of the rules that it is compared with.
    """
    order = np.argsort(-found.budgets_nano, kind="stable")
    top = [int(row) for row in order[:MOST_BARS] if found.budgets_nano[row] > 0]
    gains, dots = [], []
    for row in _some(found, order):
        curve, dot = _gain_curve(found, row)
        gains += curve
        dots.append(dot)
    portfolio = found.portfolio
    regret = {outcome.rule: outcome for outcome in outcomes}
    return {
        "bars": [
            {
                "id": portfolio.ids[row],
                "strategy": found.strategies[row],
                "budget": float(found.budgets[row]),
                "arms": int(portfolio.arms[row]),
                "visitors": int(portfolio.visitors[row]),
            }
            for row in top
        ],
        "gains": _cut(gains, dots, found.shadow_value),
        "dots": dots,
        "price": [{"gain": found.shadow_value, "text": f"lambda: {short(found.shadow_value)}"}],
        "what_if": [],
        "here": [
            {
                "firm_budget": found.firm_budget,
                "regret": found.total_regret,
                "text": f"{found.firm_budget:.3g} nats: {found.total_regret:,.0f}",
            }
        ],
        "rules": [
            {
                "rule": words,
                "regret": regret[rule].total_regret,
                "text": f"{regret[rule].total_regret:,.0f}  "
                f"(costs {regret[rule].cost_nano / NANO:.4g})",
            }
            for rule, words in RULE_NAMES.items()
            if rule in regret
        ],
    }


def what_if_records(curve: WhatIf) -> Records:
    """Return the data of the curve over firm budgets."""
    return rows(firm_budget=curve.firm_budgets, regret=curve.total_regret)


def _some(found: Allocation, order: IntArray) -> list[int]:
    """Experiments that can use more, from the largest budget to the smallest, evenly picked.

    Those without budget come only where there are few with one.
    """
    free = found.portfolio.min_nano[order] < found.portfolio.max_nano[order]
    wanting = order[free & ~(found.has_all | found.at_limit)[order]]
    funded = wanting[found.budgets_nano[wanting] > 0]
    pool = funded if funded.size >= MOST_CURVES else wanting[:MOST_CURVES]
    pool = pool if pool.size else order
    places = np.linspace(0, pool.size - 1, MOST_CURVES).round().astype(int).tolist()
    return [int(pool[place]) for place in sorted(set(places))]


def _gain_curve(found: Allocation, row: int) -> tuple[Records, Record]:
    own = np.full(CURVE_POINTS, found.curve[row])
    grid = np.linspace(0, float(found.curves.useful[found.curve[row]]), CURVE_POINTS + 2)[1:-1]
    heights = found.curves.gain(own, grid)
    name = found.portfolio.ids[row]
    curve: Records = [
        {"budget": float(f"{x:.5g}"), "gain": float(f"{y:.5g}"), "experiment": name}
        for x, y in zip(grid, heights, strict=True)
    ]
    here, gain = float(found.budgets[row]), float(found.marginal_gain[row])
    return curve, {"budget": here, "gain": gain, "experiment": name}


def _cut(gains: Records, dots: Sequence[Record], price: float) -> Records:
    """Curves up to a height at which the points where they meet can still be seen."""
    top = 1.8 * max([price, 1e-9, *(dot["gain"] for dot in dots)])
    seen = [point for point in gains if 0 <= point["gain"] <= top]
    # Where every experiment has all that helps it, the curves meet at 0: then they are shown whole.
    return seen or [point for point in gains if point["gain"] >= 0]


def bars_panel() -> ChartType:
    """Chart the largest budgets, one bar per experiment, coloured by strategy."""
    colour = alt.Color(
        "strategy:N",
        scale=alt.Scale(domain=[*STRATEGY_COLOURS], range=[*STRATEGY_COLOURS.values()]),
        legend=alt.Legend(orient="top", title=None, columns=2),
    )
    base = alt.Chart(alt.NamedData(name="bars")).encode(
        y=alt.Y("id:N", sort=None, title=None, axis=alt.Axis(labelLimit=140)),
        x=alt.X("budget:Q", title="privacy budget", axis=alt.Axis(tickCount=6)),
    )
    shown = ["id:N", "strategy:N", "budget:Q", "arms:Q", "visitors:Q"]
    words = base.mark_text(align="left", dx=4, fontSize=11, color=INK)
    return (
        base.mark_bar(size=13).encode(color=colour, tooltip=shown)
        + words.encode(text=alt.Text("budget:Q", format=".2~f"))
    ).properties(height=int(1.6 * HEIGHT))


def gains_panel() -> ChartType:
    """Chart what one more nat would save in some experiments; funded ones meet at lambda."""
    colour = alt.Color(
        "experiment:N",
        sort=None,
        scale=alt.Scale(range=list(ARM_COLOURS)),
        legend=alt.Legend(orient="bottom", title=None, columns=2, labelLimit=132),
    )
    lines = (
        alt.Chart(alt.NamedData(name="gains"))
        .mark_line(clip=True)
        .encode(
            x=alt.X("budget:Q", title="privacy budget", axis=alt.Axis(tickCount=6)),
            y=alt.Y("gain:Q", title="clicks saved by one more nat", axis=_number()),
            color=colour,
        )
    )
    dots = alt.Chart(alt.NamedData(name="dots")).mark_point(filled=True, size=80, opacity=1)
    price = alt.Chart(alt.NamedData(name="price")).encode(y=alt.Y("gain:Q"))
    # At the right, where curves are low.
    words = price.mark_text(align="right", dx=-6, dy=-8, color=ACCENT, fontSize=12)
    return alt.layer(
        lines,
        price.mark_rule(color=ACCENT, strokeDash=[5, 3], strokeWidth=1.5),
        dots.encode(x=alt.X("budget:Q"), y=alt.Y("gain:Q"), color=colour),
        words.encode(x=alt.value("width"), text=alt.Text("text:N")),
    ).properties(height=int(1.25 * HEIGHT))


def what_if_panel(lost: str = "clicks lost") -> ChartType:
    """Chart the loss over the firm's budget, with the current one marked."""
    line = (
        alt.Chart(alt.NamedData(name="what_if"))
        .mark_line(color=INK)
        .encode(
            x=alt.X("firm_budget:Q", title="budget to divide, in nats", axis=alt.Axis(tickCount=6)),
            y=alt.Y("regret:Q", title=lost, axis=_number()),
        )
    )
    here = alt.Chart(alt.NamedData(name="here")).encode(
        x=alt.X("firm_budget:Q"), y=alt.Y("regret:Q")
    )
    words = here.mark_text(align="left", dx=9, dy=-9, color=ACCENT, fontSize=12)
    return alt.layer(
        line,
        here.mark_point(filled=True, size=90, color=ACCENT, opacity=1),
        words.encode(text=alt.Text("text:N")),
    ).properties(height=HEIGHT)


def rules_panel(lost: str = "clicks lost", *, worded: bool = False) -> ChartType:
    """Chart the allocation against simpler rules; `worded` writes losses and costs beside the bars."""
    names = [*RULE_NAMES.values()]
    base = alt.Chart(alt.NamedData(name="rules")).encode(
        y=alt.Y("rule:N", sort=names, title=None, axis=alt.Axis(labelLimit=120)),
        x=alt.X("regret:Q", title=lost, axis=_number()),
    )
    scale = alt.Scale(domain=names, range=[BLUE, *["#999999"] * (len(names) - 1)])
    bars = base.mark_bar(height=22).encode(color=alt.Color("rule:N", scale=scale, legend=None))
    if worded:
        words = base.mark_text(align="left", dx=5, fontSize=11, color=INK).encode(
            text=alt.Text("text:N")
        )
        # Nothing is drawn there: the words need room.
        room = base.transform_calculate(regret="1.55 * datum.regret").mark_point(opacity=0)
        bars = bars + words + room
    return bars.properties(height=210)


LABEL_COLOURS = {
    "one bandit for everybody": "#E69F00",
    "best division": BLUE,
    "one label": "#009E73",
}
"""What is compared with a label -> its colour, in the order of the legend."""


def label_panel(compared: LabelComparison, firm_budget: float) -> ChartType:
    """Chart expected losses by firm budget: divided, on one label, and with no budget."""
    budgets = compared.firm_budgets
    lines = {
        "one bandit for everybody": np.full(budgets.size, compared.pooled),
        "best division": compared.divided,
        "one label": compared.label,
    }
    records = [
        record
        for way, losses in lines.items()
        for record in rows(firm_budget=budgets, regret=losses, way=way)
    ]
    line = (
        alt.Chart(values(records))
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("firm_budget:Q", title="firm budget, in nats", axis=alt.Axis(tickCount=6)),
            y=alt.Y("regret:Q", title="expected loss", axis=_number()),
            color=alt.Color(
                "way:N",
                scale=alt.Scale(domain=[*LABEL_COLOURS], range=[*LABEL_COLOURS.values()]),
                legend=alt.Legend(orient="top", title=None, columns=3),
            ),
        )
    )
    here = alt.Chart(values([{"firm_budget": firm_budget}])).encode(x="firm_budget:Q")
    rule = here.mark_rule(color=ACCENT, strokeDash=[5, 3], strokeWidth=1.5)
    return alt.layer(line, rule).properties(title="One label for all experiments", height=HEIGHT)


def _number() -> alt.Axis:
    return alt.Axis(labelExpr=_SHORT, tickCount=6)


PANELS: dict[str, Panel] = {
    "bars": Panel("Who gets what", bars_panel, ("bars",)),
    "gains": Panel("Where the next nat helps most", gains_panel, ("gains", "dots", "price")),
    "what_if": Panel("What another budget would change", what_if_panel, ("what_if", "here")),
    "rules": Panel("Against simpler rules", rules_panel, ("rules",)),
}
"""All charts of an allocation, by name."""


# -- the paper's two experiments -------------------------------------------------------------------

_STAGES = ("equal split", "half-way", "optimal")


def two_experiments(firm_budgets: tuple[float, ...] = (4.0, 1.5)) -> ChartType:
    """Chart one row per firm budget, from an equal split to the optimum, dynamic strategy only."""
    panels = []
    for firm in firm_budgets:
        best = allocate(TWO_EXPERIMENTS, firm, regime="dynamic")
        even = np.full(2, firm / 2)
        for stage, part in zip(_STAGES, (0.0, 0.5, 1.0), strict=True):
            budgets = even + part * (best.budgets - even)
            then = even + min(part + 0.5, 1.0) * (best.budgets - even)
            panels.append(_panel(f"Firm budget {firm:g}: {stage}", budgets, then))
    return themed(alt.concat(*panels, columns=len(_STAGES)).resolve_scale(x="shared", y="shared"))


def _panel(title: str, budgets: FloatArray, then: FloatArray) -> ChartType:
    lines, points, arrows = [], [], []
    for i, name in enumerate(TWO_EXPERIMENTS.ids):
        visitors = int(TWO_EXPERIMENTS.visitors[i])
        end = float(best_dynamic_budget(2, visitors))
        grid = np.linspace(0, end, 240)[:-1]
        lines += rows(budget=grid, gain=dynamic_gain(2, visitors, grid), experiment=name)
        lines += rows(budget=[end, end + 1e-6], gain=[np.nan, 0], experiment=name)
        here = min(float(budgets[i]), end - 1e-9)
        gain = float(dynamic_gain(2, visitors, here))
        points += rows(budget=[here], gain=[gain], experiment=name)
        if abs(then[i] - budgets[i]) > 1e-6:
            arrows += rows(budget=[here], to=[float(then[i])], gain=[gain], experiment=name)
    x = alt.X("budget:Q", title="privacy budget", scale=alt.Scale(domain=[0, 3]))
    y = alt.Y("gain:Q", title="marginal learning gain", scale=alt.Scale(domain=[0, 5000]))
    scale = alt.Scale(domain=["A", "B"], range=["#CC79A7", BLUE])
    colour = alt.Color("experiment:N", scale=scale, title="experiment")
    line = (
        alt.Chart(values(r for r in lines if r["gain"] is not None))
        .mark_line()
        .encode(x=x, y=y, color=colour)
    )
    dot = alt.Chart(values(points)).mark_point(filled=True, size=80, opacity=1)
    layers = [line, dot.encode(x=alt.X("budget:Q"), y=alt.Y("gain:Q"), color=colour)]
    if arrows:
        move = alt.Chart(values(arrows))
        layers.append(
            move.mark_rule(color=ACCENT, strokeWidth=2).encode(
                x=alt.X("budget:Q"), x2=alt.X2("to:Q"), y=alt.Y("gain:Q")
            )
        )
        layers.append(
            move.mark_point(shape="triangle-right", filled=True, color=ACCENT, size=70, opacity=1)
            .transform_calculate(turn="datum.to > datum.budget ? 0 : 180")
            .encode(x=alt.X("to:Q"), y=alt.Y("gain:Q"), angle=alt.Angle("turn:Q", scale=None))
        )
    place = {"dy": -13, "fontSize": 11}
    words = alt.Chart(values(points)).encode(
        x=alt.X("budget:Q"), y=alt.Y("gain:Q"), text=alt.Text("budget:Q", format=".2f")
    )
    layers += [words.mark_text(**place, stroke="white", strokeWidth=4)]
    layers += [words.mark_text(**place, color=INK)]
    return alt.layer(*layers).properties(title=title, width=230, height=170)
