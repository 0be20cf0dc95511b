"""Charts of what an experiment has learned: narrowing lifts, rates with bands, traffic by arm.

Like those of `experiments.py`, the charts are made without data: each names its dataset.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import altair as alt
from altair.typing import ChartType

from deniable._types import Record
from deniable.charts.experiments import MOST_ARMS, arm_scale, hover_points
from deniable.charts.theme import BLUE, INK, Records, themed

HEIGHT = 220


def lift_sequence(arms: Sequence[str], default: str, share: bool) -> ChartType:
    """Chart lifts against the default arm with their confidence sequences, over visitors.

    Dataset `lifts`: arm, visitors, estimate, low, high. Dataset `ends`: low and high over all panels,
    so that their axes are the same.

    Args:
        arms: all arms, in declared order, so that their colours do not change.
        default: the arm that the others are compared with; it has no line.
        share: whether rewards are shares, in points, or amounts.
    """
    base = alt.Chart(alt.NamedData("lifts"), height=HEIGHT).encode(
        x=alt.X(
            "visitors:Q",
            title="visitors",
            scale=alt.Scale(nice=False, zero=False),
            axis=alt.Axis(format=",d", tickCount=4),
        ),
        color=_colour(arms, [arm for arm in arms if arm != default]),
    )
    title = "lift, in points" if share else "difference"
    ends = alt.Y("low:Q", title=title, axis=alt.Axis(format="+,.3~r", tickCount=5))
    bands = base.mark_area(opacity=0.18, interpolate="monotone").encode(y=ends, y2=alt.Y2("high:Q"))
    middle = base.encode(y=alt.Y("estimate:Q", title=title))
    lines = middle.mark_line(interpolate="monotone", point=alt.OverlayMarkDef(size=18))
    # A line or an area is one mark, whose tooltip would show its first point.
    hovered = hover_points(
        middle,
        alt.Tooltip("arm:N"),
        alt.Tooltip("visitors:Q", format=",d"),
        alt.Tooltip("estimate:Q", title="lift", format=_format(share)),
        alt.Tooltip("low:Q", title="from", format=_format(share)),
        alt.Tooltip("high:Q", title="to", format=_format(share)),
    )
    nothing = (
        alt.Chart(alt.Data(values=[{"zero": 0}]))
        .mark_rule(color=INK, strokeDash=[4, 3])
        .encode(y=alt.Y("zero:Q", title=title))
    )
    room = alt.Chart(alt.NamedData("ends")).mark_rule(opacity=0)
    room = room.encode(y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"))
    return alt.layer(nothing, room, bands, lines, hovered)


def lift_ends(lifts: Sequence[Record]) -> list[Record]:
    """Return the dataset `ends` of `lift_sequence`, for the lifts of all panels."""
    if not lifts:
        return []
    return [{"low": min(one["low"] for one in lifts), "high": max(one["high"] for one in lifts)}]


def rates_with_bands(arms: Sequence[str], n_segments: int, share: bool) -> ChartType:
    """Chart mean rewards; dataset `rates`: segment, arm, estimate, low, high."""
    arms_drawn = max(2, len(arms))
    base = alt.Chart(
        alt.NamedData("rates"), height=max(HEIGHT, n_segments * (12 * arms_drawn + 14))
    ).encode(
        y=alt.Y("segment:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
        yOffset=alt.YOffset("arm:N", sort=list(arms), scale=alt.Scale(paddingOuter=0.35)),
        color=_colour(arms),
        tooltip=[
            alt.Tooltip("segment:N"),
            alt.Tooltip("arm:N"),
            alt.Tooltip("estimate:Q", title="mean", format=_level_format(share)),
            alt.Tooltip("low:Q", title="from", format=_level_format(share)),
            alt.Tooltip("high:Q", title="to", format=_level_format(share)),
        ],
    )
    scale = alt.Scale(zero=False, nice=True)
    mean = {
        "title": "mean reward",
        "axis": alt.Axis(format="~%" if share else ",.3~r", tickCount=6),
    }
    spans = base.mark_bar(size=8, opacity=0.35, cornerRadius=2).encode(
        x=alt.X("low:Q", scale=scale, **mean), x2=alt.X2("high:Q")
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X("estimate:Q", scale=scale, **mean)
    )
    return alt.layer(spans, points)


def traffic_by_arm(arms: Sequence[str]) -> ChartType:
    """Chart each arm's share of the visitors; dataset `traffic`: visitors, arm, share."""
    base = alt.Chart(alt.NamedData("traffic"), height=HEIGHT)
    x = alt.X(
        "visitors:Q",
        title="visitors",
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(format=",d", tickCount=4),
    )
    areas = base.mark_area(opacity=0.85, interpolate="step-before").encode(
        x=x,
        y=alt.Y(
            "share:Q",
            stack="normalize",
            title="share of visitors",
            axis=alt.Axis(format="~%", tickCount=5),
        ),
        order=alt.Order("position:Q"),
        color=_colour(arms),
    )
    # An area is one mark, whose tooltip would show its first step; invisible bars show each one's.
    steps = (
        base.transform_pivot("arm", value="share", groupby=["visitors"])
        .transform_window(since="lag(visitors)", sort=[alt.SortField("visitors")])
        .transform_filter("datum.since !== null")
        .mark_rect(opacity=0)
        .encode(
            x=x,
            x2=alt.X2("since:Q"),
            tooltip=[
                alt.Tooltip("since:Q", title="visitors from", format=",d"),
                alt.Tooltip("visitors:Q", title="to", format=",d"),
                *(
                    alt.Tooltip(field=_escaped(arm), type="quantitative", title=arm, format=".1%")
                    for arm in arms[:MOST_ARMS]
                ),
            ],
        )
    )
    return alt.layer(areas, steps)


def _escaped(name: str) -> str:
    r"""rEscape a name as a Vega field, where a dot would access an object.

    >>> print(_escaped("v1.2"))
    v1\.2
    """
    return re.sub(r"([.\[\]\\])", r"\\\1", name)


def delay_curve(unit: str) -> ChartType:
    """Chart the share of rewards by delay; dataset `delays`: minutes, hours, share.

    Args:
        unit: minutes or hours. The data has both, so that a page that stays open is never wrong.
    """
    base = alt.Chart(alt.NamedData("delays"), height=HEIGHT).encode(
        x=alt.X(f"{unit}:Q", title=f"{unit} after the decision", axis=alt.Axis(tickCount=4)),
        y=alt.Y(
            "share:Q",
            title="share of rewards",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(format="~%", tickCount=5),
        ),
    )
    return base.mark_line(point=True, color=BLUE, interpolate="linear") + hover_points(
        base, alt.Tooltip(f"{unit}:Q", format=",.3~r"), alt.Tooltip("share:Q", format=".0%")
    )


def lifts_and_rates(
    *,
    arms: Sequence[str],
    default: str,
    share: bool,
    places: Sequence[str | None],
    lifts: Sequence[Record],
    rates: Records,
) -> ChartType:
    """Combine lifts overall and of the largest segments with all rates, for a file.

    Args:
        arms: all arms.
        default: the arm that the others are compared with.
        share: whether rewards are shares.
        places: segments with their own panel; None for all together.
        lifts: records as for `lift_sequence`, with their segment.
        rates: records as for `rates_with_bands`.
    """
    panels, ends = [], lift_ends([one for one in lifts if one["segment"] in places])
    for place in places:
        own = [record for record in lifts if record["segment"] == place]
        panel = lift_sequence(arms, default, share).properties(
            title=place or "all segments", width=320, data=alt.Data(values=own)
        )
        panel.layer[1].data = alt.Data(values=ends)
        for layer in panel.layer[2:]:
            layer.data = alt.Undefined
        panels.append(panel)
    if not rates:
        nothing = alt.Chart(alt.Data(values=[{"text": "Too early to say anything."}]))
        return themed(nothing.mark_text(fontSize=14).encode(text=alt.Text("text:N")))
    bands = rates_with_bands(arms, len({one["segment"] for one in rates}), share)
    bands = bands.properties(title="mean reward", width=320, data=alt.Data(values=rates))
    for layer in bands.layer:
        layer.data = alt.Undefined
    return themed(alt.concat(*panels, bands, columns=2).resolve_scale(y="independent"))


def _colour(arms: Sequence[str], named: Sequence[str] | None = None) -> alt.Color:
    shown = {} if named is None else {"values": list(named)}
    return alt.Color(
        "arm:N",
        title=None,
        sort=list(arms),
        scale=arm_scale(arms),
        legend=alt.Legend(orient="top", labelLimit=110, columns=3, symbolOpacity=1, **shown),
    )


def _format(share: bool) -> str:
    return "+.1f" if share else "+,.3~r"


def _level_format(share: bool) -> str:
    return ".1%" if share else ",.3~r"
