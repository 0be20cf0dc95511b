"""The planner page's charts: made once, filled with data as the budget moves.

Each function returns an Altair chart without data; `DATASETS` names what it reads. A page keeps the
chart and replaces the data, which is much faster than drawing another chart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt

from deniable.charts.theme import ACCENT, INK, STRATEGY_COLOURS

HEIGHT = 240
PERCENT = alt.Axis(format=".0%")
_NAMES = list(STRATEGY_COLOURS)
_COLOUR = alt.Color(
    "strategy:N",
    scale=alt.Scale(domain=_NAMES, range=list(STRATEGY_COLOURS.values())),
    legend=alt.Legend(orient="top", title=None),
)
_DASH = alt.StrokeDash(
    "strategy:N",
    scale=alt.Scale(domain=_NAMES, range=[[6, 3], [1, 0]]),
    legend=alt.Legend(orient="top", title=None),
)


def belief_chart() -> Any:
    """The least and the most a tracker can believe, over all priors, at one budget."""
    area = (
        alt.Chart(alt.NamedData(name="belief"))
        .mark_area(opacity=0.25, color=STRATEGY_COLOURS["dynamic"], line={"strokeWidth": 1.5})
        .encode(
            x=alt.X("prior:Q", title="belief before", axis=PERCENT, scale=_unit()),
            y=alt.Y("low:Q", title="belief after one shown arm", axis=PERCENT, scale=_unit()),
            y2="high:Q",
        )
    )
    top = alt.Chart(alt.NamedData(name="belief")).mark_line(color=STRATEGY_COLOURS["dynamic"])
    none = alt.Chart(alt.NamedData(name="belief")).mark_line(
        color=INK, strokeWidth=1, strokeDash=[3, 3], opacity=0.6
    )
    here = alt.Chart(alt.NamedData(name="belief_here")).encode(x="prior:Q", y="belief:Q")
    return _sized(
        area
        + none.encode(x="prior:Q", y="prior:Q")
        + top.encode(x="prior:Q", y="high:Q")
        + here.mark_point(filled=True, size=90, color=ACCENT, opacity=1)
        + here.mark_text(align="left", dx=9, dy=12, color=ACCENT, fontSize=12).encode(text="text:N")
    )


def schedule_chart() -> Any:
    """Share of random arms over a segment's visitors, both strategies."""
    lines = (
        alt.Chart(alt.NamedData(name="schedule"))
        .mark_line()
        .encode(
            x=alt.X(
                "clock:Q",
                title="visitor of the segment",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~s", tickCount=6, grid=False),
            ),
            y=alt.Y("share:Q", title="share of random arms", axis=PERCENT, scale=_unit()),
            color=_COLOUR,
            strokeDash=_DASH,
        )
    )
    return _sized(lines)


def regret_chart() -> Any:
    """Clicks lost at most over the budget; a point at each strategy's best budget."""
    points = (
        alt.Chart(alt.NamedData(name="best"))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(x="budget:Q", y="regret:Q", color=_COLOUR)
    )
    words = (
        alt.Chart(alt.NamedData(name="best"))
        .mark_text(dy=16, fontSize=11, color=INK)
        .encode(x="budget:Q", y="regret:Q", text="text:N")
    )
    lines = _over_budget("regret", "clicks lost, at most", alt.Axis(format="~s"))
    return _sized(alt.layer(lines, _chosen(), points, words))


def parts_chart() -> Any:
    """What the loss at this budget is made of, one bar a strategy."""
    kinds = ["learning", "random arms", "wrong best arm"]
    return (
        alt.Chart(alt.NamedData(name="parts"), height=90)
        .mark_bar(height=24)
        .encode(
            y=alt.Y("strategy:N", title=None, sort=_NAMES),
            x=alt.X(
                "clicks:Q", title="clicks lost, at most", axis=alt.Axis(format="~s", tickCount=6)
            ),
            color=alt.Color(
                "part:N",
                sort=kinds,
                scale=alt.Scale(domain=kinds, range=["#009E73", "#E69F00", "#CC79A7"]),
                legend=alt.Legend(orient="top", title=None),
            ),
            order="order:Q",
        )
    )


def elasticity_chart() -> Any:
    """Percent of loss per percent of budget; below zero is too random, above too greedy."""
    zero = alt.Chart(alt.NamedData(name="zero")).encode(y="y:Q")
    words = [
        zero.mark_text(align="left", dx=6, fontSize=11, color=INK).encode(
            text=f"{side}:N", x=alt.value(0), y=alt.value(place)
        )
        for side, place in (("above", 8), ("below", HEIGHT - 10))
    ]
    lines = _over_budget("elasticity", "% of loss per % of budget", alt.Axis())
    rule = zero.mark_rule(color=INK, opacity=0.6)
    return _sized(alt.layer(rule, lines, _chosen(), *words))


CHARTS: dict[str, Callable[[], Any]] = {
    "belief": belief_chart,
    "schedule": schedule_chart,
    "regret": regret_chart,
    "parts": parts_chart,
    "elasticity": elasticity_chart,
}
"""Every chart of the page by name."""

DATASETS: dict[str, tuple[str, ...]] = {
    "belief": ("belief", "belief_here"),
    "schedule": ("schedule",),
    "regret": ("regret", "best", "chosen"),
    "parts": ("parts",),
    "elasticity": ("elasticity", "zero", "chosen"),
}
"""The data each chart reads."""


def _over_budget(name: str, label: str, axis: Any) -> Any:
    return (
        alt.Chart(alt.NamedData(name=name))
        .mark_line(clip=True)
        .encode(
            x=alt.X(
                "budget:Q",
                title="privacy budget",
                scale=alt.Scale(nice=False, zero=True),
                axis=alt.Axis(tickCount=8),
            ),
            y=alt.Y(f"{name}:Q", title=label, axis=axis),
            color=_COLOUR,
            strokeDash=_DASH,
        )
    )


def _chosen() -> Any:
    base = alt.Chart(alt.NamedData(name="chosen")).encode(x="budget:Q")
    word = base.mark_text(align="left", dx=5, dy=6, color=ACCENT, fontSize=12)
    return base.mark_rule(color=ACCENT, strokeWidth=2) + word.encode(y=alt.value(0), text="text:N")


def _unit() -> Any:
    return alt.Scale(domain=[0, 1])


def _sized(chart: Any) -> Any:
    return chart.properties(height=HEIGHT)
