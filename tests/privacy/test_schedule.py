"""The dynamic schedule and its exhaustion clock: 50 digits, and a scan over whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests import oracle
from tests.agreement import ARMS, BUDGETS, agree, columns, grid

import deniable
from deniable.privacy.exploration import exhaustion_root

CLOCKS = (1, 2, 3, 4, 5, 10, 14, 15, 100, 1000, 10**6, 10**9, 10**12)
BRANCH_POINT = mp.log(-1 + 2 / mp.cbrt(2 / mp.e))
"""Two arms: the budget (0.19507) below which the exhaustion root rests at e."""


def test_exploration_to_the_last_digits() -> None:
    rows = grid(ARMS, CLOCKS)
    got = deniable.privacy.dynamic_exploration(*columns(rows))
    agree(rows, got, [oracle.eps_dyn(*row) for row in rows], 1e-15)


def test_risk_to_the_last_digits() -> None:
    """Where exploration is near 1 its last bit is K/risk times as much of the risk."""
    rows = grid(ARMS, CLOCKS)
    with mp.workdps(110):
        want = [oracle.xi_of(k, oracle.eps_dyn(k, n)) for k, n in rows]
    scale = [max(w, mpf(k) / 100) for (k, _), w in zip(rows, want, strict=True)]
    agree(rows, deniable.privacy.dynamic_risk(*columns(rows)), want, 1e-14, scale)


@given(st.integers(2, 10_000), st.integers(1, 10**12), st.integers(1, 10**6))
def test_the_schedule_never_rises(n_arms: int, clock: int, later: int) -> None:
    now, then = np.asarray(deniable.privacy.dynamic_exploration(n_arms, [clock, clock + later]))
    # Neighbouring clocks near 1e12 differ by less than the last bit of the cube root.
    assert then <= now * (1 + 4e-16)
    risk_now, risk_then = np.asarray(deniable.privacy.dynamic_risk(n_arms, [clock, clock + later]))
    assert risk_then >= risk_now - 1e-12


def test_the_root_to_the_last_digits() -> None:
    rows = [row for row in grid(ARMS, BUDGETS) if row[1] < 200]
    agree(rows, exhaustion_root(*columns(rows)), [oracle.root(*row) for row in rows])


def test_huge_roots() -> None:
    """Above 1e290 the root comes from exp alone, which magnifies the last bit of its argument."""
    rows = grid(ARMS, (200, 210, 220, 230, 234))
    agree(rows, exhaustion_root(*columns(rows)), [oracle.root(*row) for row in rows], 1e-12)


def test_roots_beyond_all_floats_are_infinite() -> None:
    assert np.isinf(exhaustion_root(np.array(ARMS)[:, None], [300, 600, 700])).all()
    assert np.isinf(deniable.privacy.exhaustion_clock(2, 700))
    assert oracle.root(2, 300) > np.finfo(np.float64).max


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9, 1e-12, 1e-15, 0.0, -1e-9])
def test_the_branch_point_of_two_arms(distance: float) -> None:
    """There the root moves with the square root of the budget: judge the equation, not the root."""
    budget = float(BRANCH_POINT + distance)
    n = mpf(float(exhaustion_root(2, budget)))
    target = oracle.eps(2, budget) ** 3 / 2
    reachable = min(target, 1 / mp.e)  # log n / n has its top at e
    assert abs(mp.log(n) / n - reachable) <= 4e-16
    assert float(n - mp.e) == pytest.approx(float(oracle.root(2, budget) - mp.e), abs=1e-7)
    assert deniable.privacy.exhaustion_clock(2, budget) == mp.ceil(n)


@pytest.mark.parametrize("n_arms", range(2, 61))
def test_the_clock_is_what_a_scan_finds(n_arms: int) -> None:
    clocks = np.arange(3, 200_001, dtype=np.float64)
    schedule = n_arms * np.log(clocks) / clocks  # falls from 3 on
    budgets = np.concatenate([[0, 1e-9, 1e-3], np.linspace(0.01, 5.2, 150)])
    cubes = [float(oracle.eps(n_arms, gamma) ** 3) for gamma in budgets]
    # The first clock at or below the cube, by bisection in the reversed (rising) schedule.
    first = clocks[np.minimum(clocks.size - 1, (schedule[:, None] > cubes).sum(axis=0))]
    got = np.asarray(deniable.privacy.exhaustion_clock(n_arms, budgets))
    inside = first < clocks[-1]
    assert inside.sum() > 100
    np.testing.assert_array_equal(got[inside], first[inside])


def test_the_clock_by_its_definition_at_fifty_digits() -> None:
    """At n the schedule asks for no more than the cap, at n - 1 for more, up to the root's last bits."""
    rng = np.random.default_rng(7)
    exact = 0
    for _ in range(1200):
        n_arms = int(np.exp(rng.uniform(np.log(2), np.log(10_000))))
        budget = float(rng.uniform(0, 12))
        root = oracle.root(n_arms, budget)
        n = int(deniable.privacy.exhaustion_clock(n_arms, budget))
        if abs(root - mp.nint(root)) <= 4e-15 * root:  # a tie for floats, all of them beyond 1e11
            assert root > 1e11
            assert abs(n - root) <= max(1, 4e-15 * root)
            continue
        exact += 1
        cube = oracle.eps(n_arms, budget) ** 3
        assert n_arms * mp.log(n) / n <= cube
        assert n == 3 or n_arms * mp.log(n - 1) / (n - 1) > cube
    assert exact > 1100


@given(st.integers(2, 60), st.integers(3, 10**7))
def test_budgets_made_to_tie(n_arms: int, clock: int) -> None:
    """A budget read off the schedule at n has its root within rounding of n itself."""
    budget = float(deniable.privacy.dynamic_risk(n_arms, clock))
    if budget == 0:
        return
    root = oracle.root(n_arms, budget)
    conditioning = 1 / abs(1 - 1 / mp.log(root)) * n_arms / budget
    assert abs(root - clock) <= 1e-14 * clock * max(conditioning, 1)
    assert abs(float(deniable.privacy.exhaustion_clock(n_arms, budget)) - mp.ceil(root)) <= 1


def test_times_of_segments_by_hand() -> None:
    """Clock 6 is the exhaustion clock of budget 0.3: the sixth visit of each segment."""
    assert deniable.privacy.exhaustion_clock(2, 0.3) == 6
    arrivals = ["a", "b"] * 5 + ["b", "a", "c"]
    assert deniable.privacy.exhaustion_times(2, 0.3, arrivals) == {"a": 12, "b": 11, "c": None}
    assert deniable.privacy.exhaustion_times(2, 0.3, []) == {}


@given(st.lists(st.sampled_from("abc"), max_size=60), st.floats(0, 0.6))
def test_times_of_segments_against_positions(arrivals: list[str], budget: float) -> None:
    threshold = int(deniable.privacy.exhaustion_clock(2, budget))
    times = deniable.privacy.exhaustion_times(2, budget, iter(arrivals))
    assert set(times) == set(arrivals)
    for segment, time in times.items():
        visits = [i for i, s in enumerate(arrivals, start=1) if s == segment]
        assert time == (visits[threshold - 1] if len(visits) >= threshold else None)


def test_expected_time_is_the_clock_over_the_share() -> None:
    rows = grid((2, 5, 20), (0.1, 1.0, 3.0), (1e-300, 0.01, 0.25, 1.0))
    want = [mp.ceil(oracle.root(k, g)) / mpf(s) for k, g, s in rows]
    agree(rows, deniable.privacy.expected_exhaustion_time(*columns(rows)), want, 1e-15)


def test_expected_time_by_simulation() -> None:
    """Mean waits of a negative binomial: a share of 1/4 and clock 51 wait 204 visitors on average."""
    rng = np.random.default_rng(5)
    waits = 51 + rng.negative_binomial(51, 0.25, size=200_000)
    standard_error = waits.std() / np.sqrt(waits.size)
    expected = float(deniable.privacy.expected_exhaustion_time(2, 1, 0.25))
    assert abs(waits.mean() - expected) < 5 * standard_error
    assert abs(waits.mean() - 0.99 * expected) > 5 * standard_error  # 1% off would be noticed
