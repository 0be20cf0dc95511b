"""Expected click rates given counts, against draws from the prior that are weighted by the counts."""

from __future__ import annotations

import numpy as np
import pytest

from deniable._validation import FloatArray
from deniable.expectations.prior import Prior, best_rate, mean_rate
from deniable.expectations.surface import Question
from research import surface_luck, surface_runs
from research.posterior import learned, unlearned

SHOWS = np.array([[300, 80, 20], [150, 250, 40]])
CLICKS = np.array([[33, 12, 1], [14, 38, 3]])


def weighted(prior: Prior, draws: int = 400_000) -> tuple[FloatArray, FloatArray]:
    """Means over the prior with the likelihood as weights: rates by segment and arm, best by segment."""
    rates = prior.draw(3, 2, draws, np.random.default_rng(1))
    logs = (CLICKS * np.log(rates) + (SHOWS - CLICKS) * np.log1p(-rates)).sum(axis=(1, 2))
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    return np.einsum("n,njk->jk", weight, rates), weight @ rates.max(axis=2)


@pytest.mark.parametrize("heterogeneity", [0.05, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("lift", [0.1, 0.5])
def test_it_is_the_posterior_mean(lift: float, heterogeneity: float) -> None:
    prior = Prior(0.1, lift, heterogeneity)
    found = learned(prior, SHOWS, CLICKS, signal=10.0)
    rates, best = weighted(prior)
    assert found.rates == pytest.approx(rates, rel=0.01)
    assert found.best == pytest.approx(best, rel=0.01)


def test_counts_of_other_segments_count() -> None:
    """The comparison has power: unrelated segments would be found."""
    rates, _ = weighted(Prior(0.1, 0.5, 0.05))
    wrong = learned(Prior(0.1, 0.5, 1.0), SHOWS, CLICKS, signal=10.0)
    assert np.abs(wrong.rates / rates - 1).max() > 0.05


def test_without_counts_it_is_the_prior() -> None:
    nothing = np.zeros((2, 4), np.int64)
    found = learned(Prior(0.1, 0.5, 0.3), nothing, nothing, signal=1.0)
    assert found.rates == pytest.approx(float(mean_rate(0.1, 0.5)), rel=1e-5)
    assert found.best == pytest.approx(float(best_rate(4, 0.1, 0.5)), rel=0.02)


@pytest.mark.parametrize(("segments", "heterogeneity"), [(1, 0.3), (3, 0.3), (3, 1.0)])
def test_what_nobody_has_learned_about_is_on_the_same_grid(
    segments: int, heterogeneity: float
) -> None:
    nothing = np.zeros((segments, 4), np.int64)
    prior = Prior(0.1, 0.5, heterogeneity)
    found = learned(prior, nothing, nothing, signal=1.0)
    before = unlearned(prior, 4, segments, signal=1.0)
    assert found.rates == pytest.approx(before.rate, rel=1e-12)
    assert found.best == pytest.approx(before.best, rel=1e-12)


def test_where_hardly_anything_is_learned_taking_luck_off_adds_nothing() -> None:
    """There posterior means vary by less than what the grid blurs."""
    asked = Question.of(
        arms=19, visitors=256_000, segments=9, base_rate=0.0076, lift=0.0035, heterogeneity=0.5,
        budget=7.8,
    )  # fmt: skip
    rng = np.random.default_rng(3)
    each = np.array([surface_runs.run_row("dynamic", asked, rng) for _ in range(60)])
    rows = surface_runs.Rows(*each.T)
    found = surface_luck.expected_rows("dynamic", 0.01, asked, rows)
    assert found.mean() == pytest.approx(rows.shown.mean(), abs=0.003)


def test_where_all_was_seen_it_is_what_was_seen() -> None:
    shows = np.full((1, 2), 10**6)
    clicks = np.array([[100_000, 104_000]])
    found = learned(Prior(0.1, 0.05, 0.5), shows, clicks, signal=600.0)
    assert found.rates == pytest.approx(np.array([[0.1, 0.104]]), rel=1e-3)
    assert found.best == pytest.approx(np.array([0.104]), rel=1e-3)


@pytest.mark.parametrize("name", ["pooled", "joint"])
def test_rows_that_are_judged_by_counts_have_the_same_mean_and_less_noise(name: str) -> None:
    asked = Question.of(
        arms=2,
        visitors=2000,  # with more of them the runs differ more than the clicks of one run
        segments=2,
        base_rate=0.1,
        lift=0.1,
        heterogeneity=0.4,
        budget=1.0,
    )
    rng = np.random.default_rng(3)
    runs = [surface_runs.run_row(name, asked, rng) for _ in range(300)]
    rows = surface_runs.Rows(*np.array(runs).T)
    judged = surface_luck.expected_rows(name, 0.4, asked, rows)
    plain = surface_luck.expected_rows(
        name, 0.4, asked, rows._replace(shown=np.full(300, np.nan), best=np.full(300, np.nan))
    )
    assert judged.std() < 0.6 * plain.std()
    noise = (judged - plain).std() / 300**0.5
    assert abs(float((judged - plain).mean())) < 6 * noise
