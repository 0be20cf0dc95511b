"""From counts to tables: noise is clipped, retired arms keep their place, the bonus is right."""

from __future__ import annotations

import math

import pytest

from deniable.errors import NANO
from deniable.privacy.exact import SPACE
from deniable.privacy.tables import Row, Table
from deniable.strategies.recipe import Recipe

BUDGETS = (NANO, NANO, NANO)


def made(
    shows: list[list[int]],
    rewards: list[list[int]],
    *,
    strategy: str = "constant",
    active: tuple[int, ...] = (0, 1, 2),
    budgets: Row = BUDGETS,
    cap: int = 1,
) -> Table:
    recipe = Recipe(strategy, budgets, active, cap)
    return recipe.table(recipe.counts(shows, rewards))


def greedy(table: Table) -> list[int]:
    return [max(range(len(row)), key=row.__getitem__) for row in table.rows]


def test_the_greedy_arm_has_e_to_the_budget_times_the_others() -> None:
    row = made([[100, 100, 100]], [[10, 30, 20]]).rows[0]
    assert row[1] / row[0] == pytest.approx(math.e, rel=1e-12)
    assert row[0] == row[2]


def test_the_dynamic_strategy_begins_at_its_zero_row() -> None:
    table = made([[1, 0, 0]], [[1, 0, 0]], strategy="dynamic")
    assert table.rows == (table.zero,)


def test_noisy_counts_are_clipped() -> None:
    """Below no shows there is nothing, and no show earns more than the largest reward."""
    noisy = made([[50, -40, 60]], [[10, 10, -7]])
    assert noisy == made([[50, 0, 60]], [[10, 0, 0]])
    assert greedy(noisy) == [0]
    alone = made([[50, -40, 60]], [[50, 5, 0]]).rows[0]  # a rate of -40/-40 would tie with 50/50
    assert alone[0] > alone[1] == alone[2]
    # 90 rewards of 100 shows lead; 30 of 10 shows would, if they counted as 30.
    assert greedy(made([[100, 10, 100]], [[90, 300, 50]])) == [1]
    assert made([[100, 10, 100]], [[90, 300, 50]]) == made([[100, 10, 100]], [[90, 10, 50]])
    assert made([[100, 10, 100]], [[900, 300, 0]], cap=20) == made(
        [[100, 10, 100]], [[900, 200, 0]], cap=20
    )
    # The clipped rate of the first arm is 1, which ties with the second: 3 would lead alone.
    tied = made([[10, 10, 10]], [[30, 10, 5]]).rows[0]
    assert tied[0] == pytest.approx(tied[1], abs=1)


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
def test_retired_arms_keep_their_place_and_are_never_shown(strategy: str) -> None:
    shows, rewards = [[500, 500, 500], [500, 500, 500]], [[1, 400, 2], [3, 400, 1]]
    table = made(shows, rewards, strategy=strategy, active=(0, 2))
    assert greedy(table) == [2, 0]
    assert {row[1] for row in (*table.rows, table.zero)} == {0}
    assert {sum(row) for row in table.rows} == {SPACE}
    band = Recipe(strategy, BUDGETS, (0, 2), cap=1).fixed_band()
    assert band is not None
    assert (band.floors[1], band.ceilings[1], band.zero[1]) == (0, 0, 0)
    assert band.holds(table.rows)
    assert band.zero == table.zero
