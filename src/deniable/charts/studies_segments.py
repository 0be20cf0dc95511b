"""Clicks lost by number of segments, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.theme import Records, themed, values

if TYPE_CHECKING:
    import polars as pl

COLOURS = {"by segment": "#0072B2", "pooled": "#E69F00"}


def segment_losses(table: pl.DataFrame) -> ChartType:
    """A column a world, a row a number of visitors.

    Args:
        table: columns world, segments, learning, visitors, policy, lost_mean, lost_low, lost_high.
    """
    return themed(
        alt.vconcat(
            *(
                alt.hconcat(
                    *(
                        _panel(
                            rows.to_dicts(), f"{world[0].upper()}{world[1:]}, {visitors:,} visitors"
                        )
                        for (world,), rows in part.group_by("world", maintain_order=True)
                    )
                )
                for (visitors,), part in table.group_by("visitors", maintain_order=True)
            )
        ).resolve_scale(y="shared")
    )


def _panel(records: Records, title: str) -> ChartType:
    x = alt.X("segments:O", title="segments", axis=alt.Axis(labelAngle=0))
    y = alt.Y("lost_mean:Q", title="clicks lost per 1,000", scale=alt.Scale(domain=[0, 12]))
    colour = alt.Color(
        "learning:N",
        title="learning",
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
    )
    dash = alt.StrokeDash(
        "policy:N",
        title="strategy",
        scale=alt.Scale(domain=["constant", "dynamic"], range=[[4, 3], [1, 0]]),
    )
    shape = alt.Shape(
        "policy:N",
        title="strategy",
        scale=alt.Scale(domain=["constant", "dynamic"], range=["circle", "square"]),
    )
    base = alt.Chart(values(records), title=title, width=290, height=190)
    return alt.layer(
        base.mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_rule(strokeWidth=1.5).encode(x=x, y="lost_low:Q", y2="lost_high:Q", color=colour),
        base.mark_point(filled=True, size=48, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape
        ),
    )
