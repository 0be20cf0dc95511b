"""Boundaries against mpmath, ville, the inequality they rest on, and walks that try to cross them."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import ville

from deniable.errors import InvalidArgumentError
from deniable.inference import boundaries
from deniable.inference.boundaries import bernstein_mixture, normal_mixture


@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-6])
@pytest.mark.parametrize("variance", [0.3, 20.0, 1e6])
def test_normal_mixture_is_robbins_boundary(alpha: float, variance: float) -> None:
    tuning = -2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))
    for progress in (0.01, 1.0, 30.0):
        precision = variance / (progress * tuning)
        expected = ville.normal_mixture(variance, alpha, precision)
        assert normal_mixture(variance, progress, alpha) == pytest.approx(
            float(expected), rel=1e-12
        )


@pytest.mark.parametrize("alpha", [0.05, 1e-4])
def test_normal_mixture_is_lowest_near_the_plan(alpha: float) -> None:
    """The plan's tuning is within half a per cent of the best precision that ville finds."""
    best = ville.normal_mixture(50.0, alpha, ville.best_rho(50.0, alpha))
    assert float(best) <= normal_mixture(50.0, 1.0, alpha) <= 1.005 * float(best)


@pytest.mark.parametrize("alpha", [0.05, 1e-5])
@pytest.mark.parametrize("variance", [0.0, 0.5, 40.0, 1e5, 1e9])
def test_bernstein_mixture_reaches_exactly_its_level(alpha: float, variance: float) -> None:
    """The mixture, once more in 40 digits, is 2/alpha at the boundary."""
    planned = 100.0
    s = mpmath.mpf(float(bernstein_mixture(variance, planned, alpha)))
    with mpmath.workdps(40):
        edges = [
            mpmath.mpf(boundaries.SMALLEST)
            * (mpmath.mpf(boundaries.LARGEST) / boundaries.SMALLEST)
            ** (mpmath.mpf(i) / boundaries.GRID)
            for i in range(boundaries.GRID + 1)
        ]
        best = mpmath.sqrt(2 * mpmath.log(2 / mpmath.mpf(alpha)) / planned)
        total = mixture = mpmath.mpf(0)
        for low, high in pairwise(edges):
            bet = mpmath.sqrt(low * high)
            weight = (high - low) / (1 + (bet / best) ** 2)
            psi = -mpmath.log(1 - bet) - bet
            total += weight
            mixture += weight * mpmath.exp(bet * s - psi * variance)
        assert float(mixture / total * alpha / 2) == pytest.approx(1, rel=1e-6)


def test_the_inequality_that_exactness_rests_on() -> None:
    """exp(l x - psi(l) x^2) <= 1 + l x for x >= -1, and it fails below -1."""
    bets = np.linspace(0.001, 0.97, 200)[:, None]
    psi = -np.log1p(-bets) - bets
    steps = np.concatenate([np.linspace(-1, 1, 401), np.geomspace(1, 1e3, 50)])
    assert (np.exp(bets * steps - psi * steps**2) <= 1 + bets * steps + 1e-12).all()
    beyond = -1.05
    assert (np.exp(bets * beyond - psi * beyond**2) > 1 + bets * beyond).any()


@pytest.mark.parametrize("chance", [0.5, 0.05, 0.002])
def test_bounded_walks_stay_within(chance: float) -> None:
    """Centred coin flips, up to very lopsided ones: 5% of 2,000 walks may leave, in 3,000 steps."""
    rng = np.random.default_rng(8)
    left = np.zeros(2000, dtype=bool)
    total, squares = np.zeros(2000), np.zeros(2000)
    for step in range(1, 3001):
        move = (rng.random(2000) < chance) - chance
        total += move
        squares += move**2
        if step % 30 == 0:
            left |= np.abs(total) >= bernstein_mixture(squares, 3000 * chance, 0.05)
    assert left.mean() <= 0.05


def test_walks_with_steps_beyond_the_range_leave() -> None:
    """A planted fault: steps of size 20 with a boundary for steps of size 1."""
    rng = np.random.default_rng(8)
    move = 20 * ((rng.random((2000, 1000)) < 0.01) - 0.01)
    total, squares = move.cumsum(axis=1)[:, 9::10], (move**2).cumsum(axis=1)[:, 9::10]
    left = np.abs(total) >= bernstein_mixture(squares, 100.0, 0.05)
    assert left.any(axis=1).mean() > 0.2


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, float("nan")])
def test_alpha_must_be_a_probability(alpha: float) -> None:
    for boundary in (normal_mixture, bernstein_mixture):
        with pytest.raises(InvalidArgumentError, match="alpha"):
            boundary(1.0, 1.0, alpha)


def test_nothing_yet_is_no_bound() -> None:
    assert normal_mixture(0.0, 0.0, 0.05) == math.inf
    assert np.isfinite(bernstein_mixture(0.0, 0.0, 0.05))
