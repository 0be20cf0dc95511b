"""Time as pages tell it: 24 hours, UTC, and the axis says so."""

from __future__ import annotations

from typing import Any

import altair as alt

FORMATS = {
    "year": "%Y",
    "quarter": "%b %Y",
    "month": "%b %Y",
    "week": "%-d %b",
    "date": "%-d %b",
    "day": "%-d %b",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": "%H:%M:%S",
}
"""How a tick is written, by what it is a multiple of: the default would be 12 hours."""


def utc_axis(field: str, *, ticks: int) -> Any:
    """The horizontal axis of a chart over time; the field holds ISO times with their offset."""
    axis = alt.Axis(format=FORMATS, tickCount=ticks, labelOverlap=True, labelSeparation=8)
    return alt.X(f"{field}:T", title="time (UTC)", scale=alt.Scale(type="utc"), axis=axis)
