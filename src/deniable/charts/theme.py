"""The house style of all figures: colours for colour-blind readers, and quiet axes.

Also contains helpers for all figures: records as chart data, ticks, and time axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import altair as alt
import numpy as np
from altair.typing import ChartType
from numpy.typing import ArrayLike, NDArray

from deniable._types import Record
from deniable.strategies import STRATEGIES

Records: TypeAlias = list[Record]
"""The data of a chart."""

_COLOURS = ("#D55E00", "#0072B2", "#882255", "#117733", "#44AA99", "#999933")
_LINES = ([6, 3], [1, 0], [2, 2], [9, 3, 2, 3], [4, 2], [1, 3])


def strategy_colours() -> dict[str, str]:
    """Return the colour of each strategy, in order (first Okabe and Ito's, then Tol's).

    >>> strategy_colours()["dynamic"]
    '#0072B2'
    """
    return {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(STRATEGIES)}


def strategy_encodings(**legend: str | int | None) -> dict[str, alt.Color | alt.StrokeDash]:
    """Return colour and dash by the field `strategy`, for all strategies."""
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
"""Colours of the built-in strategies."""

BENCHMARK_COLOURS = {
    "epsilon-greedy": "#009E73",
    "gittins": "#CC79A7",
    "perfect": "#555555",
    "random": "#999999",
}
"""Colours of policies that spend no budget."""

ORDERED_COLOURS = ("#46085C", "#3B528B", "#21918C", "#4FAF5B", "#C9A500")
"""Colours of ordered series, dark to light: small budgets are dark."""

DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2])
"""Line types of ordered series, for printing without colour."""

BLUE = "#0072B2"
"""Colour of a single series that is not a strategy."""

ACCENT = "#B3261E"
"""Colour of a mark that must stand out: a chosen budget, a red point."""

INK, GRID = "#2B2B2B", "#E3E3E3"


class Panel(NamedTuple):
    """One chart without data, of several that are shown together.

    Attributes:
        title: its title.
        make: creates the chart.
        datasets: the names of the data that it reads.
    """

    title: str
    make: Callable[[], ChartType]
    datasets: tuple[str, ...]


def themed(chart: ChartType) -> ChartType:
    """Apply the house style; call it once, on the outermost chart."""
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


@lru_cache(maxsize=512)
def specification(make: Callable[..., ChartType], *arguments: object) -> Record:
    """Return a chart without data as Vega-Lite, made once per process. Do not modify it."""
    made: Record = make(*arguments).to_dict(validate=False)
    return made


def with_datasets(chart: ChartType, datasets: dict[str, Records]) -> ChartType:
    """Set the data that a chart reads by name; `properties` would validate every record."""
    chart.datasets = datasets
    return chart


def ordered_scale(values: list[str]) -> tuple[list[str], list[list[int]]]:
    """Return a colour and a dash for each value of an ordered series, repeating after five."""
    colours = [ORDERED_COLOURS[i % len(ORDERED_COLOURS)] for i in range(len(values))]
    dashes = [DASHES[i % len(DASHES)] for i in range(len(values))]
    return colours, dashes


def rows(**columns: ArrayLike) -> Records:
    """Create records from columns that broadcast against each other; numbers become floats.

    >>> rows(budget=[1, 2], strategy="dynamic")
    [{'budget': 1.0, 'strategy': 'dynamic'}, {'budget': 2.0, 'strategy': 'dynamic'}]
    """
    arrays = np.broadcast_arrays(*(np.asarray(column) for column in columns.values()))
    plain = [_plain(array.ravel()) for array in arrays]
    return [dict(zip(columns, values, strict=True)) for values in zip(*plain, strict=True)]


class _SharedRecords(alt.Data):  # type: ignore[misc]
    """Chart data that copies of a chart share.

    Altair copies a chart whenever it becomes part of another one, but records never change. They are
    validated with the complete chart, not also when they are made.
    """

    _class_is_valid_at_instantiation = False

    def __deepcopy__(self, memo: object) -> _SharedRecords:
        return _SharedRecords(**self._kwds)


def values(*groups: Iterable[Mapping[str, object]]) -> alt.Data:
    """Create chart data from one or several lists of records."""
    return _SharedRecords(values=[dict(record) for group in groups for record in group])


def powers_of_ten(largest: float) -> list[float]:
    """Return ticks of a logarithmic axis from 1 on, with a grid line at each power.

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
"""Tick formats, by the unit that a tick is a multiple of; the default would be 12-hour times."""


def utc_axis(field: str, *, ticks: int) -> alt.X:
    """Return the horizontal axis of a chart over time; the field holds ISO times with offset."""
    axis = alt.Axis(format=_TIME_FORMATS, tickCount=ticks, labelOverlap=True, labelSeparation=8)
    return alt.X(f"{field}:T", title="time (UTC)", scale=alt.Scale(type="utc"), axis=axis)
