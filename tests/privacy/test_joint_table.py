"""Integer tables keep the exact ratio, whatever the rounding of what they come from."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.rational import exp_bounds

from deniable.errors import BrokenPromiseError, InvalidArgumentError
from deniable.privacy.exact import SPACE
from deniable.privacy.joint_table import SMALLEST, integer_table, keeps_budget, worst_ratio

NANO = 1_000_000_000


def _feasible(rng: np.random.Generator, n_arms: int, n_segments: int, budget: float) -> np.ndarray:
    """A random table at the edge of the budget: sums of two-level columns, by rejection-free mixing."""
    power = np.exp(budget)
    mean = rng.dirichlet(np.ones(n_arms))
    tilt = np.where(rng.random((n_segments, n_arms)) < 0.5, power, 1.0) * mean
    table = tilt / tilt.sum(axis=1, keepdims=True)
    # Normalizing may exceed the ratio by as much again: mix with the mean until it does not.
    for weight in np.linspace(0, 1, 2001):
        mixed = (1 - weight) * table + weight * table.mean(axis=0)
        if (mixed.max(axis=0) <= power * mixed.min(axis=0)).all():
            return np.asarray(mixed)
    raise AssertionError


@pytest.mark.parametrize("budget", [0.0, 1e-9, 0.001, 0.1, 0.5, 1.0, 3.0, 10.0])
def test_rows_keep_the_ratio_exactly(budget: float) -> None:
    rng = np.random.default_rng(int(1000 * budget))
    nano = round(budget * NANO)
    bound = exp_bounds(Fraction(nano, NANO))[1]
    for n_arms, n_segments in [(2, 2), (5, 3), (20, 20)]:
        for _ in range(5):
            table = _feasible(rng, n_arms, n_segments, budget)
            rows = integer_table(table.tolist(), nano)
            assert len(rows) == n_segments
            assert all(sum(row) == SPACE for row in rows)
            assert worst_ratio(rows) <= bound
            assert keeps_budget(rows, nano)
            served = np.array(rows, dtype=float) / SPACE
            assert served == pytest.approx(table, abs=1e-9)


def test_without_the_mix_the_ratio_breaks() -> None:
    """The planted fault: plain rounding of tables at the edge exceeds the budget."""
    broken = 0
    for nano in range(NANO // 10, 3 * NANO, NANO // 10):
        power = np.exp(nano / NANO)
        table = np.where(np.eye(3) == 1, power, 1.0) / (power + 2)
        rows = [[int(Fraction(float(p)) * SPACE) for p in row] for row in table]
        for row in rows:
            row[0] += SPACE - sum(row)
        broken += not keeps_budget(rows, nano)
        assert keeps_budget(integer_table(table.tolist(), nano), nano)
    assert broken > 5


def test_an_arm_is_shown_to_all_or_to_none() -> None:
    tiny = 0.5 * SMALLEST / SPACE
    assert integer_table([[1 - tiny, tiny], [1.0, 0.0]], NANO) == ((SPACE, 0), (SPACE, 0))
    rows = integer_table([[1.0, 0.0], [0.0, 1.0]], 700 * NANO)
    assert min(map(min, rows)) >= SMALLEST - 1
    assert keeps_budget(rows, 700 * NANO)


def test_budget_zero_gives_the_same_row() -> None:
    rows = integer_table([[0.3, 0.7]] * 3, 0)
    assert len(set(rows)) == 1


def test_a_table_that_breaks_the_promise_is_drawn_together() -> None:
    rows = integer_table([[0.9, 0.1], [0.1, 0.9]], NANO)
    assert keeps_budget(rows, NANO)


def test_refusals() -> None:
    with pytest.raises(InvalidArgumentError):
        integer_table([[0.5, 0.4], [0.5, 0.5]], NANO)
    with pytest.raises(InvalidArgumentError):
        integer_table([[1.5, -0.5], [0.5, 0.5]], NANO)
    with pytest.raises(BrokenPromiseError):
        worst_ratio([[SPACE, 0], [SPACE - 1, 1]])
