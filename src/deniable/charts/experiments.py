"""Charts of running experiments: shows and clicks over time, risk, regret; the firm's budget.

The charts are made without data, which is supplied later and repeatedly: each names its dataset,
and the page passes records under that name. A page that is updated every two seconds only sends
records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle

import altair as alt
from altair.typing import ChartType

from deniable.charts.theme import ACCENT, BENCHMARK_COLOURS, INK, STRATEGY_COLOURS, utc_axis

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
MOST_ARMS = len(ARM_COLOURS)
"""Maximum number of arms with their own line; the others are in the table."""

COLOUR_WORDS = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "red": "#D55E00",
    "green": "#009E73",
    "pink": "#CC79A7",
    "yellow": "#8A6D00",
    "gold": "#8A6D00",
    "grey": "#7A7A7A",
    "gray": "#7A7A7A",
    "purple": "#5B4A9E",
    "violet": "#5B4A9E",
}
"""An arm with one of these words in its name is always drawn in that colour."""

HOVER_TIME = "%-d %b %Y, %H:%M"
HOVER_UNIT = "utcyearmonthdatehoursminutes"
HOVER_SIZE = 450
"""Area around a point, in square pixels, in which its tooltip is shown."""

REGRET_SERIES = ("lost, estimated", "lost at random", "bound")


def arm_colours(arms: Sequence[str]) -> list[str]:
    """Return the colour of each arm, by its index among all arms: the same in every chart.

    An arm named after a colour gets that colour; the others get the remaining ones, in order.

    >>> arm_colours(["grey", "green", "large"])
    ['#7A7A7A', '#009E73', '#0072B2']
    """
    named: dict[str, str] = {}
    for arm in arms:
        words = re.findall(r"[a-z]+", arm.lower())
        colour = next((COLOUR_WORDS[word] for word in words if word in COLOUR_WORDS), None)
        if colour is not None and colour not in named.values():
            named[arm] = colour
    left = [colour for colour in ARM_COLOURS if colour not in named.values()] or list(ARM_COLOURS)
    others = cycle(left)
    return [named[arm] if arm in named else next(others) for arm in arms]


def arm_scale(arms: Sequence[str]) -> alt.Scale:
    """Return the scale of arm colours."""
    return alt.Scale(domain=list(arms), range=arm_colours(arms))


def totals_over_time(arms: Sequence[str], title: str) -> ChartType:
    """Chart running totals by arm; dataset `totals`: time (ISO), arm, total."""
    base = alt.Chart(alt.NamedData("totals"), height=HEIGHT).encode(
        x=utc_axis("time", ticks=5),
        y=alt.Y("total:Q", title=title, axis=alt.Axis(format=",d", tickCount=5)),
        color=alt.Color(
            "arm:N",
            title=None,
            sort=list(arms),
            scale=arm_scale(arms),
            legend=alt.Legend(orient="top", labelLimit=110, columns=3),
        ),
    )
    return base.mark_line() + hover_points(
        base,
        alt.Tooltip(f"{HOVER_UNIT}(time):T", title="time (UTC)", format=HOVER_TIME),
        alt.Tooltip("arm:N"),
        alt.Tooltip("total:Q", title=title, format=",d"),
    )


def hover_points(base: ChartType, *tooltip: alt.Tooltip) -> ChartType:
    """Return invisible points with tooltips, large enough to be hit by a pointer."""
    return base.mark_point(filled=True, size=HOVER_SIZE, opacity=0).encode(tooltip=list(tooltip))


def segment_risks(n_segments: int, cap: float) -> ChartType:
    """Chart the risk of each segment's next visitor, up to the cap; dataset `risks`: segment, risk."""
    bars = (
        alt.Chart(alt.NamedData("risks"), height=26 * n_segments)
        .mark_bar(height=14, color=STRATEGY_COLOURS["dynamic"])
        .encode(
            y=alt.Y("segment:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
            x=alt.X(
                "risk:Q",
                title="privacy risk of the next visitor, in nats",
                axis=alt.Axis(tickCount=6),
            ),
            tooltip=[
                alt.Tooltip("segment:N"),
                alt.Tooltip("risk:Q", title="risk, in nats", format=".4~r"),
            ],
        )
    )
    line = (
        alt.Chart(alt.Data(values=[{"cap": cap}]))
        .mark_rule(color=ACCENT, strokeDash=[5, 3], strokeWidth=2)
        .encode(x=alt.X("cap:Q", scale=alt.Scale(domain=[0, cap * 1.05 or 1])))
    )
    return bars + line


def regret_against_bound() -> ChartType:
    """Chart lost clicks over visitors; dataset `regret`: visitors, clicks, series."""
    series = list(REGRET_SERIES)
    colours = [STRATEGY_COLOURS["dynamic"], BENCHMARK_COLOURS["random"], INK]
    base = (
        alt.Chart(alt.NamedData("regret"), height=HEIGHT)
        .mark_line(clip=True)
        .encode(
            x=alt.X(
                "visitors:Q",
                title="visitors",
                scale=alt.Scale(nice=False),
                axis=alt.Axis(format=",d", tickCount=5),
            ),
            y=alt.Y(
                "clicks:Q",
                title="clicks",
                scale=alt.Scale(type="symlog", domainMin=0),
                axis=alt.Axis(format=",d", values=[0, *(10**power for power in range(8))]),
            ),
            color=alt.Color(
                "series:N",
                title=None,
                sort=series,
                scale=alt.Scale(domain=series, range=colours),
                legend=alt.Legend(orient="top", columns=2, symbolType="stroke"),
            ),
        )
    )
    lines = base.encode(
        strokeDash=alt.StrokeDash(
            "series:N",
            title=None,
            sort=series,
            scale=alt.Scale(domain=series, range=[[1, 0], [3, 3], [8, 3]]),
        )
    )
    return lines + hover_points(
        base,
        alt.Tooltip("series:N", title="clicks"),
        alt.Tooltip("visitors:Q", format=",d"),
        alt.Tooltip("clicks:Q", title="about", format=",.0f"),
    )


def spending_chart(data: alt.Data | None = None) -> ChartType:
    """Chart committed nats below the firm's budget; reads the dataset `spending` by default."""
    base = alt.Chart(alt.NamedData(name="spending") if data is None else data).encode(
        x=utc_axis("time", ticks=6)
    )
    y = alt.Y("committed:Q", title="nats", axis=alt.Axis(tickCount=5))
    committed = base.mark_area(
        interpolate="step-after",
        color=STRATEGY_COLOURS["dynamic"],
        opacity=0.35,
        line={"color": STRATEGY_COLOURS["dynamic"]},
    )
    limit = base.mark_line(interpolate="step-after", color=ACCENT, strokeDash=[5, 3])
    hovered = hover_points(
        base.encode(y=y),
        alt.Tooltip(f"{HOVER_UNIT}(time):T", title="time (UTC)", format=HOVER_TIME),
        alt.Tooltip("committed:Q", title="counts, nats", format=".4~r"),
        alt.Tooltip("budget:Q", title="firm's budget, nats", format=".4~r"),
    )
    return (committed.encode(y=y) + limit.encode(y=alt.Y("budget:Q")) + hovered).properties(
        height=200
    )
