"""Rows are segments and columns are arms, in every public function: 2 segments x 3 arms throughout.

A square table would be transposed without a word; this one makes any mix-up an error or a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from deniable import Environment, Perfect, best_table, simulate
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.expectations.prior import Prior
from deniable.privacy import Tracker
from deniable.privacy.joint_table import integer_table
from deniable.strategies.joint_lp import proved_table
from deniable.strategies.joint_rule import joint_table, pooled_table
from deniable.strategies.unbounded import unbounded_table

RATES = np.array([[0.9, 0.1, 0.1], [0.1, 0.1, 0.9]])
SHOWS = np.full((2, 3), 100_000)
CLICKS = SHOWS * RATES


def test_environments_and_what_is_simulated_in_them() -> None:
    world = Environment(RATES, 1_000, [0.25, 0.75], arms=["x", "y", "z"], segments=["a", "b"])
    assert (world.n_segments, world.n_arms) == (2, 3)
    assert world.gaps.tolist() == pytest.approx(np.array([[0, 0.8, 0.8], [0.8, 0.8, 0]]))
    result = simulate(world, [Perfect()], repetitions=1, workers=1)
    shown = {(row["segment"], row["arm"]) for row in result.arms.to_dicts() if row["shows"]}
    assert shown == {("a", "x"), ("b", "z")}
    with pytest.raises(InvalidArgumentError, match="shares"):
        Environment(RATES.T, 1_000, [0.25, 0.75])


@pytest.mark.parametrize(
    "table",
    [
        lambda: best_table(RATES, budget=3),
        lambda: proved_table(RATES, [0.5, 0.5], 3).table,
        lambda: joint_table(SHOWS, CLICKS, 10**9, 3),
        lambda: unbounded_table(SHOWS, CLICKS, 10**9),
        lambda: np.array(integer_table(best_table(RATES, budget=3).tolist(), 3 * 10**9)) / 2**64,
    ],
    ids=["best_table", "proved_table", "joint_table", "unbounded_table", "integer_table"],
)
def test_tables(table: Callable[[], FloatArray]) -> None:
    made = table()
    assert made.shape == (2, 3)
    assert made.sum(axis=1) == pytest.approx([1, 1])
    assert made.argmax(axis=1).tolist() == [0, 2]


def test_one_row_for_everybody() -> None:
    made = pooled_table(SHOWS, SHOWS * np.array([[0.3, 0.1, 0.1], [0.2, 0.1, 0.1]]), 10**9)
    assert made.shape == (2, 3)
    assert made[0].tolist() == made[1].tolist()
    assert made[0].argmax() == 0


def test_trackers_and_priors() -> None:
    tracker = Tracker([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    assert tracker.update([0.5, 0.5], shown_arm=2).tolist() == pytest.approx([1 / 9, 8 / 9])
    assert Prior(0.1, 0.2).draw(3, 2, 5, np.random.default_rng(1)).shape == (5, 2, 3)
