"""The best table for given scores, against HiGHS in another form and against the budget's bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.strategies.lp_oracle import by_highs

from deniable import best_table
from deniable.errors import InvalidArgumentError

BUDGETS = (0.0, 1e-9, 0.1, 1.0, 3.0, 12.0, 40.0)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and shares of 2 to 6 segments and 2 to 8 arms."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(2, 7)), int(rng.integers(2, 9))
    return rng.normal(size=shape), rng.dirichlet(np.ones(shape[0]))


def check_budget(table: np.ndarray, budget: float) -> None:
    """No arm is beyond e^budget over two segments; the tolerance is that of three floats."""
    assert table.sum(axis=1) == pytest.approx(np.ones(len(table)), abs=1e-15 * table.shape[1])
    assert table.min() >= 0
    assert (table.max(axis=0) <= math.exp(budget) * table.min(axis=0) * (1 + 4e-16)).all()


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_budget_is_kept(budget: float) -> None:
    for seed in range(20):
        scores, shares = drawn(seed)
        check_budget(best_table(scores, budget, shares), budget)


@pytest.mark.parametrize("budget", [0.1, 1.0, 3.0, 12.0])
def test_no_other_table_scores_higher(budget: float) -> None:
    for seed in range(30):
        scores, shares = drawn(seed)
        table = best_table(scores, budget, shares)
        assert table.shape == scores.shape
        value = float(shares @ (scores * table).sum(axis=1))
        best = by_highs((shares[:, None] * scores).T, math.exp(budget))
        assert value == pytest.approx(best, abs=1e-7)


def test_rows_are_segments_and_columns_are_arms() -> None:
    """Two segments, three arms: the first segment likes the first arm, the second the last."""
    table = best_table([[0.5, 0.1, 0.1], [0.1, 0.1, 0.5]], budget=1, shares=[0.5, 0.5])
    high = math.e / (1 + math.e)
    assert table == pytest.approx(np.array([[high, 0, 1 - high], [1 - high, 0, high]]), abs=1e-8)


def test_unit_and_origin_do_not_matter() -> None:
    scores, shares = drawn(3)
    assert best_table(1e6 * scores - 5e7, 1, shares) == pytest.approx(
        best_table(scores, 1, shares), abs=1e-6
    )
    assert best_table([[3.0, 3.0]], 1).sum() == 1


def test_one_segment_and_budget_zero() -> None:
    assert best_table([[0.1, 0.3]], budget=0).tolist() == [[0, 1]]
    assert best_table([[1.0, 0.0], [0.0, 0.9]], budget=0).tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (([[0.1, np.nan]], 1), "scores"),
        (([[0.1, 0.2], [0.3]], 1), "scores"),
        (([0.1, 0.2], 1), "scores"),
        (([[0.1]], 1), "scores"),
        (([[0.1, 0.2]] * 201, 1), "scores"),
        (([[0.1, 0.2]] * 2, 1, [0.5, 0.6]), "shares"),
        (([[0.1, 0.2]] * 2, 1, [1.0]), "shares"),
        (([[0.1, 0.2]] * 2, -1.0), "budget"),
    ],
)
def test_bad_input(arguments: tuple[object, ...], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        best_table(*arguments)  # type: ignore[arg-type]
    assert caught.value.argument == field
