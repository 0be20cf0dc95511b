"""Exact minima at a price, against dense grids: every shape of bound, kinks and humps included."""

from __future__ import annotations

import numpy as np
import pytest
from tests.portfolio.brute_force import loss_at

from deniable.portfolio.allocation import Allocator
from deniable.portfolio.dual import ROOT_SLACK, Demand
from deniable.portfolio.problem import Portfolio
from deniable.theory.regret import constant_regret, dynamic_regret

SIZES = [(2, 50), (2, 3_000), (2, 10**8), (3, 872), (3, 10**5), (5, 999), (5, 10**7),
         (20, 10**4), (20, 10**9), (50, 60_000)]  # fmt: skip


@pytest.mark.parametrize("regime", ["flexible", "constant", "dynamic"])
@pytest.mark.parametrize("segments", [1, 2, 5, 40])
def test_the_response_to_a_price_is_the_least_of_a_dense_grid(regime: str, segments: int) -> None:
    arms, visitors = np.array(SIZES).T
    allocator = Allocator(Portfolio.from_sizes(arms, visitors, segments, form="paper"), regime)
    demand = Demand(allocator.losses, allocator.pieces)
    high = np.zeros(arms.size)
    np.maximum.at(high, allocator.curves.experiment, allocator.curves.high)
    for price in (0.0, 1.0, 30.0, 2e3, 1e5, 1e7, 3e8):
        response = demand.at(price)
        for row in range(arms.size):
            grid = np.linspace(0, high[row], 20_001)
            experiment = {
                "arms": int(arms[row]), "visitors": int(visitors[row]), "segments": segments
            }  # fmt: skip
            loss = loss_at(experiment, grid, regime)
            least = float((loss - loss[0] + price * grid).min())
            noise = 1e-14 * float(loss[0])
            # A bound: nothing on the grid is below it. An exact one: the grid comes near.
            assert response.bound[row] <= least + noise
            reached = response.loss[row] + price * response.budget[row]
            assert reached <= least + ROOT_SLACK * price + noise
            assert response.bound[row] >= reached - ROOT_SLACK * price - noise


def test_with_one_segment_the_dynamic_bound_is_never_above_the_constant_one() -> None:
    """What lets the flexible regime drop the constant strategy there."""
    rng = np.random.default_rng(5)
    arms = rng.integers(2, 200, 4000)
    visitors = np.floor(10 ** rng.uniform(0, 12, 4000))
    budget = rng.uniform(0, 12, 4000)
    dynamic = np.asarray(dynamic_regret(arms, visitors, budget))
    assert (dynamic <= np.asarray(constant_regret(arms, visitors, budget)) * (1 + 1e-12)).all()


def test_pieces_have_the_shape_they_claim() -> None:
    """Dense gains fall on convex pieces and rise on concave ones."""
    arms, visitors = np.array(SIZES).T
    for segments in (1, 3, 12):
        allocator = Allocator(Portfolio.from_sizes(arms, visitors, segments, form="paper"))
        pieces, losses = allocator.pieces, allocator.losses
        inside = np.linspace(1e-4, 1 - 1e-4, 400)
        for piece in range(pieces.size):
            if pieces.right[piece] - pieces.left[piece] < 1e-6:
                continue
            x = pieces.left[piece] + (pieces.right[piece] - pieces.left[piece]) * inside
            gain = losses.gain(np.full(x.size, pieces.cell[piece]), x)
            step = np.diff(gain) * (-1 if pieces.convex[piece] else 1)
            assert step.min() >= -1e-6 * np.abs(gain).max()
