"""From counts to tables: retired arms keep their place, the bonus is right."""

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
    assert table.rows == (table.unlisted,)


@pytest.mark.parametrize("strategy", ["constant", "dynamic"])
def test_retired_arms_keep_their_place_and_are_never_shown(strategy: str) -> None:
    shows, rewards = [[500, 500, 500], [500, 500, 500]], [[1, 400, 2], [3, 400, 1]]
    table = made(shows, rewards, strategy=strategy, active=(0, 2))
    assert greedy(table) == [2, 0]
    assert {row[1] for row in (*table.rows, table.unlisted)} == {0}
    assert {sum(row) for row in table.rows} == {SPACE}
    band = Recipe(strategy, BUDGETS, (0, 2), cap=1).fixed_band()
    assert band is not None
    assert (band.floors[1], band.ceilings[1], band.neutral[1]) == (0, 0, 0)
    assert band.holds(table.rows)
    assert band.neutral == table.unlisted
