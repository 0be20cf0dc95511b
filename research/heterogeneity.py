"""A budget per arm: the worked example, its cost in regret, and its limits."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType

from deniable import ArmDynamic
from deniable.charts.theme import ACCENT, INK, powers_of_ten, themed, values
from deniable.errors import InvalidArgumentError
from deniable.privacy import ArmSpecificResponse, RandomizedResponse
from deniable.theory import (
    arm_specific_constant_regret,
    arm_specific_excess,
    arm_specific_excess_linear,
    constant_regret,
    heterogeneity_gap,
)
from research.study import Claim, Context, Figure, StudyResult, judged

RISKS = (0.5, 1.0, 2.0)
"""The arms of the paper's example; a smaller risk means a more sensitive arm."""

MATRIX = ((0.775, 0.470, 0.470), (0.177, 0.482, 0.177), (0.048, 0.048, 0.353))
"""The published matrix: rows are shown arms, columns greedy arms."""

CLOCKS = np.unique(np.geomspace(10, 1_000_000, 81).round().astype(np.int64))
FIRST_RISKS = (2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.01)


def run(context: Context) -> StudyResult:
    """Compute the example exactly, without simulation."""
    response = ArmSpecificResponse(RISKS)
    matrix = pl.DataFrame(
        [
            {"shown": shown + 1, "greedy": greedy + 1, "probability": float(value)}
            for (shown, greedy), value in np.ndenumerate(response.matrix)
        ]
    )
    cost, limits = _cost(), _limits()
    return StudyResult(
        headline="Sensitive arms can have smaller budgets of their own, at the price of more random "
        "arms for everyone.",
        paragraphs=(
            "Some arms tell more about a visitor than others. With risks .5, 1 and 2 the most sensitive "
            "arm is explored most, so that seeing it means least. The price: more random arms in all, "
            "and fewer of the least explored arm, than one common risk of 2 would need. As one arm's "
            "risk goes to zero, that arm must be shown to everyone and nothing is learnt.",
        ),
        figures=(
            Figure(
                "arm_matrix",
                "Probability that an arm is shown (rows) for each greedy arm (columns). Along a row the "
                "largest ratio is e^.5, e^1, e^2.",
                arm_matrix(matrix),
                matrix,
            ),
            Figure(
                "arm_cost",
                "Left: what the bound of one visitor exceeds that of a common risk of 2 by, and its "
                "linear bound. Right: exploration and the bound over 100,000 visitors as the first "
                "arm's risk goes to zero.",
                arm_cost(cost, limits),
                cost,
            ),
        ),
        claims=(
            _published_matrix(response),
            _ratios(response),
            _nests(),
            _costs_more(),
            _linear(cost),
            _clocks(),
            _zero(),
        ),
        tables={"limits": limits},
    )


def _cost() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "visitor": CLOCKS,
            "excess": np.asarray(arm_specific_excess(RISKS, CLOCKS)),
            "linear_bound": np.asarray(arm_specific_excess_linear(RISKS, CLOCKS)),
        }
    )


def _limits() -> pl.DataFrame:
    rows = []
    for first in FIRST_RISKS:
        risks = (first, 2.0, 2.0)
        response = ArmSpecificResponse(risks)
        rows.append(
            {
                "first_risk": first,
                "exploration": response.exploration,
                "first_weight": float(response.weights[0]),
                "gap": float(heterogeneity_gap(risks)),
                "regret_bound": float(arm_specific_constant_regret(risks, 100_000)),
            }
        )
    return pl.DataFrame(rows)


def _published_matrix(response: ArmSpecificResponse) -> Claim:
    off = float(np.abs(response.matrix - np.array(MATRIX)).max())
    weights = " ".join(f"{weight:.3f}" for weight in response.weights)
    return Claim(
        "Risks .5, 1, 2: exploration .695, weights .676 .255 .069, and the matrix",
        "diagonal .775 .482 .353",
        f"{response.exploration:.3f}; {weights}; largest difference {off:.4f}",
        judged(off < 0.00051),
        "All nine entries agree to the printed digits.",
    )


def _ratios(response: ArmSpecificResponse) -> Claim:
    table = np.log(response.matrix)
    spread = table.max(axis=1) - table.min(axis=1)
    return Claim(
        "Each arm's log ratio is its own risk",
        ".5, 1, 2",
        ", ".join(f"{value:.6f}" for value in spread),
        judged(bool(np.allclose(spread, RISKS, atol=1e-12))),
        "The largest ratio of a row over all pairs of greedy arms.",
    )


def _nests() -> Claim:
    same = ArmSpecificResponse((1.0, 1.0, 1.0)).matrix
    off = float(np.abs(same - RandomizedResponse(3, 1.0).matrix).max())
    return Claim(
        "With equal risks it is the symmetric mechanism",
        "nested",
        f"largest difference {off:.0e}",
        judged(off < 1e-12),
        "Three arms at a risk of 1.",
    )


def _costs_more() -> Claim:
    special = float(arm_specific_constant_regret(RISKS, 100_000))
    common = float(constant_regret(3, 100_000, 2))
    return Claim(
        "Arm-specific risks raise the bound over a common risk of the same maximum",
        "larger, both terms",
        f"{special:,.0f} against {common:,.0f} over 100,000 visitors",
        judged(special > common),
        f"The gap on the exploration scale is {float(heterogeneity_gap(RISKS)):.3f}.",
    )


def _linear(cost: pl.DataFrame) -> Claim:
    ratio = np.asarray(cost["linear_bound"] / cost["excess"])
    return Claim(
        "The excess is at most a term linear in the gap",
        "upper bound",
        f"{ratio.min():.2f} to {ratio.max():.2f} times the excess",
        judged(bool((ratio >= 1).all())),
        "From visitor 10 to 1,000,000.",
    )


def _clocks() -> Claim:
    late = ArmDynamic(RISKS).mechanism(1_000_000).shown_distribution(0)[0]
    new = ArmDynamic(RISKS).mechanism(1).shown_distribution(1)[0]
    ratio = float(late / new)
    return Claim(
        "Dynamic arm-specific risks min(gamma_j, xi_t) keep e^gamma_j for each arm",
        f"arm 1: at most {math.exp(0.5):.2f}",
        f"{ratio:.2f} between a late and a new segment",
        judged(ratio <= math.exp(0.5), partly=True),
        "True while all segments share one clock. With a clock for each segment, an old segment shows "
        f"arm 1 with {late:.3f} and a new one with {new:.3f}. The strategy therefore runs on the "
        "experiment's clock.",
        settled=True,
    )


def _zero() -> Claim:
    try:
        ArmSpecificResponse((0.0, 1.0, 2.0))
        refused = False
    except InvalidArgumentError:
        refused = True
    near = float(ArmSpecificResponse((0.001, 1.0, 2.0)).matrix[0].min())
    return Claim(
        "Every arm's risk is above 0",
        "xi_j > 0",
        f"0 refused; at .001 that arm is shown to {near:.1%} or more",
        judged(refused and near > 0.99),
        "A risk of 0 for one arm means that it is shown always, alone. All risks 0 is uniform.",
    )


WIDTH, HEIGHT = 270, 210


def arm_matrix(matrix: pl.DataFrame) -> ChartType:
    """Chart columns shown, greedy, probability: one square per pair, darker for likelier."""
    size = 74 * matrix["shown"].n_unique()
    base = alt.Chart(values(matrix.to_dicts()), width=size, height=size).encode(
        x=alt.X("greedy:O", title="greedy arm", axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("shown:O", title="shown arm"),
    )
    shade = alt.Color("probability:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=None)
    ink = alt.condition("datum.probability > 0.5", alt.value("white"), alt.value(INK))
    words = base.mark_text(fontSize=14).encode(
        text=alt.Text("probability:Q", format=".3f"), color=ink
    )
    return themed(base.mark_rect(stroke="white", strokeWidth=2).encode(color=shade) + words)


def arm_cost(cost: pl.DataFrame, limits: pl.DataFrame) -> ChartType:
    """Chart the excess over a common risk by visitor, and exploration as one arm's risk falls."""
    return themed(alt.hconcat(_excess(cost), _exploration(limits), _bound(limits)))


def _excess(cost: pl.DataFrame) -> ChartType:
    last = float(cost["visitor"].max() or 1)  # type: ignore[arg-type]
    x = alt.X(
        "visitor:Q",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(format="~s", values=powers_of_ten(last)),
        title="visitor",
    )
    base = alt.Chart(
        values(cost.to_dicts()), title="Excess regret of a visitor", width=WIDTH, height=HEIGHT
    ).encode(x=x)
    layers = []
    for column, words, colour, dash in (
        ("excess", "excess", "#0072B2", [1, 0]),
        ("linear_bound", "its linear bound", "#B35C00", [6, 3]),
    ):
        y = alt.Y(f"{column}:Q", title="excess of the bound")
        layers.append(base.mark_line(color=colour, strokeDash=dash).encode(y=y))
        end = alt.Chart(values(cost.tail(1).to_dicts())).encode(x=x, y=y)
        layers.append(
            end.mark_text(align="right", dy=-9, color=colour, fontSize=11).encode(
                text=alt.value(words)
            )
        )
    return alt.layer(*layers)


def _exploration(limits: pl.DataFrame) -> ChartType:
    return _over_first_risk(limits, "exploration", "Random arms", "share of random arms", ".0%")


def _bound(limits: pl.DataFrame) -> ChartType:
    return _over_first_risk(limits, "regret_bound", "Bound, 100,000 visitors", "regret bound", "~s")


def _over_first_risk(
    limits: pl.DataFrame, column: str, title: str, axis: str, form: str
) -> ChartType:
    # A smaller risk means stronger protection: read from left to right.
    x = alt.X("first_risk:Q", title="risk of the first arm (others 2)")
    x = x.scale(type="log", reverse=True, nice=False).axis(values=[2, 1, 0.5, 0.2, 0.1, 0.05, 0.01])
    base = alt.Chart(values(limits.to_dicts()), title=title, width=WIDTH, height=HEIGHT).encode(
        x=x, y=alt.Y(f"{column}:Q", title=axis, axis=alt.Axis(format=form))
    )
    return base.mark_line(color=INK) + base.mark_point(
        filled=True, color=ACCENT, size=45, opacity=1
    )
