"""How a strategy spends its budget: risk, random arms and greedy arms over the visitors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from deniable.charts.data import powers_of_ten, rows, values
from deniable.charts.theme import ordered_scale
from deniable.strategies.constant import ConstantStrategy
from deniable.strategies.dynamic import DynamicStrategy

STRATEGIES = {"constant": ConstantStrategy, "dynamic": DynamicStrategy}

PANELS = {
    "risk": "privacy risk",
    "exploration": "share of random arms",
    "exploitation": "share of greedy arms",
}
"""Column -> axis title, in the constant figure's order."""


def strategy_panels(
    strategy: Literal["constant", "dynamic"],
    *,
    n_arms: int = 2,
    horizon: int = 100_000,
    budgets: Sequence[float] = (0.05, 0.5, 1, 3, 5),
    width: int = 220,
    height: int = 220,
) -> Any:
    """Three panels over the visitor's clock: the paper's figure of this strategy."""
    names = [f"{budget:g}" for budget in budgets]
    colours, dashes = ordered_scale(names)
    clock = np.unique(np.geomspace(1, horizon, 160).round())
    records = []
    for name, budget in zip(names, budgets, strict=True):
        spent = STRATEGIES[strategy](n_arms, budget)
        rate = np.asarray(spent.exploration(clock))
        records += rows(
            clock=clock,
            risk=spent.risk(clock),
            exploration=rate,
            exploitation=1 - rate,
            budget=name,
        )
    data = values(records)
    colour = alt.Color(
        "budget:N", sort=names, scale=alt.Scale(domain=names, range=colours), title="budget"
    )
    dash = alt.StrokeDash(
        "budget:N", sort=names, scale=alt.Scale(domain=names, range=dashes), title="budget"
    )
    return alt.hconcat(
        *(
            alt.Chart(data, width=width, height=height)
            .mark_line()
            .encode(
                x=alt.X(
                    "clock:Q",
                    title="visitor of the segment",
                    scale=alt.Scale(type="log", nice=False),
                    axis=alt.Axis(format="~s", values=powers_of_ten(horizon)),
                ),
                y=alt.Y(
                    f"{column}:Q",
                    title=title,
                    scale=alt.Undefined if column == "risk" else alt.Scale(domain=[0, 1]),
                    axis=alt.Axis() if column == "risk" else alt.Axis(format=".0%"),
                ),
                color=colour,
                strokeDash=dash,
            )
            for column, title in PANELS.items()
        )
    )
