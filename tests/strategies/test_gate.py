"""The gate against HiGHS on another formulation, brute force, and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.rational import exp_bounds
from tests.strategies.lp_oracle import by_highs

import deniable
from deniable.errors import InvalidArgumentError
from deniable.strategies.gate import Gated, gate
from deniable.strategies.rules import Kind

BUDGETS = (0.0, 1e-9, 0.1, 1.0, 3.0, 12.0, 40.0, 700.0)


def check_promise(found: Gated, budget: float) -> None:
    """In fractions: rows of 2^64, and no arm beyond e^budget over two segments."""
    limit = exp_bounds(Fraction(budget))[1]
    assert all(sum(row) == 2**64 for row in found.rows)
    for column in zip(*found.rows, strict=True):
        assert min(column) >= 0
        assert max(column) <= limit * min(column)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and shares of 2 to 6 segments and 2 to 8 arms."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(2, 7)), int(rng.integers(2, 9))
    return rng.normal(size=shape), rng.dirichlet(np.ones(shape[0]))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", ["scores", "probabilities"])
def test_the_promise_is_exact(budget: float, kind: Kind) -> None:
    for seed in range(20):
        scores, shares = drawn(seed)
        if kind == "probabilities":
            scores = np.exp(3 * scores) / np.exp(3 * scores).sum(axis=1, keepdims=True)
        found = gate(scores, shares, budget, kind=kind)
        check_promise(found, budget)
        assert found.cost >= -1e-12


@pytest.mark.parametrize("budget", [0.1, 1.0, 3.0, 12.0])
def test_scores_against_highs(budget: float) -> None:
    for seed in range(30):
        scores, shares = drawn(seed)
        found = gate(scores, shares, budget)
        best = by_highs((shares[:, None] * scores).T, float(np.exp(budget)))
        assert found.kept == pytest.approx(best, abs=1e-7)
        assert found.wanted == pytest.approx(float(shares @ scores.max(axis=1)))


def test_unit_and_zero_do_not_matter() -> None:
    scores, shares = drawn(3)
    one, other = gate(scores, shares, 1.0), gate(1e6 * scores - 5e7, shares, 1.0)
    assert np.abs(one.table - other.table).max() < 1e-6
    assert other.cost == pytest.approx(1e6 * one.cost, rel=1e-6)


def test_two_by_two_probabilities_by_brute_force() -> None:
    """Every table of a grid that keeps the budget is at least as far away."""
    grid = np.linspace(0, 1, 401)
    first, second = np.meshgrid(grid, grid)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        wanted, share, budget = rng.uniform(size=2), rng.uniform(0.1, 0.9), rng.uniform(0.05, 3)
        factor = np.exp(budget) * (1 + 1e-12)
        keeps = (first <= factor * second) & (second <= factor * first)
        keeps &= (1 - first <= factor * (1 - second)) & (1 - second <= factor * (1 - first))
        away = share * abs(first - wanted[0]) + (1 - share) * abs(second - wanted[1])
        nearest = away[keeps].min()
        rows = np.column_stack([wanted, 1 - wanted])
        found = gate(rows, [share, 1 - share], budget, kind="probabilities")
        moved = abs(found.table - rows).sum(axis=1) / 2
        assert found.cost == pytest.approx(float(np.array([share, 1 - share]) @ moved), abs=1e-9)
        assert nearest - 1 / 400 <= found.cost <= nearest + 1e-9


def test_no_mix_with_a_common_row_is_nearer() -> None:
    """Larger tables: whoever mixes what is wanted with any one row, as much as needed, is not nearer."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n_segments, n_arms = int(rng.integers(2, 6)), int(rng.integers(3, 8))
        wanted = rng.dirichlet(np.full(n_arms, 0.5), n_segments)
        shares = rng.dirichlet(np.ones(n_segments))
        found = gate(wanted, shares, 1.0, kind="probabilities")
        for common in (
            shares @ wanted,
            np.full(n_arms, 1 / n_arms),
            rng.dirichlet(np.ones(n_arms)),
        ):
            weights = np.linspace(0, 1, 201)[:, None, None]
            mixed = (1 - weights) * wanted + weights * common
            keeps = (mixed.max(axis=1) <= math.e * mixed.min(axis=1)).all(axis=1)
            away = (shares * abs(mixed - wanted).sum(axis=2)).sum(axis=1) / 2
            assert found.cost <= away[keeps].min() + 1e-9


def test_what_keeps_the_budget_passes() -> None:
    wanted = np.array([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]])
    found = deniable.gate(wanted, budget=1, kind="probabilities")
    assert np.abs(found.table - wanted).max() < 1e-9
    assert found.cost == pytest.approx(0, abs=1e-9)


def test_one_segment_and_budget_zero() -> None:
    assert gate([[0.1, 0.3]], budget=0).table.tolist() == [[0, 1]]
    same = gate([[1.0, 0.0], [0.0, 0.9]], budget=0)
    assert same.rows[0] == same.rows[1]
    assert (same.wanted, same.kept) == pytest.approx((0.95, 0.5))


def test_large() -> None:
    rng = np.random.default_rng(5)
    found = gate(rng.uniform(size=(200, 200)), budget=1.0)
    check_promise(found, 1.0)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (([[0.1, np.nan]],), "scores"),
        (([[0.1, 0.2], [0.3]],), "scores"),
        (([0.1, 0.2],), "scores"),
        (([[0.1]],), "scores"),
        (([[0.1, 0.2]] * 201,), "scores"),
        (([[0.1, 0.2]] * 2, [0.5, 0.6]), "shares"),
        (([[0.1, 0.2]] * 2, [1.0]), "shares"),
        (([[0.1, 0.2]] * 2, None, -1.0), "budget"),
    ],
)
def test_bad_input(arguments: tuple[object, ...], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        gate(*arguments)  # type: ignore[arg-type]
    assert caught.value.argument == field


def test_bad_kinds() -> None:
    with pytest.raises(InvalidArgumentError, match="kind"):
        gate([[0.1, 0.2]], kind="best")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="each row summing to 1"):
        gate([[0.1, 0.2]], kind="probabilities")
