"""The house style of all figures: colours that colour-blind readers can tell apart, quiet axes.

And what all figures need: records as chart data, ticks, and time as pages tell it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable._types import Record
from deniable.charts.library import ChartType, alt
from deniable.strategies import STRATEGIES

Records: TypeAlias = list[Record]
"""The data of a chart."""

_COLOURS = ("#D55E00", "#0072B2", "#882255", "#117733", "#44AA99", "#999933")
_LINES = ([6, 3], [1, 0], [2, 2], [9, 3, 2, 3], [4, 2], [1, 3])


def strategy_colours() -> dict[str, str]:
    """The colour of each strategy, in the table's order (first Okabe and Ito's, then Tol's).

    >>> strategy_colours()["dynamic"]
    '#0072B2'
    """
    return {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(STRATEGIES)}


def strategy_encodings(**legend: str | int | None) -> dict[str, alt.Color | alt.StrokeDash]:
    """Colour and dash by the field `strategy`, for every strategy there is."""
    colours = strategy_colours()
    dashes = [_LINES[i % len(_LINES)] for i in range(len(colours))]
    shown = alt.Legend(**{"symbolType": "stroke", **legend})
    return {
        "color": alt.Color(
            "strategy:N",
            scale=alt.Scale(domain=list(colours), range=list(colours.values())),
            legend=shown,
        ),
        "strokeDash": alt.StrokeDash(
            "strategy:N", scale=alt.Scale(domain=list(colours), range=dashes), legend=shown
        ),
    }


STRATEGY_COLOURS = strategy_colours()
"""The colours of the strategies that come with the package."""

BENCHMARK_COLOURS = {
    "epsilon-greedy": "#009E73",
    "gittins": "#CC79A7",
    "perfect": "#555555",
    "random": "#999999",
}
"""Policies that spend no budget."""

ORDERED_COLOURS = ("#46085C", "#3B528B", "#21918C", "#4FAF5B", "#C9A500")
"""Ordered series, dark to light: small budgets are dark."""

DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2])
"""Line types of ordered series, for print without colour."""

BLUE = "#0072B2"
"""A single series that is no strategy's."""

ACCENT = "#B3261E"
"""A mark that must be seen: a chosen budget, a red point."""

INK, GRID = "#2B2B2B", "#E3E3E3"


def themed(chart: ChartType) -> ChartType:
    """The finished chart in the house style; apply it once, to the outermost chart."""
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 12}
    return chart.configure(
        font="Liberation Sans, Arial, Helvetica, sans-serif",
        background="white",
        padding=12,
        axis={
            **text,
            "titleFontWeight": "normal",
            "gridColor": GRID,
            "domainColor": INK,
            "tickColor": INK,
            "labelFlush": False,
        },
        legend={**text, "titleFontWeight": "normal", "symbolStrokeWidth": 2.5, "symbolSize": 180},
        header={**text, "labelFontSize": 12},
        title={"color": INK, "fontSize": 13, "anchor": "start", "fontWeight": "bold", "offset": 8},
        view={"stroke": None},
        line={"strokeWidth": 2},
    )


def ordered_scale(values: list[str]) -> tuple[list[str], list[list[int]]]:
    """A colour and a dash for each value of an ordered series, repeating after five."""
    colours = [ORDERED_COLOURS[i % len(ORDERED_COLOURS)] for i in range(len(values))]
    dashes = [DASHES[i % len(DASHES)] for i in range(len(values))]
    return colours, dashes


def rows(**columns: ArrayLike) -> Records:
    """Records from columns that broadcast against each other; numbers become plain floats.

    >>> rows(budget=[1, 2], strategy="dynamic")
    [{'budget': 1.0, 'strategy': 'dynamic'}, {'budget': 2.0, 'strategy': 'dynamic'}]
    """
    arrays = np.broadcast_arrays(*(np.asarray(column) for column in columns.values()))
    plain = [_plain(array.ravel()) for array in arrays]
    return [dict(zip(columns, values, strict=True)) for values in zip(*plain, strict=True)]


def values(*groups: Iterable[Mapping[str, object]]) -> alt.Data:
    """Chart data from records, or from several lists of them."""
    return alt.Data(values=[dict(record) for group in groups for record in group])


def powers_of_ten(largest: float) -> list[float]:
    """Ticks of a logarithmic axis from 1 on; a grid line at each power is enough.

    >>> powers_of_ten(20_000)
    [1.0, 10.0, 100.0, 1000.0, 10000.0]
    """
    return [10.0**power for power in range(int(np.log10(max(largest, 1)) + 1e-9) + 1)]


def _plain(array: NDArray[np.generic]) -> list[float | str | None]:
    if array.dtype.kind in "iuf":
        return [float(x) if np.isfinite(x) else None for x in array]
    return [str(x) for x in array]


_TIME_FORMATS = {
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


def utc_axis(field: str, *, ticks: int) -> alt.X:
    """The horizontal axis of a chart over time; the field holds ISO times with their offset."""
    axis = alt.Axis(format=_TIME_FORMATS, tickCount=ticks, labelOverlap=True, labelSeparation=8)
    return alt.X(f"{field}:T", title="time (UTC)", scale=alt.Scale(type="utc"), axis=axis)
