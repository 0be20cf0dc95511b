"""A running experiment as pictures: arms compared, shows and clicks over time, risk, regret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from deniable.charts.data import values
from deniable.charts.theme import ACCENT, BENCHMARK_COLOURS, INK, STRATEGY_COLOURS

HEIGHT = 220
ARM_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#8A6D00",
    "#56A0D3",
    "#7A7A7A",
    "#5B4A9E",
)
MOST_ARMS = 8
"""Arms with a line of their own; the others are in the table."""

Records = Sequence[Mapping[str, Any]]


def arm_intervals(arms: Records) -> Any:
    """Success rate of each arm with its 95% interval: records of arm, rate, low, high."""
    names = [str(record["arm"]) for record in arms]
    base = alt.Chart(values(arms), height=30 * len(arms)).encode(
        y=alt.Y("arm:N", sort=names, title=None, axis=alt.Axis(labelLimit=150)),
    )
    rate = {"title": "success rate if everybody were shown it", "axis": alt.Axis(format="~%")}
    scale = alt.Scale(zero=False, nice=True)
    spans = base.mark_rule(strokeWidth=5, opacity=0.35, color=STRATEGY_COLOURS["dynamic"]).encode(
        x=alt.X("low:Q", scale=scale, **rate), x2="high:Q"
    )
    points = base.mark_point(
        filled=True, size=90, opacity=1, color=STRATEGY_COLOURS["dynamic"]
    ).encode(x=alt.X("rate:Q", scale=scale, **rate))
    return spans + points


def totals_over_time(records: Records, arms: Sequence[str], title: str) -> Any:
    """Running totals by arm: records of time (ISO), arm, total."""
    shown = list(arms[:MOST_ARMS])
    return (
        alt.Chart(values(record for record in records if record["arm"] in shown), height=HEIGHT)
        .mark_line(interpolate="monotone")
        .encode(
            x=alt.X("time:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(tickCount=5)),
            y=alt.Y("total:Q", title=title, axis=alt.Axis(format="~s", tickCount=5)),
            color=alt.Color(
                "arm:N",
                title=None,
                sort=shown,
                scale=alt.Scale(domain=shown, range=list(ARM_COLOURS[: len(shown)])),
                legend=alt.Legend(orient="top", labelLimit=140, columns=4),
            ),
        )
    )


def segment_risks(records: Records, cap: float) -> Any:
    """Risk of each segment's next visitor as a bar up to the cap: records of segment, risk."""
    names = [str(record["segment"]) for record in records]
    bars = (
        alt.Chart(values(records), height=26 * len(records))
        .mark_bar(height=14, color=STRATEGY_COLOURS["dynamic"])
        .encode(
            y=alt.Y("segment:N", sort=names, title=None, axis=alt.Axis(labelLimit=150)),
            x=alt.X("risk:Q", title="privacy risk of the next visitor, in nats"),
        )
    )
    line = (
        alt.Chart(values([{"cap": cap}]))
        .mark_rule(color=ACCENT, strokeDash=[5, 3], strokeWidth=2)
        .encode(x=alt.X("cap:Q", scale=alt.Scale(domain=[0, cap * 1.05 or 1])))
    )
    return bars + line


def regret_against_bound(records: Records, visitors: int) -> Any:
    """Clicks lost over visitors, on a logarithmic scale: records of visitors, clicks, series."""
    series = ["lost, estimated", "lost at random", "bound"]
    colours = [STRATEGY_COLOURS["dynamic"], BENCHMARK_COLOURS["random"], INK]
    return (
        alt.Chart(values(records), height=HEIGHT)
        .mark_line(clip=True)
        .encode(
            x=alt.X(
                "visitors:Q",
                title="visitors",
                scale=alt.Scale(domain=[0, max(visitors, 1)], nice=False),
                axis=alt.Axis(format="~s", tickCount=5),
            ),
            y=alt.Y(
                "clicks:Q",
                title="clicks",
                scale=alt.Scale(type="symlog", domainMin=0),
                axis=alt.Axis(format="~s", values=[0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7]),
            ),
            color=alt.Color(
                "series:N",
                title=None,
                sort=series,
                scale=alt.Scale(domain=series, range=colours),
                legend=alt.Legend(orient="top", columns=3),
            ),
            strokeDash=alt.StrokeDash(
                "series:N",
                title=None,
                sort=series,
                scale=alt.Scale(domain=series, range=[[1, 0], [3, 3], [8, 3]]),
            ),
        )
    )
