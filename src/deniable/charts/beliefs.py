"""What a budget means: the belief a tracker can reach from one shown arm, over all priors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from deniable.charts.data import rows, values
from deniable.charts.theme import ACCENT, INK, ordered_scale
from deniable.privacy.belief import belief_curve, highest_belief

PERCENT = alt.Axis(format=".0%")


def belief_bounds(
    budgets: Sequence[float] = (0.05, 0.5, 1, 3, 5),
    *,
    marked: Sequence[tuple[float, float]] = ((0.2, 0.05), (0.2, 1)),
    width: int = 420,
    height: int = 320,
) -> Any:
    """The lowest and highest posterior for each prior, one pair of curves a budget.

    Args:
        budgets: small budgets are dark.
        marked: (prior, budget) pairs shown as red points, as in the paper's figure.
        width: of the plot.
        height: of the plot.
    """
    names = [f"{budget:g}" for budget in budgets]
    colours, dashes = ordered_scale(names)
    curves = []
    for name, budget in zip(names, budgets, strict=True):
        prior, low, high = belief_curve(budget)
        curves += rows(prior=prior, belief=low, budget=name, bound="low")
        curves += rows(prior=prior, belief=high, budget=name, bound="high")
    lines = (
        alt.Chart(values(curves))
        .mark_line()
        .encode(
            x=alt.X("prior:Q", title="prior belief of the tracker", axis=PERCENT),
            y=alt.Y("belief:Q", title="belief after one shown arm", axis=PERCENT),
            color=alt.Color(
                "budget:N", sort=names, scale=alt.Scale(domain=names, range=colours), title="budget"
            ),
            strokeDash=alt.StrokeDash(
                "budget:N", sort=names, scale=alt.Scale(domain=names, range=dashes), title="budget"
            ),
            detail="bound:N",
            order="prior:Q",
        )
    )
    diagonal = (
        alt.Chart(values(rows(prior=[0, 1], belief=[0, 1])))
        .mark_line(color=INK, strokeWidth=1, opacity=0.5)
        .encode(x="prior:Q", y="belief:Q")
    )
    return (diagonal + lines + _points(marked)).properties(width=width, height=height)


def _points(marked: Sequence[tuple[float, float]]) -> Any:
    points = [
        {"prior": p, "belief": float(b), "text": f"{p:.0%} → {float(b):.1%}"}
        for p, b in ((p, highest_belief(p, risk)) for p, risk in marked)
    ]
    base = alt.Chart(values(points)).encode(x="prior:Q", y="belief:Q")
    dots = base.mark_point(filled=True, size=70, color=ACCENT, opacity=1)
    words = base.encode(text="text:N")
    place = {"align": "left", "dx": 10, "dy": 10, "fontSize": 11}
    halo = words.mark_text(**place, stroke="white", strokeWidth=5)
    return halo + words.mark_text(**place, color=ACCENT, fontWeight="bold") + dots
