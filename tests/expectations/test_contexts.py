"""What is expected on contexts, against direct simulation at 20 settings."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.errors import InvalidArgumentError
from deniable.expectations.contexts import expected_on_contexts
from deniable.expectations.expected import expected_loss
from deniable.simulation.environment import Environment
from deniable.simulation.job import make_job, run_repetition
from deniable.strategies.unbounded import Unbounded

RUNS = 30


def settings() -> list[tuple[int, int, int, int, float, float, float]]:
    """Arms, visitors, segments, contexts, lift, part by segment, part by context; seed first."""
    rng = np.random.default_rng(38)
    found = []
    for _ in range(20):
        by_context, own = rng.uniform(0, 0.8), rng.uniform(0, 1)
        found.append(
            (
                int(rng.integers(2, 9)),
                int(10 ** rng.uniform(4, 4.3)),
                int(rng.integers(1, 5)),
                int(rng.integers(2, 7)),
                float(rng.uniform(0.1, 0.3)),
                round((1 - by_context) * own, 3),
                round(by_context, 3),
            )
        )
    return found


def simulated_share(setting: tuple[int, int, int, int, float, float, float]) -> tuple[float, float]:
    """Gain on contexts as a share of perfect information over RUNS experiments, and its error."""
    n_arms, horizon, n_segments, n_contexts, lift, own, known = setting
    rng = np.random.default_rng(3)
    contexts = [f"c{place}" for place in range(n_contexts) for _ in range(n_segments)]
    lost, possible = [], []
    for run in range(RUNS):
        z = (
            np.sqrt(1 - own - known) * rng.standard_normal((n_arms, 1, 1))
            + np.sqrt(known) * rng.standard_normal((n_arms, n_contexts, 1))
            + np.sqrt(own) * rng.standard_normal((n_arms, 1, n_segments))
        )
        rates = np.clip(0.1 * (1 + lift * z), 0.005, 0.95).reshape(n_arms, -1).T
        world = Environment(rates, horizon, contexts=contexts).by_context()
        shows, _ = run_repetition(make_job(world, Unbounded()), 3, run)
        lost.append(float((shows[-1] * world.gaps).sum()))
        possible.append(horizon * (world.best_reward - float(rates.mean())))
    share = np.sum(lost) / np.sum(possible)
    spread = np.std(np.array(lost) - share * np.array(possible)) / np.mean(possible)
    return 1 - float(share), float(spread) / np.sqrt(RUNS)


@pytest.mark.parametrize("setting", settings())
def test_expected_gains_are_those_of_simulated_bandits(
    setting: tuple[int, int, int, int, float, float, float],
) -> None:
    n_arms, horizon, n_segments, n_contexts, lift, own, known = setting
    told = expected_on_contexts(
        n_arms,
        horizon,
        n_segments,
        n_contexts,
        base_rate=0.1,
        lift=lift,
        heterogeneity=own,
        by_context=known,
    )
    share, error = simulated_share(setting)
    assert error < 0.1
    assert abs(told.share - share) < 0.04 + 3 * error
    assert told.share <= told.limit + 1e-9


def test_contexts_that_explain_everything_are_segments_without_a_bound() -> None:
    told = expected_on_contexts(
        4, 200_000, 3, 2, base_rate=0.05, lift=0.1, heterogeneity=0.0, by_context=0.5
    )
    asked = {"base_rate": 0.05, "lift": 0.1, "heterogeneity": 0.5}
    joint = expected_loss("joint", 4, 200_000, 2, **asked, budgets=6)
    random = expected_loss("random", 4, 200_000, 2, **asked)
    assert told.share == pytest.approx(1 - float(joint.lost) / float(random.lost))
    assert told.limit == 1


def test_more_than_all_differences_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"by_context=0\.6: expected at most 0\.5"):
        expected_on_contexts(4, 10_000, 2, 2, base_rate=0.1, heterogeneity=0.5, by_context=0.6)
