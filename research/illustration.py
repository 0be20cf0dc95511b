"""Two experiments share a budget: it flows to the larger marginal gain, or all of it to one."""

from __future__ import annotations

import numpy as np
import polars as pl

from deniable import Allocation, allocate
from deniable.charts.portfolio import two_experiments
from deniable.portfolio.problem import TWO_EXPERIMENTS
from deniable.theory import best_dynamic_budget, dynamic_gain
from research.study import Claim, Context, Figure, StudyResult, judged

FIRM_BUDGETS = (4.0, 1.5)
STAGES = {"equal split": 0.0, "half-way": 0.5, "optimal": 1.0}


def run(context: Context) -> StudyResult:
    """Compute three stages for both firm budgets exactly, without simulation."""
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
