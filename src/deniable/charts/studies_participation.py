"""The distribution of visitors' realized risk, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
from altair.typing import ChartType

from deniable.charts.studies_firm import RULE_COLOURS
from deniable.charts.theme import ACCENT, themed, values

if TYPE_CHECKING:
    import polars as pl


def risk_distributions(curve: pl.DataFrame, firm_budget: float) -> ChartType:
    """A panel a share of experiments met; one line a rule, the worst case in red.

    Args:
        curve: columns rule, share, risk, part.
        firm_budget: the worst case.
    """
    panels = []
    for (share,), rows in curve.group_by("share", maintain_order=True):
        lines = (
            alt.Chart(values(rows.to_dicts()), title=f"{share:.0%} of experiments met")
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X("risk:Q", title="total risk of a visitor"),
                y=alt.Y("part:Q", title="part of visitors", axis=alt.Axis(format=".0%")),
                color=alt.Color(
                    "rule:N",
                    title="rule",
                    scale=alt.Scale(domain=list(RULE_COLOURS), range=list(RULE_COLOURS.values())),
                ),
                strokeDash=alt.StrokeDash(
                    "rule:N",
                    title="rule",
                    scale=alt.Scale(domain=list(RULE_COLOURS), range=[[1, 0], [5, 3]]),
                ),
            )
        )
        worst = alt.Chart(values([{"risk": firm_budget, "text": "worst case"}])).encode(x="risk:Q")
        word = worst.mark_text(align="right", dx=-4, color=ACCENT, fontSize=11)
        layers = (
            lines,
            worst.mark_rule(color=ACCENT, strokeWidth=1.5),
            word.encode(y=alt.value(195), text="text:N"),
        )
        panels.append(alt.layer(*layers).properties(width=215, height=210))
    return themed(alt.hconcat(*panels))
