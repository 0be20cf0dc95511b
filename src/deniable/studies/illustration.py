"""Two experiments share a budget: it flows to the larger marginal gain, or all of it to one."""

from __future__ import annotations

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType

from deniable import Allocation, Portfolio, allocate, best_dynamic_budget, dynamic_gain
from deniable._validation import FloatArray
from deniable.charts.theme import ACCENT, INK, rows, themed, values
from deniable.studies.context import Context
from deniable.studies.contract import Claim, Figure, StudyResult, judged

FIRM_BUDGETS = (4.0, 1.5)
STAGES = {"equal split": 0.0, "half-way": 0.5, "optimal": 1.0}


def run(context: Context) -> StudyResult:
    """Three stages for both firm budgets, exactly; nothing is simulated."""
    found = {firm: allocate(TWO_EXPERIMENTS, firm, regime="dynamic") for firm in FIRM_BUDGETS}
    return StudyResult(
        headline="A firm's budget belongs to the experiment where it saves most; a small one may belong "
        "to one experiment alone.",
        paragraphs=(
            "Experiment A has 1,000 visitors and B has 10,000; both have two arms and the dynamic "
            "strategy. From an equal split, budget moves to where it saves more regret. With a firm "
            "budget of 4 both end with some; with 1.5 all of it goes to B.",
        ),
        figures=(
            Figure(
                "two_experiments",
                "Marginal learning gain over the budget. Points are the experiments' budgets, red "
                "arrows what moves next.",
                two_experiments(FIRM_BUDGETS),
                pl.concat(_stages(firm, best) for firm, best in found.items()),
            ),
        ),
        claims=(_equalized(found[4.0]), _corner(found[1.5]), _certified(list(found.values()))),
    )


def _stages(firm: float, best: Allocation) -> pl.DataFrame:
    even = np.full(2, firm / 2)
    rows = []
    for stage, part in STAGES.items():
        budgets = even + part * (best.budgets - even)
        for name, visitors, budget in zip(
            TWO_EXPERIMENTS.ids, TWO_EXPERIMENTS.visitors.tolist(), budgets.tolist(), strict=True
        ):
            end = float(best_dynamic_budget(2, visitors))
            gain = float(dynamic_gain(2, visitors, min(budget, end - 1e-9)))
            rows.append(
                {
                    "firm_budget": firm,
                    "stage": stage,
                    "experiment": name,
                    "budget": budget,
                    "best_budget": end,
                    "gain_just_below": gain,
                }
            )
    return pl.DataFrame(rows)


def _equalized(best: Allocation) -> Claim:
    a, b = best.budgets
    gain_a, gain_b = (float(gain) for gain in best.marginal_gain)
    return Claim(
        "With a firm budget of 4, budget moves to B until the marginal gains are equal at lambda",
        "equal gains",
        f"A {a:.4f} at gain {gain_a:,.0f}; B {b:.4f} at gain {gain_b:,.0f}",
        judged(False, partly=True),
        "The direction holds. But B reaches its best budget, where its gain drops to 0 at once, before "
        "the gains meet; the rest goes to A, whose gain is lambda. Gains are equal only among budgets "
        "that can still move.",
    )


def _corner(best: Allocation) -> Claim:
    a, b = best.budgets
    return Claim(
        "With a firm budget of 1.5 all of it goes to the experiment with the higher return",
        "corner solution",
        f"A {a:g}, B {b:g}",
        judged(a == 0 and b == 1.5),
        "Proven optimal by the solver.",
    )


def _certified(found: list[Allocation]) -> Claim:
    gap = max(best.relative_gap for best in found)
    return Claim(
        "At the optimum, budgets that can still be adjusted have the same marginal gain",
        "G = lambda for all of them",
        f"optimal within {gap:.0e}",
        judged(gap <= 1e-6),
        "It is necessary, not sufficient: the bounds are first concave, then convex in the budget, so "
        "equal gains may also mark a worst point. The solver proves a lower bound instead.",
    )


TWO_EXPERIMENTS = Portfolio.of(
    [{"id": "A", "arms": 2, "visitors": 1000}, {"id": "B", "arms": 2, "visitors": 10_000}],
    form="paper",
)
"""Experiment A with 1,000 visitors and B with 10,000, two arms each."""

_COLOURS = alt.Scale(domain=["A", "B"], range=["#CC79A7", "#0072B2"])
_STAGES = ("equal split", "half-way", "optimal")


def two_experiments(firm_budgets: tuple[float, ...] = (4.0, 1.5)) -> ChartType:
    """A row a firm budget; from an equal split, half-way, to the optimum, dynamic strategy only."""
    panels = []
    for firm in firm_budgets:
        best = allocate(TWO_EXPERIMENTS, firm, regime="dynamic")
        even = np.full(2, firm / 2)
        for stage, part in zip(_STAGES, (0.0, 0.5, 1.0), strict=True):
            budgets = even + part * (best.budgets - even)
            then = even + min(part + 0.5, 1.0) * (best.budgets - even)
            panels.append(_panel(f"Firm budget {firm:g}: {stage}", budgets, then))
    return themed(alt.concat(*panels, columns=len(_STAGES)).resolve_scale(x="shared", y="shared"))


def _panel(title: str, budgets: FloatArray, then: FloatArray) -> ChartType:
    lines, points, arrows = [], [], []
    for i, name in enumerate(TWO_EXPERIMENTS.ids):
        visitors = int(TWO_EXPERIMENTS.visitors[i])
        end = float(best_dynamic_budget(2, visitors))
        grid = np.linspace(0, end, 240)[:-1]
        lines += rows(budget=grid, gain=dynamic_gain(2, visitors, grid), experiment=name)
        lines += rows(budget=[end, end + 1e-6], gain=[np.nan, 0], experiment=name)
        here = min(float(budgets[i]), end - 1e-9)
        gain = float(dynamic_gain(2, visitors, here))
        points += rows(budget=[here], gain=[gain], experiment=name)
        if abs(then[i] - budgets[i]) > 1e-6:
            arrows += rows(budget=[here], to=[float(then[i])], gain=[gain], experiment=name)
    x = alt.X("budget:Q", title="privacy budget", scale=alt.Scale(domain=[0, 3]))
    y = alt.Y("gain:Q", title="marginal learning gain", scale=alt.Scale(domain=[0, 5000]))
    colour = alt.Color("experiment:N", scale=_COLOURS, title="experiment")
    line = (
        alt.Chart(values(r for r in lines if r["gain"] is not None))
        .mark_line()
        .encode(x=x, y=y, color=colour)
    )
    dot = alt.Chart(values(points)).mark_point(filled=True, size=80, opacity=1)
    layers = [line, dot.encode(x="budget:Q", y="gain:Q", color=colour)]
    if arrows:
        move = alt.Chart(values(arrows))
        layers.append(
            move.mark_rule(color=ACCENT, strokeWidth=2).encode(x="budget:Q", x2="to:Q", y="gain:Q")
        )
        layers.append(
            move.mark_point(shape="triangle-right", filled=True, color=ACCENT, size=70, opacity=1)
            .transform_calculate(turn="datum.to > datum.budget ? 0 : 180")
            .encode(x="to:Q", y="gain:Q", angle=alt.Angle("turn:Q", scale=None))
        )
    place = {"dy": -13, "fontSize": 11}
    words = alt.Chart(values(points)).encode(
        x="budget:Q", y="gain:Q", text=alt.Text("budget:Q", format=".2f")
    )
    layers += [words.mark_text(**place, stroke="white", strokeWidth=4)]
    layers += [words.mark_text(**place, color=INK)]
    return alt.layer(*layers).properties(title=title, width=230, height=170)
