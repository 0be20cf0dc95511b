"""The bandit without a bound between rows: its posterior, its chances, its tables and their replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from deniable.errors import InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import Table
from deniable.strategies import STRATEGIES, TABLE_RULES
from deniable.strategies import unbounded as module
from deniable.strategies.recipe import Recipe
from deniable.strategies.rules import Counts
from deniable.strategies.unbounded import (
    Unbounded,
    chances_to_be_best,
    learned,
    relative_rates,
    unbounded_table,
)

RNG = np.random.default_rng(20)
SHOWS = RNG.integers(50, 5_000, size=(6, 4)).astype(float)
CLICKS = RNG.binomial(SHOWS.astype(int), RNG.uniform(0.03, 0.08, size=(6, 4))).astype(float)


def dense_posterior(contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """The same posterior by brute force: one covariance matrix of all rows for each arm."""
    relative, precision = relative_rates(SHOWS, CLICKS)
    n_rows, n_arms = SHOWS.shape
    labels = n_rows // contexts
    same = np.kron(np.eye(contexts), np.ones((labels, labels)))
    logs, means, variances = [], [], []
    for own in module.ROW_SPREADS.tolist() if labels > 1 else [0.0]:
        for context in module.ROW_SPREADS.tolist() if contexts > 1 else [0.0]:
            for arm in module.ARM_SPREADS.tolist():
                prior = arm**2 * np.ones_like(same) + context**2 * same + own**2 * np.eye(n_rows)
                squares = determinant = 0.0
                mean, variance = [], []
                for a in range(n_arms):
                    noise = np.diag(1 / precision[:, a])
                    gain = prior @ np.linalg.inv(prior + noise)
                    squares += float(
                        relative[:, a] @ np.linalg.solve(prior + noise, relative[:, a])
                    )
                    determinant += float(np.linalg.slogdet(prior + noise)[1])
                    mean.append(gain @ relative[:, a])
                    variance.append(np.diag(prior - gain @ prior))
                logs.append(-(squares + determinant * (n_arms - 1) / n_arms) / 2)
                means.append(np.array(mean).T)
                variances.append(np.array(variance).T)
    weights = np.exp(np.array(logs) - max(logs))
    weights = (weights / weights.sum())[:, None, None]
    average = (weights * means).sum(axis=0)
    spread = (weights * (np.array(means) ** 2 + variances)).sum(axis=0) - average**2
    return average, spread


@pytest.mark.parametrize("contexts", [1, 2, 3, 6])
def test_the_posterior_is_that_of_one_large_normal_distribution(contexts: int) -> None:
    mean, variance = learned(SHOWS, CLICKS, contexts)
    oracle_mean, oracle_variance = dense_posterior(contexts)
    np.testing.assert_allclose(mean, oracle_mean, atol=1e-10)
    np.testing.assert_allclose(variance, oracle_variance, atol=1e-10)
    other = 3 if contexts == 2 else 2
    assert np.abs(learned(SHOWS, CLICKS, other)[0] - oracle_mean).max() > 1e-4


def test_two_numbers_have_the_chances_of_their_difference() -> None:
    for gap, first, second in [(0.0, 1.0, 1.0), (0.5, 0.2, 0.1), (0.3, 0.1, 0.001), (2.0, 1.0, 3)]:
        exact = stats.norm.cdf(gap / np.hypot(first, second))
        chances = chances_to_be_best(np.array([gap, 0.0]), np.array([first, second]))
        assert chances[0] == pytest.approx(exact, abs=2e-3)
        assert chances.sum() == pytest.approx(1, abs=1e-12)


def test_many_numbers_have_the_chances_that_draws_have() -> None:
    mean, spread = RNG.normal(0, 0.3, 7), RNG.uniform(0.05, 0.5, 7)
    drawn = (mean + spread * RNG.normal(size=(400_000, 7))).argmax(axis=1)
    shares = np.bincount(drawn, minlength=7) / len(drawn)
    np.testing.assert_allclose(chances_to_be_best(mean, spread), shares, atol=5e-3)


def test_rows_that_are_alike_are_pooled_and_rows_that_differ_are_not() -> None:
    shows = np.full((4, 2), 500.0)
    alike = np.tile([70.0, 50.0], (4, 1))
    apart = np.array([[90.0, 30.0], [30.0, 90.0], [90.0, 30.0], [30.0, 90.0]])
    alone = unbounded_table(shows[:1], alike[:1], 10**5)
    assert (unbounded_table(shows, alike, 10**5, contexts=4)[:, 1] < alone[0, 1] / 5).all()
    greedy = unbounded_table(shows, apart, 10**5, contexts=4).argmax(axis=1)
    assert greedy.tolist() == [0, 1, 0, 1]


def test_a_row_without_visitors_learns_from_its_context() -> None:
    shows = np.array([[3000.0, 3000.0], [0, 0], [3000.0, 3000.0], [0, 0]])
    clicks = np.array([[300.0, 150.0], [0, 0], [150.0, 300.0], [0, 0]])
    table = unbounded_table(shows, clicks, 10**5, contexts=2)
    assert table[1, 0] > 0.7
    assert table[3, 1] > 0.7
    labels = unbounded_table(shows, clicks, 10**5)  # no contexts: nothing is known about them
    assert abs(labels[1, 0] - 0.5) < 0.05


def test_deviations_shrink_as_the_end_comes_nearer() -> None:
    shows, clicks = [[10_000, 10_000]], [[520, 500]]
    second = [
        unbounded_table(shows, clicks, horizon)[0, 1] for horizon in (10**9, 40_000, 20_100, 20_001)
    ]
    assert second == sorted(second, reverse=True)
    assert second[0] > 0.2
    assert second[-1] < 1e-6
    assert unbounded_table(shows, clicks)[0, 1] == pytest.approx(second[0], abs=0.03)


def test_everybody_has_equal_chances_at_first() -> None:
    table = unbounded_table(np.zeros((6, 5)), np.zeros((6, 5)), 1000, contexts=3)
    np.testing.assert_allclose(table, 0.2, atol=1e-12)


def test_its_tables_are_whole_numbers_and_every_arm_has_a_chance() -> None:
    counts = Counts([[9000, 1000], [20, 0]], [[900_000_000, 10_000_000], [0, 0]], 10**6, 10**5)
    table = Unbounded.table((0, 0), counts)
    assert all(sum(row) == SPACE for row in (*table.rows, table.unlisted))
    assert min(map(min, table.rows)) >= 1 << 31
    assert table == Unbounded.table((0, 0), counts)
    assert table.unlisted[0] < table.rows[0][0]


def test_an_auditor_finds_the_same_table_and_notices_another() -> None:
    recipe = Recipe("unbounded", (0, 0, 0), (0, 1, 2), cap=1, horizon=10**5, by_context=1)
    shows, rewards = [[500, 400, 300], [200, 300, 400]], [[50, 20, 15], [10, 30, 20]]
    counts = recipe.counts(shows, rewards)
    published = recipe.table(counts)
    assert recipe.replays(published, counts)
    row = published.rows[0]
    for moved, same in ((1 << 30, True), (1 << 40, False)):
        rows = ((row[0] + moved, row[1] - moved, row[2]), published.rows[1])
        assert recipe.replays(Table(rows, published.unlisted), counts) is same
    assert not recipe.replays(published, recipe.counts(shows, [[50, 20, 15], [10, 31, 20]]))
    # The order of rows is part of the counts.
    pairs = replace(recipe, by_context=2)
    assert pairs.table(pairs.counts(shows * 2, rewards * 2)) != recipe.table(
        recipe.counts(shows * 2, rewards * 2)
    )


def test_only_this_strategy_is_not_checked_for_a_bound() -> None:
    assert [name for name, kind in TABLE_RULES.items() if not kind.bounded] == ["unbounded"]
    assert set(TABLE_RULES) == {*STRATEGIES, "unbounded"}
    recipe = Recipe("unbounded", (0, 0), (0, 1), cap=1)
    table = recipe.table(recipe.counts([[500, 500], [500, 500]], [[90, 30], [30, 90]]))
    assert max(table.worst_ratios()) > 2


def test_bad_counts_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="shows"):
        unbounded_table([[1, 1], [1, 1], [1, 1]], np.zeros((3, 2)), contexts=2)
    with pytest.raises(InvalidArgumentError, match="clicks"):
        unbounded_table([[1, 1]], [[2, 0]])
