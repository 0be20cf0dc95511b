"""Published tables: every band and row against exact bounds on e^budget, and planted faults."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.oracle import mp, mpf
from tests.rational import exp_bounds

from deniable.errors import NANO, BrokenPromiseError, InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.exploration import dynamic_risk, exploration_from_risk
from deniable.privacy.tables import (
    Band,
    Row,
    Table,
    band,
    decoded_table,
    draw,
    dynamic_bonus,
    greedy_arms,
    nested_table,
    thresholds,
)
from deniable.strategies.recipe import Recipe


def _vectors() -> list[Row]:
    """Budgets from 1 nano-nat to 700 nats, equal and by arm, for 2 to 1,000 arms."""
    rng = np.random.default_rng(3)
    found: list[Row] = [(risk,) * k for k in (2, 3, 10, 1000) for risk in (1, NANO, 700 * NANO)]
    found += [(100_000_000, 3 * NANO), (1_000_000, 5 * NANO), (1, 700 * NANO), (1, 1, NANO)]
    for n_arms in (2, 2, 2, 3, 3, 5, 10, 50, 200, 1000):
        nats = np.exp(rng.uniform(np.log(1e-6), np.log(30), size=n_arms))
        found.append(tuple(max(1, round(x * NANO)) for x in nats.tolist()))
    return found


VECTORS = _vectors()


def excess(budgets: Row, low: Row, high: Row) -> list[int]:
    """Arms whose ratio high/low is above a rational that is itself below e^budget."""
    bounds = {budget: exp_bounds(Fraction(budget, NANO))[0] for budget in set(budgets)}
    return [
        arm
        for arm, budget in enumerate(budgets)
        if low[arm] <= 0 or Fraction(high[arm], low[arm]) > bounds[budget]
    ]


def extremes(rows: list[Row]) -> tuple[Row, Row]:
    columns = list(zip(*rows, strict=True))
    return tuple(map(min, columns)), tuple(map(max, columns))


def family(budgets: Row, fixed: Band) -> list[Row]:
    """Rows for single and tied greedy arms, at bonuses from none to all."""
    n_arms = len(budgets)
    greedy = [[0], [n_arms - 1], [n_arms // 2], [0, n_arms - 1], list(range(n_arms))]
    bonuses = [Fraction(0), Fraction(1, 2**32), Fraction(1, 3), Fraction(2**32 - 1, 2**32)]
    return [fixed.row(arms, bonus) for arms in greedy for bonus in (*bonuses, Fraction(1))]


@pytest.mark.parametrize("budgets", VECTORS, ids=lambda v: f"{len(v)}-{min(v)}-{max(v)}")
def test_bands_keep_every_budget_exactly_and_waste_nothing(budgets: Row) -> None:
    fixed = band(budgets)
    assert sum(fixed.neutral) == SPACE
    assert not excess(budgets, fixed.floors, fixed.ceilings)
    assert fixed.holds([fixed.neutral])
    with mp.workdps(400):
        c = {budget: 1 / mp.expm1(mpf(budget) / NANO) for budget in set(budgets)}
        total = mp.fsum(c[budget] for budget in budgets)
        for floor, zero, budget in zip(fixed.floors, fixed.neutral, budgets, strict=True):
            want = SPACE * c[budget] / (1 + total)
            assert 0 <= floor - want <= 1
            # The weights, up to a unit; more only where a floor of 1 unit takes the space.
            assert abs(zero - SPACE * c[budget] / total) <= max(2, len(budgets))


@pytest.mark.parametrize("budgets", VECTORS, ids=lambda v: f"{len(v)}-{min(v)}-{max(v)}")
def test_any_two_rows_of_a_family_are_within_the_budget(budgets: Row) -> None:
    fixed = band(budgets)
    rows = family(budgets, fixed)
    assert all(sum(row) == SPACE for row in rows)
    assert fixed.holds(rows)
    assert not excess(budgets, *extremes(rows))


@pytest.mark.parametrize("budgets", [(NANO,) * 3, (5 * 10**8, NANO, 2 * NANO), (10**6, 5 * NANO)])
@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
def test_any_two_tables_ever_made_are_within_the_budget(budgets: Row, strategy: str) -> None:
    """Random counts at 60 times: early and late, tied and not, noisy ones below 0 too."""
    rng = np.random.default_rng(8)
    rows: list[Row] = []
    for size in np.geomspace(1, 1e7, 60):
        shows = rng.integers(-2, size + 2, size=(4, len(budgets))).tolist()
        rewards = rng.integers(-2, size + 2, size=(4, len(budgets))).tolist()
        recipe = Recipe(strategy, budgets, tuple(range(len(budgets))), cap=1)
        table = recipe.table(recipe.counts(shows, rewards))
        rows += [*table.rows, table.unlisted]
    low, high = extremes(rows)
    assert not excess(budgets, low, high)
    # Not vacuous: somewhere an arm used nearly all of its budget.
    used = [
        mp.log(mpf(h) / mpf(lo)) * NANO / b for lo, h, b in zip(low, high, budgets, strict=True)
    ]
    assert max(used) > 0.99


def test_the_whole_bonus_is_the_mechanism_of_the_theory() -> None:
    for n_arms, nats in product((2, 5, 40), (0.01, 1.0, 6.0)):
        fixed = band((round(nats * NANO),) * n_arms)
        row = fixed.row([0], Fraction(1))
        exploration = float(exploration_from_risk(n_arms, nats))
        assert row[1] / SPACE == pytest.approx(exploration / n_arms, rel=1e-9)
        assert row[0] / SPACE == pytest.approx(1 - exploration + exploration / n_arms, rel=1e-9)


@pytest.mark.parametrize("clock", [1, 2, 3, 10, 50, 51, 1000, 10**6])
def test_dynamic_bonus_is_the_schedule(clock: int) -> None:
    """The likeliest arm's probability against the schedule's own formula."""
    budgets = (NANO, NANO)
    row = band(budgets).row([0], dynamic_bonus(budgets, clock))
    risk = min(1.0, float(dynamic_risk(2, clock)))
    exploration = float(exploration_from_risk(2, risk))
    assert row[0] / SPACE == pytest.approx(1 - exploration / 2, rel=1e-8)


def test_ties_share_the_bonus() -> None:
    fixed = band((NANO,) * 4)
    row = fixed.row([0, 2], Fraction(1))
    assert row[1] == row[3] == fixed.floors[1]
    assert abs(row[0] - row[2]) <= 1
    alone = [fixed.row([arm], Fraction(1)) for arm in (0, 2)]
    assert abs(2 * row[0] - alone[0][0] - alone[1][0]) <= 2
    everyone = fixed.row([0, 1, 2, 3], Fraction(1))
    assert max(everyone) - min(everyone) <= 1


def test_greedy_arms_are_compared_exactly() -> None:
    """Rates that differ by less than a float can say."""
    large = 10**20
    assert greedy_arms([3 * large, large], [large, large // 3]) == [0]
    assert greedy_arms([3 * large, 3], [large, 1]) == [0, 1]
    assert greedy_arms([0, 0, 0], [0, 0, 0]) == [0, 1, 2]
    assert greedy_arms([10, 0, 10], [0, 0, 1]) == [2]


def test_a_table_is_a_function_of_its_counts() -> None:
    fixed = band((NANO, NANO))
    bonuses = [Fraction(1), Fraction(1, 2)]
    one = nested_table(fixed, [[5, 5], [5, 5]], [[1, 2], [2, 1]], bonuses)
    again = nested_table(fixed, [[5, 5], [5, 5]], [[1, 2], [2, 1]], bonuses)
    assert one == again
    assert one.digest() == again.digest()
    assert decoded_table(one.encoded(), 2) == one
    assert one.row(-1) == one.unlisted == fixed.neutral


@pytest.mark.parametrize("broken", [b"", b"1" * 17, b"1" * 18, b"1" * 36])
def test_broken_documents_are_refused(broken: bytes) -> None:
    with pytest.raises(BrokenPromiseError):
        decoded_table(broken, 2)


@pytest.mark.parametrize(
    "row", [(SPACE, 1), (SPACE - 1, 0), (SPACE + 1, -1), (SPACE,), (SPACE, 0, 0)]
)
def test_rows_that_are_no_distribution_are_refused(row: Row) -> None:
    with pytest.raises(BrokenPromiseError):
        Table(rows=(row,), unlisted=(SPACE // 2, SPACE // 2))
    with pytest.raises(InvalidArgumentError):
        Table(rows=(), unlisted=(SPACE // 2, SPACE // 2))


@pytest.mark.parametrize("n_arms", [2, 3, 7, 8, 9, 1000])
def test_every_point_shows_the_arm_whose_piece_holds_it(n_arms: int) -> None:
    fixed = band((NANO,) * n_arms)
    row = fixed.row([n_arms // 2], Fraction(1))
    ends = thresholds(row)
    assert (
        len(ends) + 1 == 1 << n_arms.bit_length() or len(ends) + 1 == 1 << (n_arms - 1).bit_length()
    )
    start = 0
    for arm, size in enumerate(row):
        assert (draw(ends, start), draw(ends, start + size - 1)) == (arm, arm)
        start += size
    assert start == SPACE


# -- planted faults -----------------------------------------------------------------------------


@pytest.mark.parametrize("budgets", [(NANO,) * 3, (5 * 10**8, NANO, 2 * NANO)])
def test_floors_rounded_down_are_caught(budgets: Row) -> None:
    """One unit of 2^64 less at the bottom, the ceiling as before: refused, and by the oracle too."""
    good = band(budgets)
    with mp.workdps(60):
        power = mp.exp(mpf(budgets[0]) / NANO)
        ceiling = int(mp.ceil(good.floors[0] * power))  # rounded up instead of down
    for floors, ceilings in (
        ((good.floors[0] - 1, *good.floors[1:]), good.ceilings),
        (good.floors, (ceiling, *good.ceilings[1:])),
    ):
        faulty = Band(floors, ceilings, good.neutral)
        assert excess(budgets, floors, ceilings) == [0]
        with pytest.raises(BrokenPromiseError):
            faulty.check(budgets)
    good.check(budgets)


def test_a_table_one_unit_above_its_budget_is_refused() -> None:
    """The largest entry that e^1 allows beside 2^62, by 60 digits; one unit more is too much."""
    least = 1 << 62
    with mp.workdps(60):
        most = int(mp.floor(least * mp.e))
    for entry, kept in ((most, True), (most + 1, False)):
        made = Table(((entry, SPACE - entry),), (least, SPACE - least))
        budgets = (NANO, 3 * NANO)  # the other arm's ratio is 2.3
        if kept:
            assert made.check(budgets)[0] == Fraction(most, least)
        else:
            with pytest.raises(BrokenPromiseError, match="exceeds its budget of 1000000000"):
                made.check(budgets)


def test_a_uniform_zero_row_breaks_budgets_by_arm() -> None:
    """Budgets .1 and 3: uniform rows for non-members gave a ratio of 101 where e^3 = 20 is promised."""
    budgets = (100_000_000, 3 * NANO)
    fixed = band(budgets)
    uniform = (SPACE // 2, SPACE // 2)
    late = fixed.row([0], Fraction(1))
    ratio = uniform[1] / late[1]
    assert round(ratio) == 101
    with pytest.raises(BrokenPromiseError):
        Table((late,), uniform).check(budgets)
    assert not fixed.holds([uniform])
    assert excess(budgets, *extremes([late, uniform])) == [0, 1]
    assert not excess(budgets, *extremes([late, fixed.neutral]))


def test_early_uniform_rows_of_a_small_and_a_large_budget_would_break_it() -> None:
    """Budgets .001 and 5, uniform early against learned late: 73,744 > e^5."""
    budgets = (1_000_000, 5 * NANO)
    late = band(budgets).row([0], Fraction(1))
    assert SPACE // 2 / late[1] == pytest.approx(73_744, rel=1e-4)
    early = band(budgets).row([0], dynamic_bonus(budgets, 1))
    assert not excess(budgets, *extremes([late, early]))


def test_a_band_without_a_sound_zero_row_is_refused() -> None:
    good = band((NANO, NANO))
    with pytest.raises(BrokenPromiseError):
        Band(good.floors, good.ceilings, (SPACE, 0)).check((NANO, NANO))
    with pytest.raises(BrokenPromiseError):
        Band(good.floors, good.ceilings, (good.neutral[0], good.neutral[1] - 1)).check((NANO, NANO))


def test_an_arm_that_some_rows_never_show_is_proof() -> None:
    with pytest.raises(BrokenPromiseError, match="never to others"):
        Table(((SPACE, 0),), (SPACE // 2, SPACE // 2)).worst_ratios()
    assert Table(((SPACE, 0),), (SPACE, 0)).worst_ratios() == (Fraction(1),) * 2
