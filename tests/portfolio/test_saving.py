"""The certificate is about the saving: small budgets, giants beside, many that are nearly the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.portfolio.brute_force import grid_optimum

from deniable.portfolio.allocation import allocate
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.search_nodes import choose
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
    found = allocate(Portfolio.of([giant, *others], form="paper"), 1 + firm_budget, time_limit=600)
    zero = grid_optimum(others, 0.0, "flexible", 1)
    grid = grid_optimum(others, firm_budget, "flexible", 900)
    assert found.certified
    assert found.saved[1:].sum() >= (zero - grid) * (1 - 1e-4)
    assert found.total_saved == pytest.approx(float(found.saved[1:].sum()), abs=1e-2)


@pytest.mark.parametrize("firm_budget", [1e-6, 1e-3, 0.1, 2.0])
def test_small_budgets_go_where_they_save_most(firm_budget: float) -> None:
    """Below the first jump the best is to give all to one: every one of them is tried."""
    portfolio = Portfolio.of(alike(2000, seed=1), form="paper")
    found = allocate(portfolio, firm_budget, time_limit=600)
    sizes = portfolio.arms, portfolio.visitors
    saving = np.asarray(dynamic_regret(*sizes, 0.0)) - np.asarray(
        dynamic_regret(*sizes, firm_budget)
    )
    assert found.certified
    assert found.total_saved >= saving.max() * (1 - 1e-4)
    assert found.nodes == 1


@pytest.mark.parametrize("firm_budget", [5.0, 6.0, 9.0, 14.0, 25.0])
def test_many_that_are_nearly_the_same_certify(firm_budget: float) -> None:
    portfolio = Portfolio.of(alike(300, seed=5), form="paper")
    found = allocate(portfolio, firm_budget, time_limit=600)
    assert found.certified
    assert found.relative_gap <= 1e-4
    assert found.nodes < 120


@pytest.mark.parametrize("firm_budget", [6.68, 54.2, 209.2, 321.1, 992.5])
@pytest.mark.parametrize("regime", ["constant", "dynamic"])
def test_many_that_are_the_same_certify_by_what_is_expected(
    regime: str, firm_budget: float
) -> None:
    """All of them jump at one price: how many do is found near what the budget pays for."""
    same = {"arms": 30, "visitors": 1_000_000, "base_rate": 0.05, "segments": 2}
    portfolio = Portfolio.of([{"id": f"e{i}", **same} for i in range(600)], objective="expected")
    found = allocate(portfolio, firm_budget, regime=regime, time_limit=600)
    assert found.certified
    assert found.relative_gap <= 1e-4
    assert found.nodes < 40


def test_a_gap_that_stays_open_is_told() -> None:
    found = allocate(Portfolio.of(alike(300, seed=5), form="paper"), 6, time_limit=0)
    assert not found.certified
    assert found.relative_gap > 1e-3
    closed = allocate(Portfolio.of(alike(300, seed=5), form="paper"), 6, time_limit=600)
    assert found.lower_bound <= closed.total_regret <= found.total_regret


def least(
    below: np.ndarray, above: np.ndarray, odd: np.ndarray, family: np.ndarray,
    count: tuple[int, int], has_odd: bool,
) -> float:  # fmt: skip
    """The least sum over every choice of sides."""
    best = np.inf
    for sides in product((0, 1, 2), repeat=below.size):
        chosen = np.array(sides)
        up = chosen == 1
        if (chosen == 2).sum() != has_odd or up[~np.isin(np.arange(below.size), family)].any():
            continue
        if count[0] <= up.sum() <= count[1]:
            best = min(best, float(np.choose(chosen, [below, above, odd]).sum()))
    return best


@pytest.mark.parametrize("seed", range(120))
def test_the_best_sides_against_all_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 7))
    below, above, odd = rng.normal(size=(3, size)).round(2)
    for values in (below, above, odd):
        values[rng.random(size) < 0.2] = np.inf
    family = np.flatnonzero(rng.random(size) < 0.7)
    above[~np.isin(np.arange(size), family)] = np.inf
    few = int(rng.integers(0, size + 1))
    count = (few, int(rng.integers(few, size + 1)))
    has_odd = bool(rng.integers(0, 2))
    sides, special = choose(below, above, odd, family, count, has_odd)
    expected = least(below, above, odd, family, count, has_odd)
    if sides is None:
        assert expected == np.inf
        return
    assert float(np.choose(sides, [below, above, odd]).sum()) == pytest.approx(expected)
    assert (special is not None) == has_odd
