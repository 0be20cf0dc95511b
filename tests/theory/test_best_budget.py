"""Best budgets against brute force in 50 digits: a fine grid, then golden section or bisection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import oracle
from tests.agreement import ARMS, HORIZONS, SEGMENTS, agree, columns, grid
from tests.oracle import Real, mp, mpf

import deniable
from deniable._validation import Floats
from deniable.theory.best_budget import smallest_within

SIZES = [(2, 10), (2, 10**4), (5, 100), (5, 10**6), (20, 10**5), (100, 10**4), (2, 10**12)]
POINTS = 240


def _lowest(k: int, t: int, j: int, bound: oracle.Bound, top: float) -> tuple[Real, Real]:
    """The grid points around the lowest value of the bound on [0, top]."""
    points = [mpf(top) * i / POINTS for i in range(POINTS + 1)]
    values = [bound(k, t, gamma, j) for gamma in points]
    at = min(range(len(values)), key=values.__getitem__)
    return points[max(at - 1, 0)], points[min(at + 1, POINTS)]


def _golden_section(low: Real, high: Real, value: oracle.Bound) -> Real:
    ratio = (mp.sqrt(5) - 1) / 2
    for _ in range(70):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if value(left) < value(right) else (left, high)
    return (low + high) / 2


def test_closed_forms_to_the_last_digits() -> None:
    """Near x = K the surplus x - K has only the last bits of x: the scale is K."""
    rows = grid(ARMS, HORIZONS, SEGMENTS)
    got = deniable.theory.best_constant_budget(*columns(rows))
    want = [oracle.best_constant(*row) for row in rows]
    agree(rows, got, want, 1e-14, [max(w, mpf(1)) for w in want])
    dynamic = [oracle.best_dynamic(k, t) for k, t, _ in rows]
    scale = [max(w, mpf(row[0]) / 100) for row, w in zip(rows, dynamic, strict=True)]
    agree(rows, deniable.theory.best_dynamic_budget(*columns(rows)), dynamic, 1e-14, scale)


@pytest.mark.parametrize("j", [1, 2, 5, 20])
@pytest.mark.parametrize(("k", "t"), SIZES)
def test_constant_against_brute_force(k: int, t: int, j: int) -> None:
    best = float(deniable.theory.best_constant_budget(k, t, j))
    low, high = _lowest(k, t, j, oracle.constant, best + 3)
    found = _golden_section(low, high, lambda gamma: oracle.constant(k, t, gamma, j))
    # 70 golden sections leave 1e-14 of the bracket.
    assert best == pytest.approx(float(found), abs=1e-12)


@pytest.mark.parametrize("j", [1, 2, 5, 20])
@pytest.mark.parametrize(("k", "t"), SIZES)
def test_dynamic_against_brute_force(k: int, t: int, j: int) -> None:
    """No budget is better, and the smallest as good is found by bisection."""
    best = float(deniable.theory.best_dynamic_budget(k, t, j))
    flat = oracle.dynamic(k, t, best + 5, j)

    def worse(gamma: Real) -> bool:
        return bool(oracle.dynamic(k, t, gamma, j) > flat * (1 + mpf(10) ** -30))

    points = [mpf(best + 1) * i / POINTS for i in range(POINTS + 1)]
    assert all(oracle.dynamic(k, t, gamma, j) >= flat * (1 - mpf(10) ** -40) for gamma in points)
    high = next(point for point in points if not worse(point))
    low = max(high - mpf(best + 1) / POINTS, mpf(0))
    if high == 0:
        assert best == 0
        return
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if worse(middle) else (low, middle)
    assert best == pytest.approx(float(high), rel=1e-13, abs=0)


@pytest.mark.parametrize("t", range(3, 62))
def test_two_arms_and_few_visitors(t: int) -> None:
    """The corner where the elasticity is positive does not hide a better budget."""
    best = float(deniable.theory.best_dynamic_budget(2, t))
    for j in (1, 2, 20):
        budgets = np.linspace(0, best, 400, endpoint=False)
        assert (
            deniable.theory.dynamic_regret(2, t, budgets, j)
            > deniable.theory.dynamic_regret(2, t, best, j)
        ).all()


@given(
    st.integers(2, 10_000),
    st.integers(2, 10**12),
    st.integers(1, 1000),
    st.floats(0, 1, exclude_max=True),
)
def test_no_budget_is_better(n_arms: int, horizon: int, n_segments: int, part: float) -> None:
    for best_budget, bound in (
        (deniable.theory.best_constant_budget, deniable.theory.constant_regret),
        (deniable.theory.best_dynamic_budget, deniable.theory.dynamic_regret),
    ):
        best = float(best_budget(n_arms, horizon, n_segments))
        lowest = float(bound(n_arms, horizon, best, n_segments))
        for other in (part * best, best + 10 * part):
            assert float(bound(n_arms, horizon, other, n_segments)) >= lowest * (1 - 1e-13)


def test_one_visitor_teaches_nothing() -> None:
    for j in SEGMENTS:
        assert deniable.theory.best_constant_budget(2, 1, j) == 0
        assert deniable.theory.best_dynamic_budget(2, [1, 2], j).tolist() == [0, 0]


def test_more_visitors_want_more_budget() -> None:
    horizons = np.unique(np.floor(np.geomspace(3, 1e12, 500)))
    for k in ARMS:
        for best in (deniable.theory.best_constant_budget, deniable.theory.best_dynamic_budget):
            assert (np.diff(np.asarray(best(k, horizons))) >= -1e-14).all()


CASES = {
    "constant": (
        deniable.theory.constant_budget_for_regret,
        deniable.theory.best_constant_budget,
        deniable.theory.constant_regret,
        oracle.constant,
    ),
    "dynamic": (
        deniable.theory.dynamic_budget_for_regret,
        deniable.theory.best_dynamic_budget,
        deniable.theory.dynamic_regret,
        oracle.dynamic,
    ),
}


@pytest.mark.parametrize("j", [1, 2, 20])
@pytest.mark.parametrize("strategy", CASES)
def test_budget_for_regret_against_a_scan(strategy: str, j: int) -> None:
    smallest, _, _, bound = CASES[strategy]
    for k, t in [(2, 10**4), (5, 10**6), (20, 10**5)]:
        best = (
            oracle.best_constant(k, t, j) if strategy == "constant" else oracle.best_dynamic(k, t)
        )
        excesses = [0.01, 0.05, 0.25, 1.0]
        wanted = oracle.budgets_for(bound, k, t, excesses, best, j)
        for got, want in zip(np.asarray(smallest(k, t, excesses, j)), wanted, strict=True):
            assert float(got) == pytest.approx(float(want), rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("strategy", CASES)
def test_budget_for_regret_keeps_its_word_and_is_the_smallest(strategy: str) -> None:
    smallest, best_budget, bound, _ = CASES[strategy]
    rows = grid((2, 5, 100), (100, 10**5, 10**9), (0.0, 1e-6, 0.01, 0.1, 0.5, 5.0, 1e9), (1, 2, 20))
    k, t, excess, j = columns(rows)
    budget = np.asarray(smallest(k, t, excess, j))
    best = np.asarray(best_budget(k, t, j))
    allowed = (1 + excess) * np.asarray(bound(k, t, best, j))
    assert ((budget >= 0) & (budget <= best * (1 + 1e-15))).all()
    assert (np.asarray(bound(k, t, budget, j)) <= allowed * (1 + 1e-12)).all()
    less = budget * (1 - 1e-6)
    exceeds = np.asarray(bound(k, t, less, j)) > allowed
    # At its flat minimum the constant bound cannot tell budgets 1e-6 apart.
    assert exceeds[(budget > 0) & (excess >= 0.01)].all()
    assert (budget[excess == 1e9] == 0).all()
    np.testing.assert_allclose(budget[excess == 0], best[excess == 0], rtol=1e-6)


def test_more_patience_needs_less_budget() -> None:
    excess = np.linspace(0, 3, 200)
    for smallest, *_ in CASES.values():
        for j in (1, 5):
            assert (np.diff(np.asarray(smallest(5, 10**6, excess, j))) <= 1e-12).all()
            assert isinstance(smallest(5, 10**6, 0.1, j), np.float64)
            assert np.asarray(smallest([[2], [5]], 10**6, [0.1, 0.2, 0.3], j)).shape == (2, 3)


@pytest.mark.parametrize("excess", [0.25, 0.625])
def test_the_first_crossing_before_a_hump_is_found(excess: float) -> None:
    """Two valleys: only a bound of 1.5 times the lowest or more begins in the first one."""

    def bound(budget: Floats) -> Floats:
        dips = 4 * np.exp(-9 * (budget - 1) ** 2) + 6 * np.exp(-4 * (budget - 4) ** 2)
        return np.asarray(10 - dips)

    fine = np.linspace(0, 4, 400_001)
    good = np.asarray(bound(fine)) <= (1 + excess) * float(bound(np.float64(4)))
    found = float(smallest_within(bound, 4.0, excess))
    assert found == pytest.approx(fine[good.argmax()], abs=1e-5)
    assert (found < 1) == (excess > 0.5)
