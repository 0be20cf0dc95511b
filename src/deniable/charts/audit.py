"""Charts of an audit: shown arms compared with the design, and each arm's worst case."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
from altair.typing import ChartType

from deniable.charts.experiments import spending_chart
from deniable.charts.theme import ACCENT, INK, values

WIDTH = 360
_SHARES = alt.Scale(domain=["observed", "designed"], range=["#0072B2", "#999999"])


def audit_chart(
    *, arms: Sequence[tuple[str, int, float]], ratios: Sequence[tuple[str, float, float]]
) -> ChartType:
    """Chart shares of arms, observed and designed, and the worst change of odds against the budget.

    Args:
        arms: (arm, observed count, expected count); empty before the first visitor.
        ratios: (arm, worst change of log odds in nats, budget in nats).
    """
    panels = [_ratios(ratios)]
    if arms:
        panels.insert(0, _shares(arms))
    return alt.hconcat(*panels).resolve_scale(color="independent")


def _shares(arms: Sequence[tuple[str, int, float]]) -> ChartType:
    total = sum(observed for _, observed, _ in arms) or 1
    records = [
        {"arm": name, "share": count / total, "which": which}
        for name, observed, expected in arms
        for which, count in (("observed", observed), ("designed", expected))
    ]
    names = [name for name, _, _ in arms]
    return (
        alt.Chart(values(records), title="Arms shown", width=WIDTH, height=alt.Step(14))
        .mark_bar()
        .encode(
            y=alt.Y("arm:N", sort=names, title=None),
            yOffset=alt.YOffset("which:N", sort=["observed", "designed"]),
            x=alt.X("share:Q", title="share of visitors", axis=alt.Axis(format=".0%")),
            color=alt.Color("which:N", scale=_SHARES, title=None),
        )
    )


def _ratios(ratios: Sequence[tuple[str, float, float]]) -> ChartType:
    records = [{"arm": name, "worst": worst, "budget": cap} for name, worst, cap in ratios]
    names = [name for name, _, _ in ratios]
    base = alt.Chart(
        values(records), title="Worst case of each shown arm", width=WIDTH, height=alt.Step(28)
    ).encode(y=alt.Y("arm:N", sort=names, title=None))
    bars = base.mark_bar(height=14, color="#0072B2").encode(
        x=alt.X("worst:Q", title="move of a tracker's log odds, nats")
    )
    cap = base.mark_tick(color=ACCENT, thickness=3, height=24).encode(x=alt.X("budget:Q"))
    words = base.mark_text(align="left", dx=8, color=INK, fontSize=11)
    return bars + cap + words.encode(x=alt.X("budget:Q"), text=alt.Text("budget:Q", format=".3~r"))


def account_chart(points: Sequence[tuple[str, float, float]], *, width: int) -> ChartType:
    """Chart what counted over time, below the promised budget.

    Args:
        points: (ISO time, nats that count from then on, budget in nats), oldest first.
        width: width of the plot.
    """
    records = [{"time": at, "committed": nats, "budget": cap} for at, nats, cap in points]
    return spending_chart(values(records)).properties(width=width)
