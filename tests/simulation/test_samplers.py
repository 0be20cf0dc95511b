"""Samplers against SciPy's exact probabilities; an error of one in a thousand draws is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from scipy import stats
from tests.simulation.plain_python import as_python

from deniable.simulation.kernels import random_numbers as numbers
from deniable.simulation.kernels.random_numbers import (
    binomial,
    failures_before_success,
    generator_state,
    hypergeometric,
    next_word,
    split_multinomial,
    uniform,
    wait_scale,
)

DRAWS = 400_000
NEVER = 1e-9


@njit
def _binomials(n: int, p: float, draws: int, state: Any) -> Any:
    out = np.empty(draws, np.int64)
    for i in range(draws):
        out[i] = binomial(n, p, state)
    return out


@njit
def _hypergeometrics(good: int, bad: int, size: int, draws: int, state: Any) -> Any:
    out = np.empty(draws, np.int64)
    for i in range(draws):
        out[i] = hypergeometric(good, bad, size, state)
    return out


@njit
def _waits(p: float, draws: int, state: Any) -> Any:
    out = np.empty(draws, np.int64)
    for i in range(draws):
        out[i] = failures_before_success(wait_scale(p), state)
    return out


def _state(seed: int) -> NDArray[np.uint64]:
    return generator_state(np.random.SeedSequence(seed))


def _p_value(drawn: NDArray[np.int64], law: Any) -> float:
    """Chi-square against an exact law, with its tails pooled."""
    low, high = int(law.ppf(1e-4)), int(law.ppf(1 - 1e-4))
    inner = np.arange(low, high + 1)
    wanted = np.concatenate([[law.cdf(low - 1)], law.pmf(inner), [law.sf(high)]]) * drawn.size
    counted = np.bincount(np.clip(drawn, low - 1, high + 1) - (low - 1), minlength=wanted.size)
    big = wanted > 5
    pooled_counts = np.append(counted[big], counted[~big].sum())
    pooled = np.append(wanted[big], wanted[~big].sum())
    good = pooled > 0
    if pooled_counts[~good].sum() > 0:
        return 0.0  # something impossible was drawn
    return float(stats.chisquare(pooled_counts[good], pooled[good]).pvalue)


BINOMIALS = [
    (5, 0.3),
    (12, 0.2),
    (30, 0.1),
    (50, 0.3),
    (109, 0.047),
    (100, 0.995),
    (1000, 0.5),
    (10**5, 0.3),
    (10**6, 2e-6),
    (10**6, 0.9999),
]
HYPERGEOMETRICS = [
    (5, 10, 7),
    (50, 60, 55),
    (20, 500, 260),
    (500, 20, 100),
    (1000, 1000, 1000),
    (10**5, 10**6, 5 * 10**5),
    (100, 300, 11),
    (300, 100, 380),
]


@pytest.mark.parametrize(("n", "p"), BINOMIALS)
def test_binomial(n: int, p: float) -> None:
    drawn = _binomials(n, p, DRAWS, _state(1))
    law = stats.binom(n, p)
    assert _p_value(drawn, law) > NEVER
    shifted = drawn.copy()
    shifted[: DRAWS // 20] = np.minimum(shifted[: DRAWS // 20] + max(1, int(law.std())), n)
    assert _p_value(shifted, law) < NEVER, "one draw in twenty off by a standard deviation"


@pytest.mark.parametrize(("good", "bad", "size"), HYPERGEOMETRICS)
def test_hypergeometric(good: int, bad: int, size: int) -> None:
    drawn = _hypergeometrics(good, bad, size, DRAWS, _state(2))
    law = stats.hypergeom(good + bad, good, size)
    assert drawn.min() >= max(0, size - bad)
    assert drawn.max() <= min(good, size)
    assert _p_value(drawn, law) > NEVER
    if law.std() < 100:
        assert _p_value(np.minimum(drawn + 1, min(good, size)), law) < NEVER, "off by one"


@pytest.mark.parametrize("p", [0.7, 0.05, 1e-3])
def test_waits(p: float) -> None:
    drawn = _waits(p, DRAWS, _state(3))
    law = stats.geom(p, loc=-1)
    assert _p_value(drawn, law) > NEVER
    assert _p_value(drawn, stats.geom(p * 0.95, loc=-1)) < NEVER, "five percent too long"
    assert abs(drawn.mean() - law.mean()) < 6 * law.std() / np.sqrt(DRAWS)


def test_large_counts_keep_their_moments() -> None:
    n, p = 10**12, 0.3
    drawn = _binomials(n, p, 20_000, _state(5))
    z = (drawn.mean() - n * p) / np.sqrt(n * p * (1 - p) / drawn.size)
    assert abs(z) < 6
    assert abs(drawn.var() / (n * p * (1 - p)) - 1) < 0.06
    halves = _hypergeometrics(3 * 10**11, 7 * 10**11, 5 * 10**11, 20_000, _state(6))
    variance = n * 0.25 * 0.3 * 0.7  # of the halves of 1e12 visitors, .3 of them marked
    assert abs(halves.mean() - 0.15 * n) < 6 * np.sqrt(variance / halves.size)
    assert abs(halves.var() / variance - 1) < 0.06


def test_certain_and_impossible() -> None:
    state = _state(7)
    assert binomial(10, 0.0, state) == 0
    assert binomial(10, 1.0, state) == 10
    assert binomial(0, 0.5, state) == 0
    assert hypergeometric(0, 5, 3, state) == 0
    assert hypergeometric(5, 0, 3, state) == 3
    assert hypergeometric(5, 4, 9, state) == 5
    assert failures_before_success(wait_scale(0.0), state) == 2**62
    out = np.zeros(3, np.int64)
    split_multinomial(7, np.array([0.0, 1.0, 1.0]), out, state)
    assert out.tolist() == [0, 7, 0]


def test_the_generator_is_xoshiro256() -> None:
    """Against the published recurrence in unbounded integers."""
    mask = 2**64 - 1
    state = np.array([1, 2, 3, 2**63 + 5], dtype=np.uint64)
    s = [int(word) for word in state]
    for draw in range(1000):
        plus = (s[0] + s[3]) & mask
        shifted = (s[1] << 17) & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = ((s[3] << 45) | (s[3] >> 19)) & mask
        if draw % 2 == 0:
            assert int(next_word(state)) == plus
        else:
            assert float(uniform(state)) == (plus >> 11) * 2.0**-53
    assert [int(word) for word in state] == s


def _plain_hypergeometric(points: list[float]) -> Any:
    """The rejection sampler as plain Python, with these uniform numbers in turn."""
    left = iter(points)
    correction = as_python(numbers.stirling_correction)
    factorials = as_python(numbers._log_factorial_ratio, stirling_correction=correction)
    ratio = as_python(numbers._hypergeometric_log_ratio, _log_factorial_ratio=factorials)
    return as_python(
        numbers._hypergeometric_by_rejection,
        positive_uniform=lambda _state: next(left),
        uniform=lambda _state: next(left),
        _hypergeometric_log_ratio=ratio,
    )


def test_the_squeezes_of_the_hypergeometric_change_no_decision() -> None:
    """k is accepted where u^2 <= P(k) / P(mode), whichever of the short cuts decides it."""
    few, total, taken = 10**5, 11 * 10**5, 5 * 10**5
    law = stats.hypergeom(total, few, taken)
    mean, spread = law.mean(), np.sqrt(law.var() + 0.5)
    mode = int((taken + 1) * (few + 1) // (total + 2))
    width = np.sqrt(8 / np.e) * spread + 3 - 2 * np.sqrt(3 / np.e)
    decided = 0
    for off in (-600, -250, -90, -40, -16, 17, 33, 120, 300, 700):
        k = mode + off
        edge = float(np.exp((law.logpmf(k) - law.logpmf(mode)) / 2))
        for u, accepted in ((edge * (1 - 1e-6), True), (edge * (1 + 1e-6), False)):
            v = (k + 0.5 - mean - 0.5) * u / width + 0.5  # so that the place is in the middle of k
            if 0 <= v < 1:
                other = (mode + 0.5 - mean - 0.5) / width + 0.5  # the mode is always accepted
                drawn = _plain_hypergeometric([u, v, 0.9, 0.5 + (other - 0.5) * 0.9])
                assert (drawn(few, total, taken, None) == k) == accepted, (off, u)
                decided += 1
    assert decided > 10
    # A step of a twentieth beyond the edge: the short cuts are what decides there.
    for off in (-300, -90, 120, 300):
        k = mode + off
        edge = float(np.exp((law.logpmf(k) - law.logpmf(mode)) / 2))
        for u in np.linspace(0.02, 0.98, 97):
            v = (k + 0.5 - mean - 0.5) * u / width + 0.5
            if 0 <= v < 1 and abs(u - edge) > 1e-3:
                other = (mode - mean) / width + 0.5
                drawn = _plain_hypergeometric([u, v, 0.9, 0.5 + (other - 0.5) * 0.9])
                assert (drawn(few, total, taken, None) == k) == (u < edge), (off, u)


@pytest.mark.parametrize(("n", "p"), [(1000, 0.3), (10**5, 0.05), (10**6, 0.5)])
def test_the_squeezes_of_the_binomial_change_no_decision(n: int, p: float) -> None:
    correction = as_python(numbers.stirling_correction)
    ratio = as_python(numbers._binomial_log_ratio, stirling_correction=correction)
    accepts = as_python(numbers._binomial_accepts, _binomial_log_ratio=ratio)
    law, mode = stats.binom(n, p), int((n + 1) * p)
    for off in (-5, -2, -1, -0.3, 0.01, 0.5, 1.5, 3, 6):
        k = mode + int(off * law.std())
        edge = float(np.exp(law.logpmf(k) - law.logpmf(mode)))
        for factor in (0.01, 0.5, 0.9, 0.99, 1 - 1e-7, 1 + 1e-7, 1.01, 1.1, 2.0, 100.0):
            assert accepts(n, p, law.var(), k, edge * factor) == (factor < 1), (off, factor)
