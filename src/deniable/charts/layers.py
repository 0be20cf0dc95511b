"""Charts of layers: the loss for other numbers of layers, and the shares in the best ones."""

from __future__ import annotations

import numpy as np

from deniable.charts.lazy_altair import ChartType, alt
from deniable.charts.theme import ACCENT, BLUE, INK, rows, themed, values
from deniable.portfolio.layers import LayerDesign


def layers_chart(design: LayerDesign) -> ChartType:
    """Chart expected loss over the number of layers, next to a single sum, and the layers' shares."""
    return themed(alt.vconcat(loss_chart(design), shares_chart(design)))


def loss_chart(design: LayerDesign, *, width: int = 620, height: int = 220) -> ChartType:
    """Chart the what-if curve, with a rule for every visitor in every experiment."""
    points = rows(layers=list(design.n_layers), loss=design.losses)
    line = alt.Chart(
        values([point for point in points if point["loss"] is not None]),
        title="What another number of layers would lose",
        width=width,
        height=height,
    ).encode(
        x=alt.X("layers:Q", title="layers", axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y("loss:Q", title="expected loss", scale=alt.Scale(zero=False)),
    )
    text = f"every visitor in every experiment: {design.one_sum_loss:,.0f}"
    known = (
        rows(loss=[design.one_sum_loss], text=[text]) if np.isfinite(design.one_sum_loss) else []
    )
    rule = alt.Chart(values(known)).encode(y=alt.Y("loss:Q"))
    here = alt.Chart(
        values(
            rows(
                layers=[len(design.layers)],
                loss=[design.total_loss],
                text=[f"{len(design.layers)}: {design.total_loss:,.0f}"],
            )
        )
    ).encode(x=alt.X("layers:Q"), y=alt.Y("loss:Q"))
    return (
        line.mark_line(color=INK, point=True)
        + rule.mark_rule(strokeDash=[5, 3], color=INK)
        + rule.mark_text(align="left", dx=4, dy=-7, fontSize=11).encode(
            x=alt.value(0), text=alt.Text("text:N")
        )
        + here.mark_point(filled=True, size=90, color=ACCENT, opacity=1)
        + here.mark_text(align="left", dx=8, dy=-9, color=ACCENT, fontSize=11).encode(
            text=alt.Text("text:N")
        )
    )


def shares_chart(design: LayerDesign, *, width: int = 620) -> ChartType:
    """Chart one bar per layer, divided by the shares of its experiments."""
    records = design.rows()
    base = alt.Chart(
        values(records), title="Who shares a layer", width=width, height=alt.Step(26)
    ).encode(
        y=alt.Y("layer:N", title=None, sort=[layer.name for layer in design.layers]),
        x=alt.X("share:Q", title="share of the visitors", stack="zero"),
        order=alt.Order("id:N"),
        detail=alt.Detail("id:N"),
    )
    bars = base.mark_bar(stroke="white", color=BLUE, height=18).encode(
        opacity=alt.Opacity("budget:Q", title="budget", scale=alt.Scale(range=[0.25, 0.7])),
        tooltip=[
            alt.Tooltip("id:N"),
            alt.Tooltip("share:Q"),
            alt.Tooltip("budget:Q"),
            alt.Tooltip("strategy:N"),
            alt.Tooltip("visitors:Q"),
        ],
    )
    names = base.mark_text(fontSize=11, color=INK, limit=120).encode(
        x=alt.X("share:Q", stack="zero", bandPosition=0.5), text=alt.Text("id:N")
    )
    return bars + names
