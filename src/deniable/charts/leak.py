"""Charts of what a tracker learns: people out of 100, odds ratios, the effect of budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable.charts.theme import ACCENT, INK, STRATEGY_COLOURS, Records, rows, values
from deniable.privacy.belief import highest_belief

PERSON = (
    "M0,-.75A.27,.27,0,1,1,0,-.21A.27,.27,0,1,1,0,-.75ZM-.38,.72V.12A.38,.38,0,0,1,.38,.12V.72Z"
)
"""A person (head and shoulders) as a path around 0, used as a point shape."""

BEFORE, ADDED, REST = INK, ACCENT, "#D5D5D5"
_STATES = ("before", "added", "rest")
_ACROSS = 20
_HALF = 440
_BLUE = STRATEGY_COLOURS["dynamic"]
_BUDGET_COLOURS = ("#0072B2", "#009E73", "#CC79A7")


def people(before: int, after: int) -> Records:
    """Return 100 people in rows of 20: those in the segment by prior belief, those added, the rest.

    >>> [person["state"] for person in people(1, 3)][:4]
    ['before', 'added', 'added', 'rest']
    """
    return [
        {
            "x": place % _ACROSS,
            "y": place // _ACROSS,
            "state": "before" if place < before else "added" if place < after else "rest",
        }
        for place in range(100)
    ]


def people_picture(
    before: int, after: int, title: str, *, words: str, width: int = 320
) -> ChartType:
    """Chart the belief in one segment, before and after, out of 100 people.

    Args:
        before: how many of 100 the tracker believed to be in the segment.
        after: how many after it saw the most revealing variant.
        title: the segment.
        words: a line below the title.
        width: width of the picture; the height follows.
    """
    step = width / _ACROSS
    return (
        alt.Chart(
            values(people(before, max(before, after))),
            title=alt.TitleParams(title, subtitle=words, subtitleColor=INK, subtitleFontSize=11),
            width=width,
            height=step * 5 * 1.7,
        )
        .mark_point(shape=PERSON, filled=True, opacity=1, size=(step * 1.9) ** 2, strokeWidth=0)
        .encode(
            x=alt.X("x:O", axis=None),
            y=alt.Y("y:O", axis=None),
            fill=alt.Fill(
                "state:N",
                scale=alt.Scale(domain=list(_STATES), range=[BEFORE, ADDED, REST]),
                legend=None,
            ),
        )
    )


def ratio_chart(spans: Sequence[tuple[str, float, float, float]], *, width: int = 420) -> ChartType:
    """Chart odds ratios with their limits on a logarithmic axis; open ends are arrows.

    Args:
        spans: (name, estimate, low, high), the largest first; estimates and highs may be infinite.
        width: width of the plot.
    """
    finite = [x for _, *figures in spans for x in figures if x < float("inf")]
    top = 1.6 * max([2.0, *finite])
    records = [
        {
            "name": name,
            "value": value if value < top else None,  # open ends have an arrow instead of a point
            "at": min(value, top),
            "low": low,
            "high": min(high, top),
            "open": "▶" if high > top else "",
            "text": _factor(value),
        }
        for name, value, low, high in spans
    ]
    scale = alt.Scale(type="log", domain=[1, top], nice=False)
    base = alt.Chart(
        values(records),
        title="Odds about the segment, multiplied by one shown variant",
        width=width,
        height=alt.Step(26),
    ).encode(y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)))
    ticks = [x for x in (1, 2, 3, 5, 10, 20, 50, 100, 1_000, 10_000, 1e6) if x <= top]
    axis = alt.Axis(values=ticks, format="~s")
    lines = base.mark_rule(strokeWidth=6, opacity=0.3, color=_BLUE).encode(
        x=alt.X("low:Q", scale=scale, title="factor, with limits (log scale)", axis=axis),
        x2=alt.X2("high:Q"),
    )
    points = base.mark_point(filled=True, size=80, opacity=1, color=_BLUE).encode(
        x=alt.X("value:Q", scale=scale)
    )
    arrows = base.mark_text(color=_BLUE, fontSize=12, dx=3).encode(
        x=alt.X("high:Q", scale=scale), text=alt.Text("open:N")
    )
    words = base.mark_text(align="left", dx=1, dy=-10, fontSize=10, color=INK).encode(
        x=alt.X("at:Q", scale=scale), text=alt.Text("text:N")
    )
    return lines + points + arrows + words


class BudgetFigures(NamedTuple):
    """The effect of budgets: beliefs in one segment, and the rewards.

    Attributes:
        budgets: in nats.
        segment: the segment shown.
        before: prior belief in it.
        today: the belief in it after what is seen today.
        costs: (budget, mechanism, relative change of the rewards, its standard error or None).
    """

    budgets: list[float]
    segment: str
    before: float
    today: float
    costs: list[tuple[float, str, float, float | None]]


def budget_beliefs(
    budgets: Sequence[float],
    *,
    segment: str,
    before: float,
    today: float,
    width: int = 420,
    height: int = 200,
) -> ChartType:
    """Chart the strongest possible belief in a segment under each budget, with before and today."""
    grid = np.linspace(0, max(budgets), 121)
    curve = alt.Chart(values(rows(budget=grid, belief=highest_belief(before, grid))))
    chosen = alt.Chart(values(rows(budget=budgets, belief=highest_belief(before, budgets))))
    x = _budget_axis(budgets)
    y = alt.Y(
        "belief:Q", title="belief", axis=alt.Axis(format=".0%"), scale=alt.Scale(domain=[0, 1])
    )
    marks = [
        _level(before, f"before {before:.0%}", BEFORE, width, dy=9),
        _level(today, f"today {today:.0%}", ADDED, width, dy=-8),
    ]
    line = curve.mark_line(color=_BLUE).encode(x=x, y=y)
    points = chosen.mark_point(color=_BLUE, filled=True, size=60, opacity=1).encode(x=x, y=y)
    return alt.layer(*marks, line, points).properties(
        width=width, height=height, title=f"Belief in {segment} under a budget, at most"
    )


def _level(belief: float, text: str, colour: str, width: int, *, dy: int) -> ChartType:
    """Return a dashed line with its label at the right end, above or below."""
    base = alt.Chart(values(rows(belief=[belief]))).encode(y=alt.Y("belief:Q"))
    word = base.mark_text(align="right", dx=-4, dy=dy, fontSize=11, color=colour)
    rule = base.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=colour)
    return rule + word.encode(x=alt.value(width), text=alt.value(text))


def budget_costs(
    costs: Sequence[tuple[float, str, float, float | None]],
    *,
    reward: str,
    width: int = 420,
    height: int = 200,
) -> ChartType:
    """Chart the change of the rewards compared with today under each budget, with 95% intervals.

    Args:
        costs: (budget, mechanism, relative change, its standard error or None).
        reward: name of what is counted.
        width: width of the plot.
        height: height of the plot.
    """
    names = list(dict.fromkeys(name for _, name, _, _ in costs))
    records = [
        {
            "budget": budget,
            "mechanism": name,
            "change": change,
            "low": change - 1.96 * (error or 0),
            "high": change + 1.96 * (error or 0),
        }
        for budget, name, change, error in costs
    ]
    colour = alt.Color(
        "mechanism:N",
        sort=names,
        scale=alt.Scale(domain=names, range=list(_BUDGET_COLOURS[: len(names)])),
        legend=alt.Legend(
            orient="top", title=None, symbolType="circle", symbolOpacity=1, symbolSize=90
        ),
    )
    base = alt.Chart(
        values(records), title=f"Change in {reward} with a randomized response of"
    ).encode(x=_budget_axis(sorted({budget for budget, _, _, _ in costs})))
    zero = alt.Chart(values(rows(y=[0]))).mark_rule(color=INK, opacity=0.6)
    zero = zero.encode(y=alt.Y("y:Q", title=None))
    axis = alt.Axis(format="+.2~%", tickCount=6)
    bars = base.mark_rule(strokeWidth=5, opacity=0.3).encode(
        y=alt.Y("low:Q", title=None, axis=axis), y2=alt.Y2("high:Q"), color=colour
    )
    lines = base.mark_line(point={"filled": True, "size": 60}).encode(
        y=alt.Y("change:Q", title=None, axis=axis), color=colour
    )
    return (zero + bars + lines).properties(width=width, height=height)


def _budget_axis(budgets: Sequence[float]) -> alt.X:
    axis = alt.Axis(values=list(budgets), format="~g")
    scale = alt.Scale(domain=[0, max(1.03 * max(budgets), 0.1)], nice=False)
    return alt.X("budget:Q", title="privacy budget, nats", scale=scale, axis=axis)


def _factor(value: float) -> str:
    if value == float("inf"):
        return "∞"
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def leak_chart(
    *,
    title: str,
    beliefs: Sequence[tuple[str, int, int, str]],
    spans: Sequence[tuple[str, float, float, float]],
    budgets: BudgetFigures,
    reward: str,
) -> ChartType:
    """Combine all charts: people, ratios, budgets.

    Args:
        title: title of the whole chart.
        beliefs: (segment, before, after, words) out of 100, for each picture.
        spans: for `ratio_chart`.
        budgets: data of the two budget charts.
        reward: name of what is counted.
    """
    pictures = [people_picture(b, a, name, words=words) for name, b, a, words in beliefs]
    bound = budget_beliefs(
        budgets.budgets,
        segment=budgets.segment,
        before=budgets.before,
        today=budgets.today,
        width=_HALF,
    )
    costs = [budget_costs(budgets.costs, reward=reward, width=_HALF)] if budgets.costs else []
    return alt.vconcat(
        alt.hconcat(*pictures, spacing=36),
        ratio_chart(spans, width=2 * _HALF),
        alt.hconcat(bound, *costs, spacing=48).resolve_scale(color="independent"),
        spacing=36,
        title=alt.TitleParams(title, fontSize=17, offset=18),
    ).resolve_scale(color="independent", fill="independent")
