"""Fitting a prior: drawn experiments have their lift found again, where luck alone gives none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from deniable.errors import InvalidTableError
from deniable.expectations.fit import fit_prior
from deniable.expectations.prior import HETEROGENEITY, Prior


def drawn(
    prior: Prior, count: int, shows: int, seed: int, arms: int = 3, segments: int = 1
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    rates = prior.draw(arms, segments, count, rng)
    clicks = rng.binomial(shows, rates)
    return [
        {
            "experiment": e,
            "arm": a,
            "shows": shows,
            "clicks": int(clicks[e, s, a]),
            **({"segment": s} if segments > 1 else {}),
        }
        for e in range(count)
        for a in range(arms)
        for s in range(segments)
    ]


@pytest.mark.parametrize(("lift", "shows"), [(0.05, 40_000), (0.2, 3000), (0.02, 400_000)])
def test_the_lift_of_drawn_experiments_is_found(lift: float, shows: int) -> None:
    fitted = fit_prior(drawn(Prior(0.08, lift, 0), 400, shows, seed=1))
    assert fitted.lift == pytest.approx(lift, rel=0.1)
    assert fitted.lift_low < lift < fitted.lift_high
    assert fitted.base_rate == pytest.approx(0.08, rel=0.03)
    assert fitted.heterogeneity == HETEROGENEITY
    assert fitted.experiments == 400


def test_luck_is_not_taken_for_lift() -> None:
    """Equal arms with few shows: the rates seen differ by a tenth, the fit says hardly at all."""
    rows = drawn(Prior(0.1, 1e-6, 0), 300, 900, seed=2)
    seen = np.array([row["clicks"] / row["shows"] for row in rows]).reshape(300, 3)
    naive = (seen.std(axis=1, ddof=1) / seen.mean(axis=1)).mean()
    fitted = fit_prior(rows)
    assert naive > 0.08
    assert fitted.lift < 0.02
    assert fitted.lift_low == 0.0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_heterogeneity_from_segments(share: float) -> None:
    fitted = fit_prior(drawn(Prior(0.1, 0.2, share), 60, 30_000, seed=3, segments=3))
    assert fitted.heterogeneity == pytest.approx(share, abs=0.13)
    assert fitted.lift == pytest.approx(0.2, rel=0.12)


def test_the_likelihood_against_contrasts_of_arms() -> None:
    """Restricted likelihood is that of differences to the first arm, whatever the mean."""
    rows = drawn(Prior(0.1, 0.15, 0), 12, 5000, seed=4, arms=4)
    rates = np.array([row["clicks"] / row["shows"] for row in rows]).reshape(12, 4)
    contrast = np.hstack([-np.ones((3, 1)), np.eye(3)])

    def minus(log_lift: float) -> float:
        total = 0.0
        for own in rates:
            p = own.mean()
            covariance = np.eye(4) * ((p * np.exp(log_lift)) ** 2 + p * (1 - p) / 5000)
            law = multivariate_normal(np.zeros(3), contrast @ covariance @ contrast.T)
            total -= law.logpdf(contrast @ own)
        return total

    best = minimize_scalar(minus, bounds=(np.log(1e-3), 0), method="bounded")
    assert fit_prior(rows).lift == pytest.approx(float(np.exp(best.x)), rel=2e-3)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no experiment has two arms"),
        ([{"experiment": 1, "arm": "A", "shows": 9}], "row 1: clicks missing"),
        (
            [{"experiment": 1, "arm": "A", "shows": 9, "clicks": 10}],
            "row 1: shows=9, clicks=10: expected counts",
        ),
        ([{"experiment": 1, "arm": "A", "shows": 9, "clicks": 1}], "no experiment has two arms"),
        ([3], "row 1: expected columns"),
    ],
)
def test_bad_tables_are_told(rows: list[Any], words: str) -> None:
    with pytest.raises(InvalidTableError, match=words):
        fit_prior(rows)


def test_frames_are_read_too() -> None:
    import polars as pl

    rows = drawn(Prior(0.1, 0.1, 0), 20, 9000, seed=5)
    assert fit_prior(pl.DataFrame(rows)).lift == fit_prior(rows).lift
