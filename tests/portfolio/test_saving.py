"""The certificate is about the saving: small budgets, giants beside, many that are nearly the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.portfolio.brute_force import grid_optimum

from deniable.portfolio.allocation import allocate
from deniable.portfolio.problem import Portfolio
from deniable.theory.regret import dynamic_regret


def alike(size: int, seed: int, arms: tuple[int, int] = (20, 50)) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"e{i}",
            "arms": int(rng.integers(arms[0], arms[1] + 1)),
            "visitors": 1_000_000 + int(rng.integers(0, 900_000)),
        }
        for i in range(size)
    ]


@pytest.mark.parametrize("firm_budget", [3, 5, 6, 7, 10])
def test_beside_a_giant_the_others_saving_is_found(firm_budget: float) -> None:
    """A gap that is small beside the giant's loss may be a tenth of what can be saved."""
    giant = {"id": "giant", "arms": 2, "visitors": 10**12, "committed": 1, "strategy": "dynamic"}
    others = alike(12, seed=7)
    found = allocate(Portfolio.of([giant, *others], form="paper"), 1 + firm_budget)
    zero = grid_optimum(others, 0.0, "flexible", 1)
    grid = grid_optimum(others, firm_budget, "flexible", 900)
    assert found.certified
    assert found.saved[1:].sum() >= (zero - grid) * (1 - 1e-4)
    assert found.total_saved == pytest.approx(float(found.saved[1:].sum()), abs=1e-2)


@pytest.mark.parametrize("firm_budget", [1e-6, 1e-3, 0.1, 2.0])
def test_small_budgets_go_where_they_save_most(firm_budget: float) -> None:
    """Below the first jump the best is to give all to one: every one of them is tried."""
    portfolio = Portfolio.of(alike(2000, seed=1), form="paper")
    found = allocate(portfolio, firm_budget)
    sizes = portfolio.arms, portfolio.visitors
    saving = np.asarray(dynamic_regret(*sizes, 0.0)) - np.asarray(
        dynamic_regret(*sizes, firm_budget)
    )
    assert found.certified
    assert found.total_saved >= saving.max() * (1 - 1e-4)


BEST = {5.0: 1461196.7, 6.0: 1696505.4, 9.0: 2736902.2, 14.0: 4220336.4, 25.0: 7654063.5}
"""Largest savings, proven to 1e-4 by branch and bound at commit b581e33."""


@pytest.mark.parametrize("firm_budget", [5.0, 6.0, 9.0, 14.0, 25.0])
def test_many_that_are_nearly_the_same(firm_budget: float) -> None:
    portfolio = Portfolio.of(alike(300, seed=5), form="paper")
    found = allocate(portfolio, firm_budget)
    assert found.relative_gap <= {6.0: 3e-3, 14.0: 2e-3}.get(firm_budget, 1e-4)
    assert found.total_saved >= BEST[firm_budget] * (1 - 1e-4)


@pytest.mark.parametrize(
    ("firm_budget", "best"),
    [(6.68, 3684.1189), (54.2, 34828.571), (209.2, 134355.17), (992.5, 637835.49)],
)
def test_many_that_are_the_same_by_what_is_expected(firm_budget: float, best: float) -> None:
    """All of them jump at one price. The best was proven by branch and bound at commit b581e33."""
    same = {"arms": 30, "visitors": 1_000_000, "base_rate": 0.05, "segments": 2}
    portfolio = Portfolio.of([{"id": f"e{i}", **same} for i in range(600)], objective="expected")
    found = allocate(portfolio, firm_budget, regime="constant")
    assert found.total_saved >= best * (1 - 1e-4)
    assert found.relative_gap <= (2e-2 if firm_budget < 10 else 1e-3)
