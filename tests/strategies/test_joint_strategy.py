"""The joint strategy's tables: exact ratios, zero rows, bands for life, replays with planted faults."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracle import mp, mpf
from tests.strategies.lp_oracle import by_highs

from deniable.errors import NANO, InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.joint_table import floors_in_integers, integer_table, mean_row
from deniable.privacy.noise import laplace_variance
from deniable.privacy.tables import Band, Row, Table
from deniable.strategies.joint import JointStrategy
from deniable.strategies.recipe import Recipe
from deniable.strategies.rules import Counts

OPPOSITE = Counts([[5000, 5000], [5000, 5000]], [[1620, 1475], [1475, 1620]], 1, 10**6)


def recipe(n_arms: int, budget: float = 1.0, **options: object) -> Recipe:
    nano = round(budget * NANO)
    return Recipe("joint", (nano,) * n_arms, tuple(range(n_arms)), cap=1, **options)  # type: ignore[arg-type]


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
        assert mpf(worst((*made.rows, made.zero)).numerator) <= mp.exp(
            mpf(round(budget * NANO)) / NANO
        ) * mpf(worst((*made.rows, made.zero)).denominator)
    for row in (*made.rows, made.zero):
        assert sum(row) == SPACE
        assert min(row) > 0  # the vanishing floor keeps every arm estimable
    if n_segments == 1 or budget == 0:
        assert len({*made.rows, made.zero}) == 1


def test_opposite_arms_get_the_best_table_there_is() -> None:
    """The mean of best tables for draws near (.324, .295): randomized response, but for the floor."""
    made = recipe(2).table(OPPOSITE)
    table = np.array([[part / SPACE for part in row] for row in made.rows]).T
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
        assert abs(made.zero[arm] - exact) <= 1
        assert min(column) <= made.zero[arm] <= max(column)


@pytest.mark.parametrize("seed", range(20))
def test_a_mean_row_adds_nothing_to_a_ratio(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(4), size=3).T
    rows = integer_table((0.5 * table + 0.125).tolist(), 5 * NANO)
    weights = rng.integers(1, 1000, 3).tolist()
    mean = mean_row(rows, weights)
    assert sum(mean) == SPACE
    assert worst((*rows, mean)) == worst(rows)


def test_before_there_is_anything_to_learn_from_all_arms_are_alike() -> None:
    nothing = Counts([[0] * 3] * 4, [[0] * 3] * 4)
    made = recipe(3).table(nothing)
    assert max(made.zero) - min(made.zero) <= 1
    assert set(made.rows) == {made.zero}
    few = Counts([[2, 2, 1]] * 4, [[2, 0, 0]] * 4)  # below 2 K J = 24 visitors
    assert recipe(3).table(few) == made
    enough = Counts([[2, 2, 3]] * 4, [[2, 0, 0]] * 4)
    assert recipe(3).table(enough) != made


@pytest.mark.parametrize("seed", range(12))
def test_across_time_all_tables_lie_in_one_band(seed: int) -> None:
    made = recipe(5, 1.0, across_time=True)
    band = None
    settled = []
    for step in range(8):
        counts = random_counts(100 * seed + step, 3, 5, horizon=20_000)
        band = band or made.late_band(counts)
        table = made.table(counts, band)
        if band is None:
            assert len({*table.rows, table.zero}) == 1  # a lottery: the same row for everybody
        else:
            settled += [*table.rows, table.zero]
            assert table.zero == band.zero
    assert band is not None
    with mp.workdps(60):
        ratio = worst(tuple(settled))
        assert mpf(ratio.numerator) / ratio.denominator <= mp.exp(1)
    total = sum(band.floors)
    for floor, zero in zip(band.floors, band.zero, strict=True):
        assert abs(Fraction(zero, SPACE) - Fraction(floor, total)) < Fraction(1, 2**40)


@pytest.mark.parametrize("budget", [0, 1, NANO, 40 * NANO])
@pytest.mark.parametrize(
    "floors", [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [1 / 3] * 3, [0.25, 0.75, 1e-12], [0.7, 0.2, 0.1]]
)
def test_floors_become_a_band_with_room_for_a_row(budget: int, floors: list[float]) -> None:
    band = floors_in_integers(floors, budget)
    band.check((budget,) * 3)
    assert sum(band.floors) <= SPACE <= sum(band.ceilings)
    assert band.floors[2] == 0 or floors[2] > 1e-9


@pytest.mark.parametrize("scale", [(1, 3), (4, 1), (40, 7)])
def test_the_noise_of_a_trace_budget_has_the_variance_that_is_told(scale: tuple[int, int]) -> None:
    step = mp.exp(-mpf(scale[1]) / scale[0])
    sizes = range(1, 2000)
    weight = 1 + 2 * sum(step**size for size in sizes)
    exact = 2 * sum(size**2 * step**size for size in sizes) / weight
    assert laplace_variance(*scale) == pytest.approx(float(exact), rel=1e-12)


def test_noise_makes_it_more_careful() -> None:
    """With noise of thousands in each count, differences of hundreds are no evidence."""
    alike = Counts([[500, 500], [500, 500]], [[50, 30], [50, 30]], 1, 10**5)
    noisy = Counts(alike.shows, alike.rewards, 1, 10**5, noise=1e6)
    sure, unsure = (JointStrategy.table((NANO, NANO), counts) for counts in (alike, noisy))
    assert sure.rows[0][0] > unsure.rows[0][0]


def moved(table: Table, parts: int) -> Table:
    """The same with some space moved from the first arm to the last, in every row."""
    rows = tuple((row[0] - parts, *row[1:-1], row[-1] + parts) for row in table.rows)
    return Table(rows, table.zero)


def test_replays() -> None:
    liked = [[900, 300, 300, 300], [300, 900, 300, 300], [300, 300, 900, 300]]
    counts, made = Counts([[3000] * 4] * 3, liked, 1, 10**6), recipe(4)
    table = made.table(counts)
    assert made.replays(table, counts)
    # Whoever finds another table that is as good, to 1e-9, has followed the rule.
    close = moved(table, SPACE >> 40)
    weights = [sum(row) + 1 for row in counts.shows]
    assert made.replays(Table(close.rows, mean_row(close.rows, weights)), counts)
    # Planted faults: a worse table, a zero row of another, other counts, a lottery with two rows.
    far = moved(table, SPACE >> 12)
    assert not made.replays(Table(far.rows, mean_row(far.rows, weights)), counts)
    assert not made.replays(far, counts)
    assert not made.replays(Table(table.rows, table.rows[0]), counts)
    assert not made.replays(table, random_counts(12, 3, 4))
    across = recipe(4, across_time=True)
    lottery = across.table(counts)
    assert across.replays(lottery, counts)
    apart = Table((moved(lottery, 99).rows[0], *lottery.rows[1:]), lottery.zero)
    assert not across.replays(apart, counts)
    nothing = Counts([[0] * 4] * 3, [[0] * 4] * 3)
    assert not made.replays(moved(made.table(nothing), 1), nothing)


def test_floors_replay_to_the_last_digits() -> None:
    made = recipe(2, across_time=True)
    counts = Counts([[5000, 5000], [5000, 5000]], [[1620, 1475], [1475, 1620]], 1, 20_000)
    band = made.late_band(counts)
    assert isinstance(band, Band)
    assert made.settles(band.floors, counts)
    assert made.settles((band.floors[0] - 5, band.floors[1] + 5), counts)
    assert not made.settles((band.floors[0] >> 1, band.floors[1]), counts)
    assert not made.settles(None, counts)


@pytest.mark.parametrize(("n_arms", "n_segments"), [(201, 2), (2, 201), (10_001, 1)])
def test_it_refuses_what_it_cannot_solve_in_time(n_arms: int, n_segments: int) -> None:
    counts = Counts([[0] * n_arms] * n_segments, [[0] * n_arms] * n_segments)
    with pytest.raises(InvalidArgumentError, match="at most 200 with the joint strategy"):
        JointStrategy.table((NANO,) * n_arms, counts)
    assert not JointStrategy.fits(n_arms, n_segments)


def test_arms_have_one_budget() -> None:
    with pytest.raises(InvalidArgumentError, match="one budget for all arms"):
        JointStrategy.table((NANO, 2 * NANO), OPPOSITE)


def test_the_paper_has_no_bound_for_it() -> None:
    with pytest.raises(InvalidArgumentError, match="the paper has no joint strategy"):
        JointStrategy.regret(2, 1000, 1, 2, form="paper")


def test_segments_of_any_size_have_one_bound() -> None:
    equal = JointStrategy.regret(3, 10**5, [0.5, 1, 2], 3)
    uneven = JointStrategy.regret(3, 10**5, [0.5, 1, 2], shares=[0.7, 0.2, 0.1])
    np.testing.assert_array_equal(equal, uneven)


def test_one_segment_needs_no_budget() -> None:
    assert JointStrategy.best_budget(5, 10**6) == JointStrategy.useful_budget(5, 10**6) == 0
    assert JointStrategy.gain(5, 10**6, 1) == 0
    assert JointStrategy.drawn_by_lot(5, 1, 3.0) == 1
    assert "no budget is needed" in JointStrategy.advice(1)
