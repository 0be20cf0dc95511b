"""Charts of an allocation: who gets what, why, and the effect of another firm budget.

And of layers: the loss for other numbers of layers, and the shares in the best ones. And of the paper's
two experiments: budget flows to the larger marginal gain, or all of it to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable._validation import FloatArray
from deniable.charts.theme import ACCENT, INK, STRATEGY_COLOURS, rows, themed, values
from deniable.errors import NANO
from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.layers import LayerDesign
from deniable.portfolio.problem import TWO_EXPERIMENTS
from deniable.portfolio.rules import RuleOutcome, compare_rules
from deniable.portfolio.whatif import WhatIf, what_if
from deniable.theory.best_budget import best_dynamic_budget
from deniable.theory.elasticity import dynamic_gain

MOST_BARS = 36
MOST_CURVES = 6

_STRATEGY = alt.Color(
    "strategy:N",
    scale=alt.Scale(domain=list(STRATEGY_COLOURS), range=list(STRATEGY_COLOURS.values())),
    title="strategy",
)
_SHORT = "replace(format(datum.value, '~s'), 'G', 'B')"  # 2B instead of the SI prefix 2G
_RULE_COLOURS = {
    "optimal": "#0072B2",
    "best budgets": "#555555",
    "equal split": "#E69F00",
    "zero": "#999999",
    "random arms": "#CC79A7",
}


def allocation_chart(found: Allocation, *, compared: bool = False, n_points: int = 25) -> ChartType:
    """Chart budgets, marginal gains that meet at lambda, and the what-if curve.

    Args:
        found: the allocation.
        compared: add the rules' total regret.
        n_points: number of firm budgets on the what-if curve.
    """
    curve = what_if(found.portfolio, regime=found.regime, n_points=n_points)
    below = [gain_chart(found), what_if_chart(curve, found)]
    if compared:
        below.append(rules_chart(compare_rules(found), title=_loss_title(found)))
    panels = alt.vconcat(
        budget_bars(found), alt.concat(*below, columns=2).resolve_scale(color="independent")
    )
    return themed(panels.resolve_scale(color="independent"))


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
        f"{value:,.4g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _loss_title(found: Allocation | None) -> str:
    expected = found is not None and found.portfolio.objective == "expected"
    return "expected loss" if expected else "total regret bound"


def budget_bars(found: Allocation, *, width: int = 920, height: int = 190) -> ChartType:
    """Chart the largest budgets, one bar per experiment, coloured by strategy."""
    frame = found.frame().head(MOST_BARS)
    shown = frame.filter(frame["budget_nano"] > 0)
    rest = found.portfolio.size - shown.height
    records = shown.select("id", "strategy", "budget", "arms", "visitors").to_dicts()
    title = f"Budgets: {found.spent_nano / NANO:.6g} of {found.firm_budget:g} nats"
    if rest:
        title += (
            f"; {rest:,} more experiments have {'less' if shown.height == MOST_BARS else 'none'}"
        )
    size = min(34.0, 0.75 * width / max(len(records), 1))
    base = alt.Chart(values(records), title=title, width=width, height=height).encode(
        x=alt.X(
            "id:N",
            sort=[record["id"] for record in records],
            title=None,
            axis=alt.Axis(labelAngle=0 if len(records) < 10 else -50, grid=False, labelLimit=90),
        ),
        y=alt.Y("budget:Q", title="privacy budget"),
    )
    bars = base.mark_bar(size=size).encode(
        color=_STRATEGY, tooltip=["id:N", "strategy:N", "budget:Q", "arms:Q", "visitors:Q"]
    )
    words = base.mark_text(dy=-7, fontSize=10, color=INK)
    return bars + words.encode(text=alt.Text("budget:Q", format=".2f"))


def gain_chart(found: Allocation, *, width: int = 400, height: int = 210) -> ChartType:
    """Chart marginal gains over the budget for some experiments, with points where they meet lambda."""
    lines, points = [], []
    for row in _some(found):
        curve = found.curve[row]
        budget = np.linspace(0, float(found.curves.useful[curve]), 161)[1:-1]
        height_of = found.curves.gain(np.full(budget.size, curve), budget)
        name = found.portfolio.ids[row]
        lines += rows(budget=budget, gain=height_of, experiment=name)
        points += rows(
            budget=[found.budgets[row]], gain=[found.marginal_gain[row]], experiment=name
        )
    names = [point["experiment"] for point in points]
    shown = found.shadow_value
    top = max([point["gain"] for point in points] + [shown, 1.0])
    y = alt.Y(
        "gain:Q",
        title="marginal learning gain",
        scale=alt.Scale(domain=[0, 1.6 * top], clamp=False),
        axis=alt.Axis(labelExpr=_SHORT),
    )
    colour = alt.Color("experiment:N", sort=names, scale=alt.Scale(scheme="dark2"))
    line = (
        alt.Chart(values(lines), title="Marginal gains meet at lambda", width=width, height=height)
        .mark_line(clip=True)
        .encode(x=alt.X("budget:Q", title="privacy budget"), y=y, color=colour)
    )
    dots = alt.Chart(values(points)).mark_point(filled=True, size=60, opacity=1)
    rule = alt.Chart(values(rows(gain=[shown], text=[f"lambda = {shown:,.0f}"])))
    return (
        line
        + rule.mark_rule(color=ACCENT, strokeDash=[5, 3]).encode(y="gain:Q")
        + dots.encode(x="budget:Q", y="gain:Q", color=colour)
        + rule.mark_text(align="right", dy=-7, color=ACCENT, fontSize=11).encode(
            y="gain:Q", x=alt.value(width), text="text:N"
        )
    )


def what_if_chart(
    curve: WhatIf, found: Allocation | None = None, *, width: int = 400, height: int = 210
) -> ChartType:
    """Chart the smallest total regret over the firm budget, with the allocation as a point."""
    line = (
        alt.Chart(
            values(rows(budget=curve.firm_budgets, regret=curve.total_regret)),
            title="What another firm budget would change",
            width=width,
            height=height,
        )
        .mark_line(color=INK)
        .encode(
            x=alt.X("budget:Q", title="firm budget"),
            y=alt.Y(
                "regret:Q",
                title=_loss_title(found),
                scale=alt.Scale(domainMin=0),
                axis=alt.Axis(labelExpr=_SHORT),
            ),
        )
    )
    if found is None:
        return line
    here = alt.Chart(
        values(
            rows(
                budget=[found.firm_budget],
                regret=[found.total_regret],
                text=[f"{found.firm_budget:g} nats: {found.total_regret:,.0f}"],
            )
        )
    ).encode(x="budget:Q", y="regret:Q")
    dot = here.mark_point(filled=True, color=ACCENT, size=80, opacity=1)
    return (
        line
        + dot
        + here.mark_text(align="left", dx=8, dy=-8, color=ACCENT, fontSize=11).encode(text="text:N")
    )


def rules_chart(
    outcomes: Sequence[RuleOutcome], *, title: str = "total regret bound", width: int = 400
) -> ChartType:
    """Chart total regret by rule, with each rule's cost on its bar."""
    records = [
        {
            "rule": outcome.rule,
            "regret": outcome.total_regret,
            "text": f"{outcome.total_regret:,.0f}  (costs {outcome.cost_nano / NANO:.4g})",
        }
        for outcome in outcomes
    ]
    base = alt.Chart(values(records), title="Rules", width=width, height=alt.Step(26)).encode(
        y=alt.Y("rule:N", sort=None, title=None),
        x=alt.X(
            "regret:Q",
            title=title,
            axis=alt.Axis(labelExpr=_SHORT, tickCount=5),
            scale=alt.Scale(domain=[0, 1.55 * max(o.total_regret for o in outcomes)]),
        ),
    )
    scale = alt.Scale(domain=list(_RULE_COLOURS), range=list(_RULE_COLOURS.values()))
    bars = base.mark_bar(height=16).encode(color=alt.Color("rule:N", scale=scale, legend=None))
    words = base.mark_text(align="left", dx=5, fontSize=11, color=INK).encode(text="text:N")
    return bars + words


def _some(found: Allocation) -> list[int]:
    """Return funded experiments from the largest budget to the smallest, evenly spaced."""
    order = np.argsort(-found.budgets_nano, kind="stable")
    funded = order[found.budgets_nano[order] > 0]
    if funded.size == 0:
        return [int(row) for row in order[:MOST_CURVES]]
    picked = np.unique(np.linspace(0, funded.size - 1, MOST_CURVES).round().astype(int))
    return [int(funded[i]) for i in picked]


def layers_chart(design: LayerDesign) -> ChartType:
    """Chart expected loss over the number of layers, next to a single sum, and the layers' shares."""
    return themed(alt.vconcat(loss_chart(design), shares_chart(design)))


def loss_chart(design: LayerDesign, *, width: int = 620, height: int = 220) -> ChartType:
    """Chart the what-if curve, with a rule for every visitor in every experiment."""
    points = rows(layers=list(design.n_layers), loss=design.losses)
    line = alt.Chart(
        values([point for point in points if point["loss"] is not None]),
        title="What another number of layers would lose",
        width=width,
        height=height,
    ).encode(
        x=alt.X("layers:Q", title="layers", axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y("loss:Q", title="expected loss", scale=alt.Scale(zero=False)),
    )
    text = f"every visitor in every experiment: {design.one_sum_loss:,.0f}"
    known = (
        rows(loss=[design.one_sum_loss], text=[text]) if np.isfinite(design.one_sum_loss) else []
    )
    rule = alt.Chart(values(known)).encode(y="loss:Q")
    here = alt.Chart(
        values(
            rows(
                layers=[len(design.layers)],
                loss=[design.total_loss],
                text=[f"{len(design.layers)}: {design.total_loss:,.0f}"],
            )
        )
    ).encode(x="layers:Q", y="loss:Q")
    return (
        line.mark_line(color=INK, point=True)
        + rule.mark_rule(strokeDash=[5, 3], color=INK)
        + rule.mark_text(align="left", dx=4, dy=-7, fontSize=11).encode(
            x=alt.value(0), text="text:N"
        )
        + here.mark_point(filled=True, size=90, color=ACCENT, opacity=1)
        + here.mark_text(align="left", dx=8, dy=-9, color=ACCENT, fontSize=11).encode(text="text:N")
    )


def shares_chart(design: LayerDesign, *, width: int = 620) -> ChartType:
    """Chart one bar per layer, divided by the shares of its experiments."""
    records = design.rows()
    base = alt.Chart(
        values(records), title="Who shares a layer", width=width, height=alt.Step(26)
    ).encode(
        y=alt.Y("layer:N", title=None, sort=[layer.name for layer in design.layers]),
        x=alt.X("share:Q", title="share of the visitors", stack="zero"),
        order=alt.Order("id:N"),
        detail="id:N",
    )
    bars = base.mark_bar(stroke="white", color="#0072B2", height=18).encode(
        opacity=alt.Opacity("budget:Q", title="budget", scale=alt.Scale(range=[0.25, 0.7])),
        tooltip=["id:N", "share:Q", "budget:Q", "strategy:N", "visitors:Q"],
    )
    names = base.mark_text(fontSize=11, color=INK, limit=120).encode(
        x=alt.X("share:Q", stack="zero", bandPosition=0.5), text="id:N"
    )
    return bars + names


# -- the paper's two experiments -------------------------------------------------------------------

_COLOURS = alt.Scale(domain=["A", "B"], range=["#CC79A7", "#0072B2"])
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
    colour = alt.Color("experiment:N", scale=_COLOURS, title="experiment")
    line = (
        alt.Chart(values(r for r in lines if r["gain"] is not None))
        .mark_line()
        .encode(x=x, y=y, color=colour)
    )
    dot = alt.Chart(values(points)).mark_point(filled=True, size=80, opacity=1)
    layers = [line, dot.encode(x="budget:Q", y="gain:Q", color=colour)]
    if arrows:
        move = alt.Chart(values(arrows))
        layers.append(
            move.mark_rule(color=ACCENT, strokeWidth=2).encode(x="budget:Q", x2="to:Q", y="gain:Q")
        )
        layers.append(
            move.mark_point(shape="triangle-right", filled=True, color=ACCENT, size=70, opacity=1)
            .transform_calculate(turn="datum.to > datum.budget ? 0 : 180")
            .encode(x="to:Q", y="gain:Q", angle=alt.Angle("turn:Q", scale=None))
        )
    place = {"dy": -13, "fontSize": 11}
    words = alt.Chart(values(points)).encode(
        x="budget:Q", y="gain:Q", text=alt.Text("budget:Q", format=".2f")
    )
    layers += [words.mark_text(**place, stroke="white", strokeWidth=4)]
    layers += [words.mark_text(**place, color=INK)]
    return alt.layer(*layers).properties(title=title, width=230, height=170)
