"""What is expected on labels, against direct simulation of bandits on labels."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.expectations.expected import expected_loss
from deniable.expectations.labels import expected_on_labels
from deniable.expectations.prior import Prior
from deniable.masks.limit import best_groups, group_channel
from deniable.masks.mask import Mask
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies.unbounded import Unbounded


def simulated_share(
    n_arms: int, horizon: int, shares: np.ndarray, prior: Prior, budget: float, runs: int
) -> tuple[float, float]:
    """Mean gain on labels as a share of perfect information, and its standard error."""
    names = [f"s{n}" for n in range(shares.size)]
    groups = {
        f"g{n}": [names[s] for s in members]
        for n, members in enumerate(best_groups(shares, budget, prior.heterogeneity))
    }
    mask = Mask(segments=names, budget=budget, key=bytes(32), name="m", groups=groups)
    lost, possible = [], []
    for run, rates in enumerate(prior.draw(n_arms, shares.size, runs, np.random.default_rng(3))):
        world = Environment(rates, horizon, shares, segments=names).masked(mask)
        shows, _ = run_repetition(make_job(world, Unbounded()), 3, run)
        lost.append(float((shows[-1] * world.gaps).sum()))
        possible.append(horizon * (world.best_reward - rates.mean(axis=1) @ shares))
    share = np.sum(lost) / np.sum(possible)
    spread = np.std(np.array(lost) - share * np.array(possible)) / np.mean(possible)
    return 1 - float(share), float(spread) / np.sqrt(runs)


@pytest.mark.parametrize(
    ("n_arms", "shares", "heterogeneity", "budget"),
    [(4, [0.25] * 4, 0.8, 3.0), (3, [0.5, 0.3, 0.2], 0.5, 1.0)],
)
def test_expected_gains_are_those_of_simulated_bandits(
    n_arms: int, shares: list[float], heterogeneity: float, budget: float
) -> None:
    prior = Prior(0.1, 0.2, heterogeneity)
    parts = np.array(shares)
    told = expected_on_labels(
        n_arms,
        30_000,
        parts.size,
        base_rate=prior.base_rate,
        lift=prior.lift,
        heterogeneity=heterogeneity,
        budget=budget,
        shares=shares,
    )
    share, error = simulated_share(n_arms, 30_000, parts, prior, budget, 40)
    assert error < 0.05
    assert abs(told.share - share) < 0.03 + 3 * error
    assert told.share < told.limit


def test_the_figures_of_the_specification() -> None:
    """A label in a firm whose arms differ by .1 in common and .2 by segment, mean of 2 to 8 arms."""
    for budget, expected in ((1, 0.561), (1.5, 0.585), (2, 0.634), (3, 0.725), (4, 0.771)):
        shares = [
            expected_on_labels(
                n_arms, 100_000, 4, base_rate=0.05, lift=0.05**0.5, heterogeneity=0.8, budget=budget
            ).share.item()
            for n_arms in range(2, 9)
        ]
        assert np.mean(shares) == pytest.approx(expected, abs=0.015)


def test_clicks_and_losses_are_of_one_gain() -> None:
    asked = {"base_rate": 0.05, "lift": 0.1, "heterogeneity": 0.5}
    told = expected_on_labels(4, 200_000, 3, **asked, budget=2)
    perfect = expected_loss("perfect", 4, 200_000, **asked)
    random = expected_loss("random", 4, 200_000, **asked)
    assert told.clicks + told.lost == pytest.approx(float(perfect.clicks))
    assert told.lost == pytest.approx((1 - told.share) * float(random.lost))


def test_labels_that_mix_nothing_are_segments() -> None:
    channel = group_channel([[0], [1]], 40.0)
    np.testing.assert_allclose(channel, np.eye(2), atol=1e-12)
    asked = {"base_rate": 0.05, "lift": 0.1, "heterogeneity": 0.5}
    told = expected_on_labels(4, 200_000, 2, **asked, budget=40)
    joint = expected_loss("joint", 4, 200_000, 2, **asked, budgets=6)
    assert told.lost == pytest.approx(float(joint.lost))
    assert told.limit == pytest.approx(1)
