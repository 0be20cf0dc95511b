"""Charts of labels: what a label tells about the people who have it."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable._validation import FloatArray
from deniable.charts.theme import ACCENT, values

_OTHERS = "#D5D5D5"


def hundred(shares: FloatArray) -> list[int]:
    """Round shares that sum to 1 to whole percents that sum to 100.

    >>> hundred(np.array([0.475, 0.175, 0.175, 0.175]))
    [48, 18, 17, 17]
    """
    percents = np.floor(100 * shares)
    missing = 100 - int(percents.sum())
    percents[np.argsort(percents - 100 * shares, kind="stable")[:missing]] += 1
    return [int(percent) for percent in percents]


def label_chart(
    labels: Sequence[str], segments: Sequence[str], own: Sequence[int], posterior: FloatArray
) -> ChartType:
    """Chart, for each label, how many of 100 people with it are in each segment.

    Args:
        labels: as they are written, in order.
        segments: in order.
        own: for each segment the number of the label whose group it is in.
        posterior: the share of each segment (column) among the people with each label (row).
    """
    people = [hundred(shares) for shares in posterior]
    records = [
        {
            "label": label,
            "segment": segment,
            "people": people[row][column],
            "own": "in the label's group" if own[column] == row else "in another group",
        }
        for row, label in enumerate(labels)
        for column, segment in enumerate(segments)
    ]
    base = alt.Chart(values(records)).encode(
        x=alt.X("people:Q", title="of 100 people with this label", scale=alt.Scale(domainMin=0)),
        y=alt.Y("segment:N", sort=list(segments), title=None),
    )
    bars = base.mark_bar(height=14).encode(
        color=alt.Color(
            "own:N",
            scale=alt.Scale(
                domain=["in the label's group", "in another group"], range=[ACCENT, _OTHERS]
            ),
            legend=alt.Legend(orient="top", title=None),
        )
    )
    figures = base.mark_text(align="left", dx=4).encode(text=alt.Text("people:Q"))
    return (
        alt.layer(bars, figures)
        .properties(width=220, height=22 * len(segments))
        .facet(
            facet=alt.Facet(
                "label:N",
                sort=list(labels),
                title=None,
                header=alt.Header(labelAnchor="start", labelFontWeight="bold"),
            ),
            columns=2,
        )
    )
