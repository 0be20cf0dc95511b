"""Sample ratios against SciPy, and the drift alarm over steady and changing experiments."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.stats
from tests.inference.experiments import Setting, constant, run, same

from deniable.errors import InvalidArgumentError
from deniable.inference.health import drift, sample_ratios
from deniable.inference.state import VisitorBatch


def test_chi_square_is_scipys() -> None:
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    shows = np.array([[480, 330, 190], [45, 420, 35]])
    check = sample_ratios([VisitorBatch(rows, shows, np.zeros((2, 3)))])[0]
    statistic = sum(
        scipy.stats.chisquare(count, row * count.sum()).statistic
        for row, count in zip(rows, shows, strict=True)
    )
    assert check.p_value == pytest.approx(float(scipy.stats.chi2.sf(statistic, 4)), rel=1e-10)
    assert (check.visitors, check.exact) == (1500, False)


def test_few_visitors_get_an_exact_test() -> None:
    check = sample_ratios([VisitorBatch([[0.9, 0.1]], [[3, 0]], [[0, 0]])])[0]
    assert check.exact
    assert check.p_value == 1.0  # three visitors cannot accuse anybody
    check = sample_ratios([VisitorBatch([[0.9, 0.1]], [[2, 10]], [[0, 0]])])[0]
    tail = float(scipy.stats.binom.sf(9, 12, 0.1))
    assert check.p_value == pytest.approx(2 * 2 * tail, rel=1e-9)


def test_tables_that_nobody_met_or_that_forbid_an_arm() -> None:
    nobody, forbidden, certain = sample_ratios(
        [
            VisitorBatch([[0.5, 0.5]], [[0, 0]], [[0, 0]]),
            VisitorBatch([[1.0, 0.0]], [[5, 1]], [[0, 0]]),
            VisitorBatch([[1.0, 0.0]], [[5, 0]], [[0, 0]]),
        ]
    )
    assert (nobody.p_value, nobody.log_e_value) == (1.0, 0.0)
    assert (forbidden.p_value, forbidden.log_e_value) == (0.0, math.inf)
    assert certain.p_value == 1.0


def test_p_values_of_sound_tables_are_uniform_or_larger() -> None:
    rng = np.random.default_rng(5)
    for size in (20, 2000):
        rows = rng.dirichlet([1.0, 1.0, 1.0], size=600)
        shows = rng.multinomial(size, rows)
        checks = sample_ratios(
            [
                VisitorBatch(row[None], count[None], np.zeros((1, 3)))
                for row, count in zip(rows, shows, strict=True)
            ]
        )
        p = np.array([check.p_value for check in checks])
        for level in (0.01, 0.05, 0.2):
            assert (p <= level).mean() <= level + 4 * math.sqrt(level / 600)


def test_drift_against_the_integral() -> None:
    """One cell, two batches: Jeffreys' mean likelihoods by numerical integration."""
    parts = [(30, 6), (20, 11)]
    batches = [VisitorBatch([[0.5, 0.5]], [[n, 0]], [[s, 0]]) for n, s in parts]
    with mpmath.workdps(25):

        def mean_likelihood(n: int, s: int) -> mpmath.mpf:
            def weighted(r: mpmath.mpf) -> mpmath.mpf:
                prior = 1 / (mpmath.pi * mpmath.sqrt(r * (1 - r)))
                return prior * r**s * (1 - r) ** (n - s)

            return mpmath.quad(weighted, [0, 0.2, 0.5, 1])

        n, s = 50, 17
        changed = mean_likelihood(30, 6) * mean_likelihood(20, 11) / 2
        unchanged = mean_likelihood(n, s) / 2
        best = (mpmath.mpf(s) / n) ** s * (1 - mpmath.mpf(s) / n) ** (n - s)
        expected = float(mpmath.log((changed + unchanged) / best))
    found = drift(batches)
    assert found.cells[0, 0] == pytest.approx(expected, rel=1e-6)
    assert found.cells[0, 1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("values", [(1.0,), (0.1, 0.4, 1.0)])
def test_steady_experiments_raise_no_alarm(values: tuple[float, ...]) -> None:
    """1,000 steady experiments with adaptive tables, looked at after every batch, alpha .05."""
    setting = Setting(constant(3.0), same(0.1, 0.12), values=values, growth=0.2, typical=0.05)
    batches: list[VisitorBatch] = []
    highest = np.full(1000, -np.inf)
    for _, _, _, _, batch in run(setting, 40, runs=1000):
        batches.append(batch)
        if len(batches) > 1:
            cells = drift(batches).cells
            highest = np.maximum(highest, np.log(np.exp(cells).mean(axis=1)))
    assert len(batches) > 25
    assert (highest >= math.log(20)).mean() <= 0.05


def test_a_rate_that_falls_is_found() -> None:
    setting = Setting(
        constant(1.0), lambda t: (0.1, 0.15 if t < 0.4 else 0.1), growth=0.1, typical=0.27
    )
    batches = [batch for _, _, _, _, batch in run(setting, 41, runs=200)]
    cells = drift(batches).cells
    noticed = np.log(np.exp(cells).mean(axis=1)) >= math.log(100)
    assert noticed.mean() > 0.9
    found = drift(batches)
    assert found.arm == 1
    assert found.rate_before > found.rate_since


def test_one_batch_has_no_before() -> None:
    with pytest.raises(InvalidArgumentError, match="batches"):
        drift([VisitorBatch([[0.5, 0.5]], [[5, 5]], [[1, 1]])])
