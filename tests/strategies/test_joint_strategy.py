"""The joint strategy's tables: exact ratios, unlisted segments, replays with planted faults."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracle import mp, mpf
from tests.strategies.lp_oracle import by_highs

from deniable.errors import NANO, InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.joint_table import integer_table, mean_row
from deniable.privacy.tables import Row, Table
from deniable.strategies.joint import Joint
from deniable.strategies.recipe import Recipe
from deniable.strategies.rules import Counts

OPPOSITE = Counts([[5000, 5000], [5000, 5000]], [[1620, 1475], [1475, 1620]], 1, 10**6)


def recipe(n_arms: int, budget: float = 1.0) -> Recipe:
    nano = round(budget * NANO)
    return Recipe("joint", (nano,) * n_arms, tuple(range(n_arms)), cap=1)


def random_counts(seed: int, n_segments: int, n_arms: int, horizon: int | None = 10**6) -> Counts:
    rng = np.random.default_rng(seed)
    shows = rng.integers(0, 3000, (n_segments, n_arms))
    rates = rng.uniform(0.01, 0.3, (n_segments, n_arms))
    return Counts(shows.tolist(), rng.binomial(shows, rates).tolist(), 1, horizon)


def worst(rows: tuple[Row, ...]) -> Fraction:
    """The largest ratio of an arm's entries, without the product's own arithmetic."""
    found = Fraction(1)
    for column in zip(*rows, strict=True):
        assert min(column) > 0 or max(column) == 0
        if max(column):
            found = max(found, Fraction(max(column), min(column)))
    return found


@pytest.mark.parametrize("budget", [0.0, 1e-9, 0.1, 1.0, 3.0, 20.0, 40.0])
@pytest.mark.parametrize(("n_segments", "n_arms"), [(1, 2), (2, 3), (5, 4), (3, 12)])
def test_a_table_keeps_its_budget_exactly(budget: float, n_segments: int, n_arms: int) -> None:
    counts = random_counts(7, n_segments, n_arms)
    made = recipe(n_arms, budget).table(counts)
    with mp.workdps(60):
        assert mpf(worst((*made.rows, made.unlisted)).numerator) <= mp.exp(
            mpf(round(budget * NANO)) / NANO
        ) * mpf(worst((*made.rows, made.unlisted)).denominator)
    for row in (*made.rows, made.unlisted):
        assert sum(row) == SPACE
        assert min(row) > 0  # the vanishing floor keeps every arm estimable
    if n_segments == 1 or budget == 0:
        assert len({*made.rows, made.unlisted}) == 1


def test_opposite_arms_get_the_best_table_there_is() -> None:
    """The mean of best tables for draws near (.324, .295): randomized response, but for the floor."""
    made = recipe(2).table(OPPOSITE)
    table = np.array([[part / SPACE for part in row] for row in made.rows])
    rates = np.array([[0.324, 0.295], [0.295, 0.324]])
    limit = by_highs(rates * 0.5, math.e)
    assert limit == pytest.approx(0.316201, abs=5e-7)
    assert limit - 1e-4 < float((rates * table).sum() / 2) <= limit + 1e-9


def test_the_zero_row_is_the_mean_row_by_shares() -> None:
    counts = random_counts(3, 4, 5)
    made = recipe(5).table(counts)
    weights = [sum(row) + 1 for row in counts.shows]
    for arm in range(5):
        column = [row[arm] for row in made.rows]
        exact = Fraction(
            sum(w * part for w, part in zip(weights, column, strict=True)), sum(weights)
        )
        assert abs(made.unlisted[arm] - exact) <= 1
        assert min(column) <= made.unlisted[arm] <= max(column)


@pytest.mark.parametrize("seed", range(20))
def test_a_mean_row_adds_nothing_to_a_ratio(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(4), size=3)
    rows = integer_table((0.5 * table + 0.125).tolist(), 5 * NANO)
    weights = rng.integers(1, 1000, 3).tolist()
    mean = mean_row(rows, weights)
    assert sum(mean) == SPACE
    assert worst((*rows, mean)) == worst(rows)


def test_before_there_is_anything_to_learn_from_all_arms_are_alike() -> None:
    nothing = Counts([[0] * 3] * 4, [[0] * 3] * 4)
    made = recipe(3).table(nothing)
    assert max(made.unlisted) - min(made.unlisted) <= 1
    assert set(made.rows) == {made.unlisted}
    few = Counts([[2, 2, 1]] * 4, [[2, 0, 0]] * 4)  # below 2 K J = 24 visitors
    assert recipe(3).table(few) == made
    enough = Counts([[2, 2, 3]] * 4, [[2, 0, 0]] * 4)
    assert recipe(3).table(enough) != made


def moved(table: Table, parts: int) -> Table:
    """The same with some space moved from the first arm to the last, in every row."""
    rows = tuple((row[0] - parts, *row[1:-1], row[-1] + parts) for row in table.rows)
    return Table(rows, table.unlisted)


def test_replays() -> None:
    liked = [[900, 300, 300, 300], [300, 900, 300, 300], [300, 300, 900, 300]]
    counts, made = Counts([[3000] * 4] * 3, liked, 1, 10**6), recipe(4)
    table = made.table(counts)
    assert made.replays(table, counts)
    # Whoever finds another table that is as good, to 1e-9, has followed the rule.
    close = moved(table, SPACE >> 40)
    weights = [sum(row) + 1 for row in counts.shows]
    assert made.replays(Table(close.rows, mean_row(close.rows, weights)), counts)
    # Planted faults: a worse table, an unlisted row of another, other counts, two rows at budget 0.
    far = moved(table, SPACE >> 12)
    assert not made.replays(Table(far.rows, mean_row(far.rows, weights)), counts)
    assert not made.replays(far, counts)
    assert not made.replays(Table(table.rows, table.rows[0]), counts)
    assert not made.replays(table, random_counts(12, 3, 4))
    same = recipe(4, 0.0)
    one_row = same.table(counts)
    assert same.replays(one_row, counts)
    apart = Table((moved(one_row, 99).rows[0], *one_row.rows[1:]), one_row.unlisted)
    assert not same.replays(apart, counts)
    nothing = Counts([[0] * 4] * 3, [[0] * 4] * 3)
    assert not made.replays(moved(made.table(nothing), 1), nothing)


@pytest.mark.parametrize(("n_arms", "n_segments"), [(201, 2), (2, 201), (10_001, 1)])
def test_it_refuses_what_it_cannot_solve_in_time(n_arms: int, n_segments: int) -> None:
    counts = Counts([[0] * n_arms] * n_segments, [[0] * n_arms] * n_segments)
    with pytest.raises(InvalidArgumentError, match="at most 200 with the joint strategy"):
        Joint.table((NANO,) * n_arms, counts)
    assert not Joint.fits(n_arms, n_segments)


def test_arms_have_one_budget() -> None:
    with pytest.raises(InvalidArgumentError, match="one budget for all arms"):
        Joint.table((NANO, 2 * NANO), OPPOSITE)


def test_the_paper_has_no_bound_for_it() -> None:
    with pytest.raises(InvalidArgumentError, match="the paper has no joint strategy"):
        Joint.regret(2, 1000, 1, 2, form="paper")


def test_segments_of_any_size_have_one_bound() -> None:
    equal = Joint.regret(3, 10**5, [0.5, 1, 2], 3)
    uneven = Joint.regret(3, 10**5, [0.5, 1, 2], shares=[0.7, 0.2, 0.1])
    np.testing.assert_array_equal(equal, uneven)


def test_one_segment_needs_no_budget() -> None:
    assert Joint.best_budget(5, 10**6) == Joint.useful_budget(5, 10**6) == 0
    assert Joint.gain(5, 10**6, 1) == 0
    assert Joint.drawn_by_lot(5, 1, 3.0) == 1
    assert "no budget is needed" in Joint.advice(1)
