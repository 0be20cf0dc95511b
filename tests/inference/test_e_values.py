"""Evidence about draws: against mpmath, over many sound experiments, and with planted faults."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.special

from deniable.errors import InvalidArgumentError
from deniable.inference._special import binomial_two_sided, chi_square_tail, log_gamma
from deniable.inference.e_values import (
    TILTS,
    draw_evidence,
    multinomial_log_e_value,
    smallest_excess,
    tilt_log_e_value,
)
from deniable.inference.state import VisitorBatch

LEVEL = math.log(1 / 0.05)


def test_log_gamma() -> None:
    x = np.concatenate([np.geomspace(1e-9, 1e12, 300), np.arange(1, 40) / 2])
    expected = np.array([float(mpmath.loggamma(mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(log_gamma(x), expected, rtol=3e-14, atol=3e-14)


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 40, 199])
def test_chi_square_tail(degrees: int) -> None:
    for statistic in (1e-6, 0.5, degrees, 3.0 * degrees, 10.0 * degrees + 50):
        expected = mpmath.gammainc(
            degrees / mpmath.mpf(2), statistic / mpmath.mpf(2), regularized=True
        )
        assert chi_square_tail(statistic, degrees) == pytest.approx(float(expected), rel=1e-11)
    assert chi_square_tail(math.inf, degrees) == 0.0


@pytest.mark.parametrize(
    ("successes", "trials", "p"),
    [
        (0, 10, 0.3),
        (9, 10, 0.3),
        (3, 1000, 0.001),
        (12, 1000, 0.001),
        (520, 1000, 0.5),
        (0, 1, 0.9),
    ],
)
def test_binomial_tails(successes: int, trials: int, p: float) -> None:
    lower = float(scipy.special.bdtr(successes, trials, p))
    upper = 1.0 if successes == 0 else float(scipy.special.bdtrc(successes - 1, trials, p))
    expected = min(1.0, 2 * (lower if successes <= trials * p else upper))
    assert binomial_two_sided(successes, trials, p) == pytest.approx(expected, rel=1e-9)


def test_tilts_against_the_product_over_visitors() -> None:
    """In 40 digits, visitor by visitor, from the definition of the likelihood ratio."""
    tables, shows, trials = [0.1, 0.5, 0.93], [7, 20, 40], [30, 41, 44]
    with mpmath.workdps(40):
        mean = mpmath.mpf(0)
        for tilt in TILTS.tolist():
            product = mpmath.mpf(1)
            for p, x, n in zip(tables, shows, trials, strict=True):
                odds = mpmath.e**tilt * p / (1 - mpmath.mpf(p))
                q = odds / (1 + odds)
                product *= (q / p) ** x * ((1 - q) / (1 - mpmath.mpf(p))) ** (n - x)
            mean += product / TILTS.size
        expected = float(mpmath.log(mean))
    assert float(tilt_log_e_value(tables, trials, shows)) == pytest.approx(expected, rel=1e-10)


def test_multinomial_against_the_integral() -> None:
    """Two arms: the Dirichlet mixture is a beta integral, done numerically."""
    p, counts = 0.3, (40, 60)
    with mpmath.workdps(30):
        a, b = 100 * mpmath.mpf(p), 100 * (1 - mpmath.mpf(p))

        def weighted(t: mpmath.mpf) -> mpmath.mpf:
            density = t ** (a - 1) * (1 - t) ** (b - 1) / mpmath.beta(a, b)
            return density * (t / p) ** counts[0] * ((1 - t) / (1 - mpmath.mpf(p))) ** counts[1]

        expected = mpmath.log(mpmath.quad(weighted, [0, 0.2, 0.35, 0.6, 1]))
    found = float(multinomial_log_e_value([p, 1 - p], counts))
    assert found == pytest.approx(float(expected), rel=1e-9)


def test_e_values_have_mean_one() -> None:
    """Exactly, over all outcomes of 40 draws."""
    n = 40
    x = np.arange(n + 1, dtype=np.float64)
    orders = np.array([math.comb(n, k) for k in range(n + 1)], dtype=np.float64)
    for p in (0.5, 0.07):
        chance = orders * p**x * (1 - p) ** (n - x)
        tilt = np.exp(tilt_log_e_value(np.full((1, n + 1), p), np.full((1, n + 1), n), x[None]))
        many = np.exp(
            multinomial_log_e_value(np.tile([p, 1 - p], (n + 1, 1)), np.stack([x, n - x], axis=1))
        )
        assert chance @ tilt == pytest.approx(1, rel=1e-11)
        assert chance @ many == pytest.approx(1, rel=1e-11)


def simulate(rng: np.random.Generator, tilt: float, runs: int) -> tuple[float, float]:
    """Share of experiments accused at some look (.05), and at the last one; adaptive tables."""
    accused = np.zeros(runs, dtype=bool)
    p_all, n_all, x_all = [], [], []
    favourite = rng.integers(0, 3, size=runs)
    for _ in range(25):
        p = np.full((runs, 3), 0.2)
        p[np.arange(runs), favourite] = 0.6
        odds = p[:, 0] / (1 - p[:, 0]) * math.exp(tilt)
        q = p * ((1 - odds / (1 + odds)) / (1 - p[:, 0]))[:, None]
        q[:, 0] = odds / (1 + odds)
        shows = rng.multinomial(80, q)
        favourite = shows.argmax(axis=1)  # the next table depends on this one's draws
        p_all.append(p[:, 0])
        n_all.append(np.full(runs, 80))
        x_all.append(shows[:, 0])
        evidence = tilt_log_e_value(np.array(p_all), np.array(n_all), np.array(x_all))
        accused |= evidence >= LEVEL
    return float(accused.mean()), float((evidence >= LEVEL).mean())


def test_sound_draws_are_accused_rarely_and_biased_ones_mostly() -> None:
    rng = np.random.default_rng(31)
    assert simulate(rng, 0.0, 3000)[0] <= 0.05
    assert simulate(rng, 0.3, 500)[0] > 0.9


def test_evidence_of_a_whole_experiment() -> None:
    """The mean over arms, segments and favourites; a planted leak in one segment is named."""
    rng = np.random.default_rng(2)
    rows = np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2]])
    sound, leaky = [], []
    for _ in range(10):
        shows = rng.multinomial(1000, rows)
        sound.append(VisitorBatch(rows, shows, np.zeros((2, 3))))
        biased = shows.copy()
        biased[1] = rng.multinomial(1000, [0.17, 0.66, 0.17])
        leaky.append(VisitorBatch(rows, biased, np.zeros((2, 3))))
    assert draw_evidence(sound).p_value > 0.05
    found = draw_evidence(leaky)
    assert found.p_value < 1e-6
    assert found.favourites[1] > 20 > found.favourites[0]
    assert found.arms[:2].argmax() == 4  # the second segment's second arm


def test_what_cannot_happen_is_proof() -> None:
    impossible = VisitorBatch([[1.0, 0.0]], [[10, 1]], [[0, 0]])
    assert draw_evidence([impossible]).log_e_value == math.inf
    assert draw_evidence([impossible]).p_value == 0.0
    assert multinomial_log_e_value([1.0, 0.0], [10, 1]) == math.inf
    uniform = VisitorBatch([[1 / 3] * 3], [[5, 5, 5]], [[0, 0, 0]])
    assert draw_evidence([uniform]).favourites == pytest.approx([0.0, 0.0], abs=1e-12)


@pytest.mark.parametrize(
    ("tables", "trials"), [([0.5], [10_000]), ([0.02, 0.3], [20_000, 3000]), ([0.9], [3000])]
)
def test_the_smallest_excess_is_noticed_as_often_as_stated(
    tables: list[float], trials: list[int]
) -> None:
    found = smallest_excess(tables, trials)
    assert found is not None
    rng = np.random.default_rng(7)
    p = np.array(tables)[:, None]
    for tilt, least, most in ((found.tilt, 0.99, 1.0), (found.tilt / 2, 0.0, 0.5)):
        q = p * math.exp(tilt) / (1 - p + p * math.exp(tilt))
        shown = rng.binomial(np.array(trials)[:, None], q, size=(len(tables), 20_000))
        every = np.broadcast_to(np.array(trials)[:, None], shown.shape)
        evidence = tilt_log_e_value(np.broadcast_to(p, shown.shape), every, shown)
        noticed = float((evidence >= math.log(1000)).mean())
        assert least <= noticed <= most
        if tilt == found.tilt:
            reached = shown.sum(axis=0) >= found.threshold
            expected = (q * np.array(trials)[:, None]).sum() / sum(trials)
            designed = (p * np.array(trials)[:, None]).sum() / sum(trials)
            assert found.share == pytest.approx(float(expected - designed), rel=1e-6)
            if len(tables) == 1:
                assert (reached == (evidence >= math.log(1000))).all()


def test_few_draws_notice_nothing() -> None:
    assert smallest_excess([0.5], [5]) is None
    assert smallest_excess([1.0], [1000]) is None


def test_mistakes_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="successes"):
        tilt_log_e_value([0.5], [10], [11])
    with pytest.raises(InvalidArgumentError, match="successes"):
        tilt_log_e_value([0.5], [10], [1, 2])
    with pytest.raises(InvalidArgumentError, match="shows"):
        multinomial_log_e_value([0.5, 0.5], [1])
