"""The table of losses bounds them between its budgets: against dense grids, kinks and humps included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.portfolio.brute_force import loss_at

from deniable.portfolio.curves import build_curves
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.units import Cells, Units
from deniable.theory.regret import constant_regret, dynamic_regret

SIZES = [(2, 50), (2, 3_000), (2, 10**8), (3, 872), (3, 10**5), (5, 999), (5, 10**7),
         (20, 10**4), (20, 10**9), (50, 60_000)]  # fmt: skip
PRICES = (0.0, 1.0, 30.0, 2e3, 1e5, 1e7, 3e8)


def units(regime: str, segments: int) -> Units:
    arms, visitors = np.array(SIZES).T
    portfolio = Portfolio.from_sizes(arms, visitors, segments, form="paper")
    return Units(portfolio, build_curves(portfolio, regime))


def dense(made: Units, row: int, regime: str, segments: int) -> tuple[np.ndarray, np.ndarray]:
    """A fine grid of budgets, finest at the end, and the loss there, relative to budget 0."""
    high = float(made.high[row])
    near = high - np.geomspace(1e-9, max(high, 1e-8), 4000)
    grid = np.unique(np.concatenate([np.linspace(0, high, 20_001), near[near > 0]]))
    arms, visitors = SIZES[row]
    experiment = {"arms": arms, "visitors": visitors, "segments": segments}
    loss = loss_at(experiment, grid, regime)
    return grid, np.minimum.accumulate(loss) - loss[0]


def complaints(cells: Cells, made: Units, regime: str, segments: int) -> list[tuple[int, float]]:
    """Experiments and prices whose bound is above a value that is reached, or far below all."""
    wrong = []
    for row in np.unique(cells.unit):
        grid, loss = dense(made, int(row), regime, segments)
        own = cells.unit == row
        for price in PRICES:
            # Budgets are whole nano-nats, and a curve ends at the first after its best budget.
            noise = 1e-13 * float(made.base[row]) + price * 1e-9
            least = float((loss + price * grid).min())
            bound = float(cells.lowest(price)[own].min())
            reached = float(cells.at_ends(price)[own].min())
            if not least + 1e-3 * loss[-1] - noise <= bound <= least + noise:
                wrong.append((int(row), price))
            if not least - noise <= reached <= least - 1e-3 * loss[-1] + noise:
                wrong.append((int(row), price))
    return wrong


@pytest.mark.parametrize("regime", ["flexible", "constant", "dynamic"])
@pytest.mark.parametrize("segments", [1, 2, 5, 40])
def test_bounds_hold_on_a_dense_grid(regime: str, segments: int) -> None:
    made = units(regime, segments)
    assert complaints(made.table, made, regime, segments) == []


def test_the_grid_sees_cells_that_are_all_taken_for_concave() -> None:
    made = units("flexible", 2)
    cells = made.table
    flat = replace(cells, least=cells.slope, most=cells.slope)
    assert complaints(flat, made, "flexible", 2)


def test_losses_never_rise_and_cut_cells_agree() -> None:
    made = units("flexible", 5)
    cells = made.table
    assert (cells.at_right <= cells.at_left + 1e-12 * made.base[cells.unit]).all()
    finer = made.split(cells, np.arange(0, cells.size, 3), 5)
    assert finer.size == cells.size + 4 * len(range(0, cells.size, 3))
    joined = finer.unit[1:] == finer.unit[:-1]
    assert (finer.left[1:] == finer.right[:-1])[joined].all()
    for price in PRICES[1:]:
        # A finer cut never weakens the bound, and never gets above what is reached.
        before = np.minimum.reduceat(cells.lowest(price), cells.first)
        after = np.minimum.reduceat(finer.lowest(price), finer.first)
        ends = np.minimum.reduceat(finer.at_ends(price), finer.first)
        noise = 1e-9 * made.base[cells.unit[cells.first]]
        assert (after >= before - noise).all()
        assert (after <= ends + noise).all()


def test_with_one_segment_the_dynamic_bound_is_never_above_the_constant_one() -> None:
    """What lets the flexible regime drop the constant strategy there."""
    rng = np.random.default_rng(5)
    arms = rng.integers(2, 200, 4000)
    visitors = np.floor(10 ** rng.uniform(0, 12, 4000))
    budget = rng.uniform(0, 12, 4000)
    dynamic = np.asarray(dynamic_regret(arms, visitors, budget))
    assert (dynamic <= np.asarray(constant_regret(arms, visitors, budget)) * (1 + 1e-12)).all()
