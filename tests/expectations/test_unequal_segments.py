"""Sizes of segments: what is expected follows them, and agrees with direct simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deniable.errors import InvalidArgumentError
from deniable.expectations.expected import RIVALS, expected_loss
from deniable.expectations.prior import Prior
from deniable.planning.expectation import UNEQUAL_ERROR
from deniable.planning.plan import plan
from deniable.planning.report import known_words
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies import STRATEGIES
from deniable.strategies.kernel_rules import as_served
from deniable.strategies.pooled import Pooled

RUNS = 300


def simulated_loss(
    strategy: str, budget: float, arms: int, visitors: int, shares: list[float], prior: Prior
) -> tuple[float, float]:
    """Mean share of the gain that is lost over rates of the prior, and its standard error."""
    rng = np.random.default_rng(7)
    policy = Pooled() if strategy == "pooled" else as_served(STRATEGIES[strategy](budget))
    lost = []
    for run in range(RUNS):
        rates = prior.draw(arms, len(shares), 1, rng)[0]
        truth = Environment(rates, visitors, shares)
        shows, _ = run_repetition(make_job(truth, policy, checkpoints=[visitors]), 7, run)
        lost.append(float((shows[-1] * truth.gaps).sum()))
    known: Any = {"base_rate": prior.base_rate, "lift": prior.lift}
    gain = float(expected_loss("random", arms, visitors, **known).lost)
    return float(np.mean(lost)) / gain, float(np.std(lost)) / gain / np.sqrt(RUNS)


@pytest.mark.parametrize(
    ("strategy", "budget", "shares", "matters"),
    [
        ("pooled", 0.0, [0.9, 0.1], True),
        ("joint", 0.5, [0.8, 0.15, 0.05], True),
        ("joint", 1.0, [0.9, 0.1], True),
        ("dynamic", 2.0, [0.8, 0.15, 0.05], False),
    ],
)
def test_expected_losses_follow_the_sizes_of_segments(
    strategy: str, budget: float, shares: list[float], matters: bool
) -> None:
    """Fails if sizes are ignored: one bandit for everybody serves a large segment nearly perfectly."""
    prior = Prior(0.05, 0.1, 0.5)
    size: Any = {"n_arms": 4, "horizon": 1_000_000, "n_segments": len(shares), "budgets": budget}
    known: Any = {"base_rate": 0.05, "lift": 0.1, "heterogeneity": 0.5}
    gain = float(expected_loss("random", 4, 1_000_000, **known).lost)
    told = float(expected_loss(strategy, **size, **known, shares=shares).lost) / gain
    ignored = float(expected_loss(strategy, **size, **known).lost) / gain
    truth, error = simulated_loss(strategy, budget, 4, 1_000_000, shares, prior)
    assert abs(told - truth) < UNEQUAL_ERROR + 3 * error
    assert bool(abs(ignored - truth) > UNEQUAL_ERROR + 3 * error) is matters


@pytest.mark.parametrize("strategy", [*RIVALS, "joint", "dynamic", "constant"])
def test_equal_shares_change_nothing(strategy: str) -> None:
    size: Any = {
        "n_arms": 4,
        "horizon": 200_000,
        "n_segments": 4,
        "base_rate": 0.1,
        "budgets": [0.0, 1.5],
    }
    plain = expected_loss(strategy, **size)
    shared = expected_loss(strategy, **size, shares=[0.25] * 4)
    for name in ("clicks", "lost", "low", "high", "on_surface"):
        np.testing.assert_allclose(getattr(plain, name), getattr(shared, name), rtol=1e-12)


@pytest.mark.parametrize("shares", [[0.6, 0.6], [1.0], [0.2, 0.3, 0.5], [[0.5, 0.5]]])
def test_shares_must_be_those_of_the_segments(shares: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="shares"):
        expected_loss("joint", 4, 1000, 2, base_rate=0.1, shares=shares)


def test_sizes_change_the_plan_and_its_note() -> None:
    size: Any = {"n_arms": 4, "horizon": 1_000_000, "n_segments": 2, "base_rate": 0.05, "budget": 1}
    equal, uneven = plan(**size), plan(**size, shares=[0.9, 0.1])
    assert equal.expected is not None
    assert uneven.expected is not None
    assert uneven.expected.rivals["pooled"].lost < 0.8 * equal.expected.rivals["pooled"].lost
    assert uneven.expected.rivals["random"].lost == equal.expected.rivals["random"].lost
    assert "Segments differ in size: the figures are approximate" in known_words(uneven)
    assert "differ in size" not in known_words(equal)
    assert uneven.expected.error is None
