"""A plan as a picture: what a budget means, how it is spent, what it costs, where more would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from deniable.charts.beliefs import belief_bounds
from deniable.charts.data import powers_of_ten, rows, values
from deniable.charts.theme import ACCENT, INK, STRATEGY_COLOURS, ordered_scale
from deniable.strategies.arm_budgets import ArmConstantStrategy, ArmDynamicStrategy
from deniable.strategies.constant import ConstantStrategy
from deniable.strategies.dynamic import DynamicStrategy
from deniable.theory.best_budget import best_constant_budget, best_dynamic_budget
from deniable.theory.elasticity import constant_elasticity, dynamic_elasticity
from deniable.theory.regret import constant_regret, dynamic_regret

WIDTH, HEIGHT = 330, 230

STRATEGY = alt.Color(
    "strategy:N",
    scale=alt.Scale(domain=list(STRATEGY_COLOURS), range=list(STRATEGY_COLOURS.values())),
    title="strategy",
)
STRATEGY_DASH = alt.StrokeDash(
    "strategy:N",
    scale=alt.Scale(domain=list(STRATEGY_COLOURS), range=[[6, 3], [1, 0]]),
    title="strategy",
)


def plan_chart(*, n_arms: int, horizon: int, n_segments: int, prior: float, budget: float) -> Any:
    """Four panels: belief, random arms over time, regret bound and elasticity over the budget."""
    best = {
        "constant": float(best_constant_budget(n_arms, horizon, n_segments)),
        "dynamic": float(best_dynamic_budget(n_arms, horizon, n_segments)),
    }
    top = max(1.4 * max(best.values()), 1.25 * budget, 1.0)
    budgets = np.unique(np.append(np.linspace(top / 400, top, 240), list(best.values())))
    sizes = (n_arms, horizon, budgets, n_segments)
    belief = belief_bounds([budget], marked=[(prior, budget)], width=WIDTH, height=HEIGHT)
    curves = {
        "regret": {"constant": constant_regret(*sizes), "dynamic": dynamic_regret(*sizes)},
        "elasticity": {
            "constant": constant_elasticity(*sizes),
            "dynamic": dynamic_elasticity(*sizes),
        },
    }
    return alt.concat(
        belief.properties(title="What a tracker could believe"),
        _schedules(n_arms, horizon, budget),
        _regret(curves["regret"], budgets, best, budget),
        _elasticity(curves["elasticity"], budgets, budget),
        columns=2,
    ).resolve_scale(color="independent", strokeDash="independent")


def arm_plan_chart(*, budgets: Sequence[float], horizon: int, prior: float) -> Any:
    """Shown arm by greedy arm as a heat map, beliefs by arm, random arms over time."""
    names = [f"arm {i + 1}" for i in range(len(budgets))]
    matrix = ArmConstantStrategy(list(budgets)).mechanism(1).matrix
    cells = [
        {"shown": names[j], "greedy": names[i], "probability": float(matrix[j, i])}
        for j in range(len(names))
        for i in range(len(names))
    ]
    base = alt.Chart(values(cells), title="Probability of the shown arm", width=260, height=HEIGHT)
    base = base.encode(
        x=alt.X("greedy:N", sort=names, title="greedy arm", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("shown:N", sort=names, title="shown arm"),
    )
    heat = base.mark_rect().encode(
        color=alt.Color(
            "probability:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=None
        )
    )
    text = base.mark_text(fontSize=12).encode(
        text=alt.Text("probability:Q", format=".3f"),
        color=alt.condition("datum.probability > 0.55", alt.value("white"), alt.value(INK)),
    )
    colours, dashes = ordered_scale(names)
    clock = _clock(horizon)
    risks = ArmDynamicStrategy(list(budgets)).arm_risks(clock)
    spent = [
        row for i, name in enumerate(names) for row in rows(clock=clock, risk=risks[:, i], arm=name)
    ]
    schedule = (
        alt.Chart(
            values(spent), title="Risk of each arm, dynamic strategy", width=WIDTH, height=HEIGHT
        )
        .mark_line()
        .encode(
            x=_clock_axis(horizon, "visitor of the experiment"),
            y=alt.Y("risk:Q", title="privacy risk"),
            color=alt.Color("arm:N", sort=names, scale=alt.Scale(domain=names, range=colours)),
            strokeDash=alt.StrokeDash(
                "arm:N", sort=names, scale=alt.Scale(domain=names, range=dashes)
            ),
        )
    )
    largest = max(budgets)
    shown = belief_bounds(
        sorted(set(budgets)),
        marked=[(prior, b) for b in (min(budgets), largest)],
        width=WIDTH,
        height=HEIGHT,
    )
    return alt.hconcat(
        heat + text, schedule, shown.properties(title="What a tracker could believe")
    ).resolve_scale(color="independent", strokeDash="independent")


def _schedules(n_arms: int, horizon: int, budget: float) -> Any:
    clock = _clock(horizon)
    lines = [
        row
        for name, strategy in (
            ("constant", ConstantStrategy(n_arms, budget)),
            ("dynamic", DynamicStrategy(n_arms, budget)),
        )
        for row in rows(clock=clock, exploration=strategy.exploration(clock), strategy=name)
    ]
    return (
        alt.Chart(
            values(lines), title="Random arms over a segment's visitors", width=WIDTH, height=HEIGHT
        )
        .mark_line()
        .encode(
            x=_clock_axis(horizon, "visitor of the segment"),
            y=alt.Y(
                "exploration:Q",
                title="share of random arms",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%"),
            ),
            color=STRATEGY,
            strokeDash=STRATEGY_DASH,
        )
    )


def _regret(curves: dict[str, Any], budgets: Any, best: dict[str, float], budget: float) -> Any:
    lines = _lines(curves, budgets, "expected clicks lost, at most", alt.Axis(format="~s"))
    points = [
        alt.Chart(values(rows(budget=[at], y=[np.interp(at, budgets, np.asarray(curves[name]))])))
        .mark_point(filled=True, size=80, opacity=1, color=STRATEGY_COLOURS[name])
        .encode(x="budget:Q", y="y:Q")
        for name, at in best.items()
    ]
    return alt.layer(*lines, _chosen(budget), *points).properties(
        title="Regret bound (points: best budgets)", width=WIDTH, height=HEIGHT
    )


def _elasticity(curves: dict[str, Any], budgets: Any, budget: float) -> Any:
    zero = alt.Chart(values(rows(y=[0]))).mark_rule(color=INK, opacity=0.5).encode(y="y:Q")
    lines = _lines(curves, budgets, "% of regret per % of budget", alt.Axis())
    return alt.layer(zero, *lines, _chosen(budget)).properties(
        title="Elasticity: below 0 too random, above too greedy", width=WIDTH, height=HEIGHT
    )


def _lines(curves: dict[str, Any], budgets: Any, label: str, axis: Any) -> list[Any]:
    records = [
        row for name, y in curves.items() for row in rows(budget=budgets, y=y, strategy=name)
    ]
    return [
        alt.Chart(values(records))
        .mark_line()
        .encode(
            x=alt.X("budget:Q", title="privacy budget", scale=alt.Scale(nice=False, zero=True)),
            y=alt.Y("y:Q", title=label, axis=axis),
            color=STRATEGY,
            strokeDash=STRATEGY_DASH,
        )
    ]


def _chosen(budget: float) -> Any:
    base = alt.Chart(values(rows(budget=[budget]))).encode(x="budget:Q")
    word = base.mark_text(align="left", dx=5, dy=7, color=ACCENT, fontSize=11)
    label = word.encode(y=alt.value(0), text=alt.value(f"budget {budget:.4g}"))
    return base.mark_rule(color=ACCENT, strokeWidth=1.5) + label


def _clock(horizon: int) -> Any:
    return np.unique(np.geomspace(1, max(horizon, 2), 200).round())


def _clock_axis(horizon: int, title: str) -> Any:
    return alt.X(
        "clock:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format="~s", values=powers_of_ten(horizon)),
    )
