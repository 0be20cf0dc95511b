"""Gains and elasticities against high-precision differences of the 50-digit bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests import oracle
from tests.agreement import BUDGETS, HORIZONS, agree, columns, grid
from tests.oracle import mp, mpf

import deniable
from deniable.privacy.exploration import exhaustion_root

CASES = {
    "constant": (
        deniable.theory.constant_gain,
        deniable.theory.constant_elasticity,
        oracle.constant,
    ),
    "dynamic": (deniable.theory.dynamic_gain, deniable.theory.dynamic_elasticity, oracle.dynamic),
}
SIZES = grid((2, 5, 20, 1000), (100, 10**4, 10**6, 10**9, 10**12))


@pytest.mark.parametrize("n_segments", [1, 2, 20, 1000])
@pytest.mark.parametrize("strategy", CASES)
def test_derivatives(strategy: str, n_segments: int) -> None:
    """On the scale a derivative lives on: the fall of exploration times the bound.

    A gain is a difference of terms of that size; near its zero only that many digits exist.
    """
    gain, elasticity, bound = CASES[strategy]
    rows = grid((2, 3, 20, 1000, 10_000), HORIZONS[2:], BUDGETS, (n_segments,))
    values = [bound(*row) for row in rows]
    slopes = [oracle.slope(bound, *row) for row in rows]
    scale = [
        max(abs(slope), oracle.fall(k, gamma) * value)
        for (k, _, gamma, _), slope, value in zip(rows, slopes, values, strict=True)
    ]
    agree(rows, gain(*columns(rows)), [-slope for slope in slopes], scale=scale)
    ratio = [mpf(row[2]) / value for row, value in zip(rows, values, strict=True)]
    agree(
        rows,
        elasticity(*columns(rows)),
        [r * slope for r, slope in zip(ratio, slopes, strict=True)],
        scale=[r * unit for r, unit in zip(ratio, scale, strict=True)],
    )


def test_a_derivative_without_its_clock_term_would_be_noticed() -> None:
    """Holding the exhaustion clock fixed is the classical mistake; it is off by percents."""
    k, t, gamma = 2, 10**4, 1.0
    n = oracle.root(k, gamma)

    def frozen(k: int, t: float, gamma: float, j: int) -> oracle.Real:
        e, T = oracle.eps(k, gamma), mpf(t)
        estimation = oracle.B * mp.sqrt(k / e) * (mp.sqrt(T) - mp.sqrt(n)) * mp.sqrt(mp.log(T))
        return (T - n) * e + estimation

    mistake = -oracle.slope(frozen, k, t, gamma, 1)
    assert abs(mistake / mpf(float(deniable.theory.dynamic_gain(k, t, gamma))) - 1) > 0.01


@pytest.mark.parametrize("n_segments", [1, 2, 5, 20])
def test_the_kink(n_segments: int) -> None:
    """Positive just below the best budget, exactly 0 at and above it, for every size."""
    for k, t in SIZES:
        best = float(deniable.theory.best_dynamic_budget(k, t))
        if best == 0:
            assert deniable.theory.dynamic_gain(k, t, [0, 1e-9, 1.0], n_segments).tolist() == [
                0,
                0,
                0,
            ]
            continue
        for budget in (best, np.nextafter(best, 9e9), best + 1e-6, 2 * best, 700.0):
            assert deniable.theory.dynamic_gain(k, t, budget, n_segments) == 0
            assert deniable.theory.dynamic_elasticity(k, t, budget, n_segments) == 0
        for below in (1e-3, 1e-6, 1e-8):
            budget = best * (1 - below)
            got = float(deniable.theory.dynamic_gain(k, t, budget, n_segments))
            want = -oracle.slope(oracle.dynamic, k, t, budget, n_segments)
            assert got > 0
            # T - n is a difference: its relative error, and the slope's, is rounding / distance.
            assert got == pytest.approx(float(want), rel=1e-13 + 1e-13 / below, abs=0)


@pytest.mark.parametrize(("k", "t"), [(2, 10**4), (5, 10**6), (20, 10**5), (2, 10**9)])
def test_the_gain_just_below_the_kink_in_closed_form(k: int, t: int) -> None:
    """One segment: the gain tends to A T exploration_T times the relative fall of exploration."""
    best = deniable.theory.best_dynamic_budget(k, t)
    limit = oracle.A * t * oracle.eps_dyn(k, t) * oracle.fall(k, float(best))
    assert float(deniable.theory.dynamic_gain(k, t, best * (1 - 1e-9))) == pytest.approx(
        float(limit), rel=1e-5
    )


def test_the_zero_of_the_constant_elasticity_is_the_best_budget() -> None:
    for k, t in SIZES:
        for j in (1, 2, 5, 20):
            best = float(deniable.theory.best_constant_budget(k, t, j))
            if best > 0:
                below, above = best * (1 - 1e-6), best * (1 + 1e-6)
                assert deniable.theory.constant_elasticity(k, t, below, j) < 0
                assert deniable.theory.constant_elasticity(k, t, above, j) > 0


def _random_sizes(n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Arms to 10,000, visitors to 1e12 and budgets over the whole range, small ones often."""
    rng = np.random.default_rng(seed)
    k = np.floor(np.exp(rng.uniform(np.log(2), np.log(10_000), n)))
    k[: n // 3] = rng.integers(2, 8, n // 3)
    t = np.floor(np.exp(rng.uniform(0, np.log(1e12), n)))
    t[::2] = np.floor(np.exp(rng.uniform(0, np.log(500), t[::2].size)))
    budget = np.exp(rng.uniform(np.log(1e-9), np.log(700), n))
    within = np.asarray(deniable.theory.best_dynamic_budget(k, t)) * rng.uniform(0, 1, n)
    return k, t, np.where(rng.random(n) < 0.6, within, budget)


CORNER_BUDGET = float(mp.log(-1 + 2 / mp.cbrt(2 / mp.e)))
"""0.19507: with two arms and less, the exhaustion clock rests at e whatever the budget."""


def _in_the_corner(k: oracle.Real, t: oracle.Real, budget: oracle.Real) -> oracle.Real:
    """Where the clock rests, more budget buys estimation errors faster than it saves exploration."""
    rate = np.asarray(deniable.privacy.exploration_from_risk(k, budget))
    grows = (np.sqrt(t) + np.sqrt(math.e)) * rate**1.5 < 4 * np.sqrt(np.log(np.maximum(t, 1)))
    return (k == 2) & (t >= 3) & (budget < CORNER_BUDGET) & (budget > 0) & grows


def test_the_dynamic_elasticity_is_never_positive_but_in_one_corner() -> None:
    """One segment: two arms, at most 60 visitors and a budget below 0.1951 is the whole exception."""
    k, t, budget = _random_sizes(400_000, seed=11)
    elasticity = np.asarray(deniable.theory.dynamic_elasticity(k, t, budget))
    assert np.isfinite(elasticity).all()
    np.testing.assert_array_equal(elasticity > 0, _in_the_corner(k, t, budget))
    assert (elasticity > 0).sum() > 1000
    assert t[elasticity > 0].max() <= 60


def test_the_corner_is_in_the_bound_itself() -> None:
    """At 50 digits: the bound rises with the budget inside the corner and falls outside of it."""
    rows = grid((2,), (3, 4, 10, 30, 50, 60, 61, 100), (0.01, 0.1, 0.19, 0.2, 0.3))
    for k, t, gamma in rows:
        if gamma < float(oracle.best_dynamic(k, t)):
            rises = oracle.slope(oracle.dynamic, k, t, gamma, 1) > 0
            assert rises == bool(_in_the_corner(np.float64(k), np.float64(t), np.float64(gamma)))
    largest = max(t for t in range(3, 200) if _in_the_corner(2, t, CORNER_BUDGET * (1 - 1e-12)))
    assert largest == 60


@pytest.mark.parametrize("n_segments", [2, 5, 20, 1000])
def test_with_several_segments_only_the_last_stretch_is_sure_to_fall(n_segments: int) -> None:
    """The bound is humped: a positive elasticity is common, but never where n > 0.95 T."""
    k, t, budget = _random_sizes(200_000, seed=n_segments)
    elasticity = np.asarray(deniable.theory.dynamic_elasticity(k, t, budget, n_segments))
    clock = np.asarray(exhaustion_root(k, np.minimum(budget, 200)))
    assert (elasticity > 0).mean() > 0.1
    assert not (elasticity[clock > 0.95 * t] > 0).any()


@pytest.mark.parametrize(
    ("n_segments", "n_arms", "horizon", "valley", "top"),
    [
        (2, 2, 10**4, 1.4138, 2.5089),
        (2, 5, 10**6, 3.5251, 4.5475),
        (5, 20, 10**5, 2.7219, 4.3058),
        (20, 5, 10**6, 2.5870, 4.2222),
    ],
)
def test_the_hump_of_several_segments(
    n_segments: int, n_arms: int, horizon: int, valley: float, top: float
) -> None:
    """Falling, rising from the valley, falling again from the top to the best budget, then flat."""
    best = float(deniable.theory.best_dynamic_budget(n_arms, horizon))
    assert valley < top < best
    for budget, sign in [
        (valley * 0.9, -1),
        (valley * 0.999, -1),
        (valley * 1.001, 1),
        (top * 0.999, 1),
        (top * 1.001, -1),
        (best * 0.9999, -1),
        (best, 0),
    ]:
        assert (
            np.sign(deniable.theory.dynamic_elasticity(n_arms, horizon, budget, n_segments)) == sign
        )
        if sign:
            slope = oracle.slope(oracle.dynamic, n_arms, horizon, budget, n_segments)
            assert mp.sign(slope) == sign
    at_best = deniable.theory.dynamic_regret(n_arms, horizon, best, n_segments)
    assert at_best < deniable.theory.dynamic_regret(n_arms, horizon, valley, n_segments)
