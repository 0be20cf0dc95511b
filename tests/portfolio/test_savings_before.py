"""The 78 experiments of the synthetic firm, against what branch and bound proved to be the best.

The savings were computed with the branch-and-bound solver of commit b581e33, whose gap was at most
1e-5 for each (`Allocator(portfolio, regime).allocate(firm_budget).total_saved`), and whose lower
bounds were therefore within 1e-5 of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from deniable.datasets import synthetic_portfolio
from deniable.portfolio.allocation import allocate
from deniable.portfolio.problem import Portfolio

FIRM_BUDGETS = (1, 5, 20, 80, 300, 500)
BEST = {
    ("paper", "flexible"): (
        70433701.3,
        288672438.3,
        720700483.9,
        1289544011,
        1585812970,
        1592358665,
    ),
    ("paper", "constant"): (
        70433574.3,
        288670932.7,
        720684746.4,
        1289008007,
        1556530868,
        1556826322,
    ),
    ("paper, segments", "flexible"): (
        70314209.55,
        288002974.1,
        717717613.5,
        1275135515,
        1562324406,
        1569183735,
    ),
    ("paper, segments", "constant"): (
        70314209.55,
        288002974.1,
        717717613.5,
        1275135515,
        1515838176,
        1515838176,
    ),
    ("summed", "flexible"): (
        35281490.59,
        144738362.7,
        407358969.9,
        708417857.5,
        873575656.1,
        882624630,
    ),
    ("summed", "constant"): (
        70323036.72,
        288051873.1,
        717938173.9,
        1276173514,
        1518774682,
        1518774682,
    ),
    ("expected", "flexible"): (
        122992.0525,
        783722.3065,
        1544433.048,
        2206771.985,
        2493743.965,
        2499739.099,
    ),
    ("expected", "dynamic"): (
        976441.7849,
        4170625.564,
        8320509.276,
        11629001.93,
        12727937.08,
        12728315.6,
    ),
}
"""(portfolio, regime) -> the largest saving for each firm budget."""


def firm(kind: str) -> Portfolio:
    """One segment or two to five, by the paper's bounds, summed bounds or expected losses."""
    experiments = synthetic_portfolio()
    arms = [experiment.n_arms for experiment in experiments]
    visitors = [experiment.visitors for experiment in experiments]
    segments = [2 + row % 4 for row in range(len(experiments))]
    if kind == "paper":
        return Portfolio.from_sizes(arms, visitors, form="paper")
    if kind == "paper, segments":
        return Portfolio.from_sizes(arms, visitors, segments, form="paper")
    if kind == "summed":
        return Portfolio.from_sizes(arms, visitors, segments)
    sizes = zip(arms, visitors, segments, experiments, strict=True)
    return Portfolio.of(
        {
            "id": f"e{row}",
            "arms": k,
            "visitors": t,
            "segments": j,
            "base_rate": float(np.mean(experiment.rates)),
        }
        for row, (k, t, j, experiment) in enumerate(sizes)
    )


@pytest.mark.parametrize(("kind", "regime"), list(BEST))
def test_what_branch_and_bound_saved_is_saved(kind: str, regime: str) -> None:
    portfolio = firm(kind)
    assert portfolio.size == 78
    for firm_budget, best in zip(FIRM_BUDGETS, BEST[kind, regime], strict=True):
        found = allocate(portfolio, firm_budget, regime=regime)
        assert found.certified
        assert found.total_saved >= best * (1 - 1e-4)
        # The bound is sound: it allows at least what was reached before.
        possible = found.total_saved + found.total_regret - found.lower_bound
        assert possible >= best * (1 - 1e-9)
        assert found.total_saved <= best * (1 + 1e-5)
