"""The house style of all figures: colours that colour-blind readers can tell apart, quiet axes."""

from __future__ import annotations

from typing import Any

STRATEGY_COLOURS = {"constant": "#D55E00", "dynamic": "#0072B2"}
"""The two strategies, everywhere (Okabe and Ito's vermilion and blue)."""

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

ACCENT = "#B3261E"
"""A mark that must be seen: a chosen budget, a red point."""

INK, GRID = "#2B2B2B", "#E3E3E3"


def themed(chart: Any) -> Any:
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
