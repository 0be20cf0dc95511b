"""The prior of click rates: against numerical integration, and its draws against its words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import Prior, best_rate, mean_rate


@pytest.mark.parametrize(
    ("n_arms", "best"), [(2, 0.5642), (3, 0.8463), (5, 1.1630), (10, 1.5388), (20, 1.8675)]
)
def test_the_best_of_a_few_normals(n_arms: int, best: float) -> None:
    rate, lift = 0.1, 0.01
    gain = float(best_rate(n_arms, rate, lift)) - float(mean_rate(rate, lift))
    assert gain / (rate * lift) == pytest.approx(best, abs=5e-5)


@pytest.mark.parametrize(
    ("n_arms", "rate", "lift"), [(2, 0.4, 0.8), (7, 0.9, 0.5), (50, 0.02, 1.0)]
)
def test_clipped_rates_against_integration(n_arms: int, rate: float, lift: float) -> None:
    low, high = rate / 20, 1 - (1 - rate) / 20

    def clipped(z: float) -> float:
        drawn = min(max(rate * (1 + lift * z), low), high)
        density = n_arms * stats.norm.pdf(z) * stats.norm.cdf(z) ** (n_arms - 1)
        return float(drawn * density)

    ends = [(low / rate - 1) / lift, (high / rate - 1) / lift]
    inside = [end for end in ends if abs(end) < 9]
    wanted = integrate.quad(clipped, -9, 9, points=inside, limit=500)[0]
    assert float(best_rate(n_arms, rate, lift)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
def test_draws_share_what_they_should(part: float) -> None:
    rates = Prior(0.1, 0.05, part).draw(2, 3, 40_000, np.random.default_rng(1))
    lifts = (rates / 0.1 - 1) / 0.05
    assert lifts.mean() == pytest.approx(0, abs=0.02)
    assert lifts.var() == pytest.approx(1, abs=0.02)
    between_segments = np.corrcoef(lifts[:, 0, 0], lifts[:, 1, 0])[0, 1]
    assert between_segments == pytest.approx(1 - part, abs=0.03)
    assert np.corrcoef(lifts[:, 0, 0], lifts[:, 0, 1])[0, 1] == pytest.approx(0, abs=0.03)


def test_draws_are_clipped() -> None:
    rates = Prior(0.4, 1.0, 0.5).draw(5, 2, 1000, np.random.default_rng(2))
    assert rates.min() == pytest.approx(0.02)
    assert rates.max() == pytest.approx(0.97)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("base_rate", 0),
        ("base_rate", 1),
        ("base_rate", float("nan")),
        ("lift", 0),
        ("lift", 1.5),
        ("heterogeneity", -0.1),
        ("heterogeneity", 2),
    ],
)
def test_bad_priors_name_the_argument(argument: str, value: float) -> None:
    good = {"base_rate": 0.1, "lift": 0.1, "heterogeneity": 0.1, argument: value}
    with pytest.raises(InvalidArgumentError) as caught:
        Prior(**good)
    assert caught.value.argument == argument
