"""The joint strategy's bound against 50-digit twins, differences and the numbers of record."""

from __future__ import annotations

import numpy as np
import pytest
from tests.agreement import ARMS, BUDGETS, HORIZONS, SEGMENTS, agree, columns, grid
from tests.oracle import Real, exact, mp, mpf

from deniable.errors import InvalidArgumentError
from deniable.strategies.joint_lp import proved_table
from deniable.theory import joint

RHO = mpf("1.5")
GRID = grid(ARMS, HORIZONS, BUDGETS[::2], SEGMENTS)


def _price(k: int, g: Real, j: int) -> Real:
    m = min(k, j)
    return (m - 1) / (m - 1 + mp.exp(g))


def _learning(k: int, t: float, j: int) -> Real:
    size = exact(t)
    rates = 4 * mp.sqrt(3) * mp.sqrt(k * j * size * mp.log(size))
    return rates + 2 * mp.sqrt(RHO * (j - 1) * size) + (RHO + 2) * k * j


def _bound(k: int, t: float, g: Real, j: int) -> Real:
    return exact(t) * _price(k, g, j) + _learning(k, t, j)


def _slope(k: int, t: float, g: float, j: int) -> Real:
    with mp.workdps(90):
        step = mpf(10) ** -30
        # Learning costs the same at every budget; added, it would swallow the digits of the price.
        up, down = (exact(t) * _price(k, exact(g) + sign * step, j) for sign in (1, -1))
        return +((up - down) / (2 * step))


@pytest.mark.parametrize(
    ("k", "t", "j", "g", "bound", "slope", "elasticity", "best"),
    [
        (2, 1e4, 2, 1, 7153.581, -1966.119, -0.274844, 0.215160),
        (8, 1e6, 2, 1, 374453.280, -196611.933, -0.525064, 2.137428),
        (8, 1e6, 5, 2, 519120.705, -227862.832, -0.877880, 2.986833),
        (20, 1e7, 3, 3, 1598057.557, -823564.310, -1.546060, 3.291434),
    ],
)
def test_numbers_of_record(
    k: int, t: float, j: int, g: float, bound: float, slope: float, elasticity: float, best: float
) -> None:
    assert joint.joint_regret(k, t, g, j) == pytest.approx(bound, abs=5e-4)
    assert -joint.joint_gain(k, t, g, j) == pytest.approx(slope, abs=5e-4)
    assert joint.joint_elasticity(k, t, g, j) == pytest.approx(elasticity, abs=5e-7)
    assert joint.best_joint_budget(k, t, j) == pytest.approx(best, abs=5e-7)


def test_bound_and_price() -> None:
    arms, horizons, budgets, segments = columns(GRID)
    want = [_bound(k, t, exact(g), j) for k, t, g, j in GRID]
    agree(GRID, joint.joint_regret(arms, horizons, budgets, segments), want)
    prices = [_price(k, exact(g), j) for k, _, g, j in GRID]
    agree(GRID, joint.joint_price(arms, budgets, segments), prices)


def test_gain_and_elasticity_against_differences() -> None:
    rows = grid((2, 5, 100), (10, 10**4, 10**9), BUDGETS, (1, 2, 20))
    slopes = [_slope(*row) for row in rows]
    agree(rows, joint.joint_gain(*columns(rows)), [-slope for slope in slopes])
    want = [
        exact(g) * slope / _bound(k, t, exact(g), j)
        for (k, t, g, j), slope in zip(rows, slopes, strict=True)
    ]
    agree(rows, joint.joint_elasticity(*columns(rows)), want)


def test_budget_for_regret_meets_its_target_and_is_the_smallest() -> None:
    for k, t, j, excess in grid((2, 8, 50), (10**4, 10**6, 10**10), (2, 5, 20), (0.01, 0.3, 1, 5)):
        budget = float(joint.joint_budget_for_regret(k, t, excess, j))
        target = (1 + mpf(excess)) * _learning(k, t, j)
        assert _bound(k, t, exact(budget), j) <= target * (1 + mpf(10) ** -12)
        if budget > 0:
            assert _bound(k, t, exact(budget - 1e-6), j) > target


def test_the_best_budget_balances_price_and_learning() -> None:
    for k, t, j in grid((2, 8), (10**5, 10**8), (2, 5)):
        terms = joint.joint_regret_terms(k, t, joint.best_joint_budget(k, t, j), j)
        assert terms.exploration == pytest.approx(terms.learning + terms.estimation)
    assert joint.best_joint_budget(20, 10, 20) == 0  # learning costs more than all visitors


def test_one_segment_needs_no_budget() -> None:
    assert joint.joint_price(5, 0, 1) == 0
    assert joint.best_joint_budget(5, 10**9, 1) == 0
    assert joint.joint_gain(5, 10**9, 1, 1) == 0
    assert joint.joint_elasticity(5, 10**9, 1, 1) == 0


@pytest.mark.parametrize(("k", "j"), [(2, 2), (3, 5), (6, 4)])
def test_the_price_is_tight(k: int, j: int) -> None:
    """Rates 1 for a segment's own arm, 0 else, equal shares: the best table loses exactly the price."""
    m = min(k, j)
    for budget in (0.3, 1.0, 4.0):
        own = np.eye(m, k)
        best = proved_table(own, np.full(m, 1 / m), budget)
        assert 1 - best.value == pytest.approx(float(joint.joint_price(k, budget, m)), abs=1e-9)
        rng = np.random.default_rng(k)
        for _ in range(10):
            rates, shares = rng.random((j, k)), rng.dirichlet(np.ones(j))
            lost = (shares * rates.max(axis=1)).sum() - proved_table(rates, shares, budget).value
            assert lost <= joint.joint_price(k, budget, j)


def test_vectorised_and_refusing() -> None:
    assert np.shape(joint.joint_regret([[2], [5]], 100, [0.1, 1, 2], 3)) == (2, 3)
    with pytest.raises(InvalidArgumentError):
        joint.joint_regret(2, 100, 1, 2, growth=1.0)
    with pytest.raises(InvalidArgumentError):
        joint.joint_budget_for_regret(2, 100, 0, 2)
