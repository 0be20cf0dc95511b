"""Losses as tables: any that fall with the budget are divided to a certified optimum.

The oracle tries every division in steps of the finest stretch between knots. It shares nothing with the
solver: some best division has all but one experiment at knots, and the grid holds every knot.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.portfolio import curves
from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.curves import KNOTS, TableCurves
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.rules import compare_rules, equal_split

STEP = 0.05  # every knot is a multiple
Tables = dict[tuple[str, int], NDArray[np.float64]]


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "arms": 2, "visitors": 1000, "base_rate": 0.1, **more}


def given(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    """Losses by strategy and row instead of those that are expected."""

    def table(portfolio: Portfolio, strategy: str, rows: Any) -> NDArray[np.float64]:
        return np.stack([tables[strategy, int(r)] for r in rows]) * portfolio.worth[rows, None]

    monkeypatch.setattr(curves, "has_surface", lambda name: name in ("dynamic", "joint"))
    monkeypatch.setattr(curves, "expected_table", table)


def random_table(rng: np.random.Generator) -> NDArray[np.float64]:
    """Falls anyhow: steep and flat stretches in any order, with many jumps in the gain."""
    kind = rng.integers(0, 3)
    width = np.diff(KNOTS)
    if kind == 0:
        fall = width * rng.exponential(1.0, width.size) ** 2
    elif kind == 1:
        fall = width * np.exp(-KNOTS[1:] * rng.uniform(0.2, 2))
    else:  # nothing, then much
        fall = width * np.exp(-((KNOTS[1:] - rng.uniform(1, 5)) ** 2) / rng.uniform(0.1, 2))
    fall *= rng.random(width.size) > 0.2
    scale = 10 ** rng.uniform(0, 3)
    return np.asarray(scale * (fall.sum() * rng.uniform(1.0, 3) - np.append(0, np.cumsum(fall))))


def instance(seed: int) -> tuple[list[dict[str, Any]], Tables, float]:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    rows = [row(i) for i in range(count)]
    for one in rows:
        kind = rng.integers(0, 6)
        if kind == 0:
            one["committed"] = round(STEP * int(rng.integers(0, 30)), 2)
        elif kind == 1:
            one["max_budget"] = round(STEP * int(rng.integers(1, 60)), 2)
        elif kind == 2:
            one["min_budget"] = round(STEP * int(rng.integers(0, 20)), 2)
        if rng.random() < 0.25:
            one["layer"] = "g"
        if rng.random() < 0.3:
            one["value"] = float(rng.uniform(0.1, 9))
    tables = {(s, i): random_table(rng) for s in ("dynamic", "joint") for i in range(count)}
    held = sum(one.get("committed", one.get("min_budget", 0.0)) for one in rows)
    return rows, tables, round(held + STEP * int(rng.integers(1, 160)), 2)


def exhaustive(rows: list[dict[str, Any]], tables: Tables, firm_budget: float) -> float:
    """The least total over all divisions in steps; a group costs its largest budget."""
    steps = round(firm_budget / STEP)
    grid = STEP * np.arange(steps + 1)
    units: dict[str, NDArray[np.float64]] = {}
    for number, one in enumerate(rows):
        low = one.get("committed", one.get("min_budget", 0.0))
        high = one.get("committed", one.get("max_budget", np.inf))
        loss = np.full(steps + 1, np.inf)
        for strategy in ("dynamic", "joint"):
            table = tables[strategy, number]
            left = table - table[-1]
            useful = KNOTS[np.argmax(left <= curves.ENOUGH * left[0])]
            budget = np.minimum(grid, max(low, min(high, useful)))
            own = np.interp(budget, KNOTS, table) * one.get("value", 1.0)
            loss = np.minimum(loss, np.where(grid >= low - 1e-9, own, np.inf))
        name = one.get("layer") or one["id"]
        units[name] = units.get(name, 0.0) + loss
    total = np.zeros(steps + 1)
    for loss in units.values():
        parts = [total[: steps + 1 - k] + loss[k] for k in range(steps + 1)]
        total = np.array([min(parts[k][n - k] for k in range(n + 1)) for n in range(steps + 1)])
    return float(total[-1])


@pytest.mark.parametrize("seed", range(60))
def test_no_division_in_steps_is_better(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, tables, firm_budget = instance(seed)
    given(monkeypatch, tables)
    found = allocate(Portfolio.of(rows), firm_budget)
    best = exhaustive(rows, tables, firm_budget)
    scale = max(table[0] for table in tables.values())
    assert found.certified
    assert found.spent_nano <= found.firm_nano
    possible = found.total_regret + found.total_saved - best
    assert best - 1e-6 * scale <= found.total_regret <= best + 1e-6 * scale + 1e-4 * possible
    assert found.lower_bound <= best + 1e-9 * scale
    assert isinstance(found.curves, TableCurves)


def test_the_oracle_sees_a_solver_that_skips_where_gains_rise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: the loss at the left end of a stretch is taken for the whole stretch."""
    wrong = 0
    for seed in range(12):
        rows, tables, firm_budget = instance(seed)
        given(monkeypatch, tables)
        with monkeypatch.context() as planted:
            planted.setattr(TableCurves, "regret", lambda self, c, b: self.loss[c, self._place(b)])
            found = allocate(Portfolio.of(rows), firm_budget)
        told = found.total_regret - exhaustive(rows, tables, firm_budget)
        wrong += abs(told) > 1e-6 * max(table[0] for table in tables.values())
    assert wrong > 6


def test_value_counts() -> None:
    """A click that is worth more draws the budget, for bounds too."""
    rows = [{"id": n, "arms": 2, "visitors": 10_000, "segments": 2} for n in "ab"]
    rows[1]["value"] = 10
    found = allocate(Portfolio.of(rows), 1)
    assert found.budgets[1] > found.budgets[0]
    alone = allocate(Portfolio.of(rows[:1]), 1)
    ten = allocate(Portfolio.of([{**rows[0], "value": 10}]), 1)
    assert ten.total_regret == pytest.approx(10 * alone.total_regret)


def solved(monkeypatch: pytest.MonkeyPatch, budget: float) -> Allocation:
    rng = np.random.default_rng(11)
    tables = {(s, i): random_table(rng) for s in ("dynamic", "joint") for i in range(30)}
    given(monkeypatch, tables)
    return allocate(Portfolio.of([row(i) for i in range(30)]), budget)


def test_more_budget_never_loses_and_rules_never_win(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [solved(monkeypatch, budget) for budget in (0, 0.5, 2, 7, 20, 60)]
    assert all(b.total_regret <= a.total_regret * (1 + 1e-4) for a, b in pairwise(found))
    for one in found:
        split = equal_split(one.portfolio, one.firm_budget)
        assert one.total_regret <= split.total_regret * (1 + 1e-9)
        assert one.relative_gap <= 1e-3


def test_the_rules_are_judged_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.portfolio import rules

    found = solved(monkeypatch, 7)
    monkeypatch.setattr(rules, "expected_table", lambda p, *_: np.full((p.size, 1), 5.0))
    outcomes = {outcome.rule: outcome for outcome in compare_rules(found)}
    assert outcomes["random arms"].total_regret == 150
    assert outcomes["best budgets"].total_regret <= found.total_regret


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row(1), {**row(2), "base_rate": None}], r"row 2 \(e2\): base_rate is missing"),
        ([row(1, base_rate=1.5)], "base_rate=1.5: expected a click rate above 0 and below 1"),
        ([row(1, lift=0)], "lift=0: expected a relative difference"),
        ([row(1, heterogeneity="much")], "heterogeneity='much': expected a number from 0 to 1"),
        ([row(1, shares="0.5 0.4")], "sum to 1, not 0.9"),
        ([row(1, shares=[0.5, 0.5], segments=3)], "one for each of 3 segments"),
        ([row(1, shares=3)], "shares=3: expected parts of the visitors"),
        ([row(1, value=-1)], "value=-1: expected what a click is worth"),
        ([{**row(1), "base_rate": "", "lift": 0.1}], "lift=0.1: expected a base_rate beside it"),
    ],
)
def test_bad_columns_are_told(rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(InvalidTableError, match=words):
        Portfolio.of(rows)


def test_objectives() -> None:
    rows = [row(1, shares="0.6/0.3/0.1"), row(2)]
    portfolio = Portfolio.of(rows)
    assert portfolio.objective == "expected"
    assert portfolio.segments.tolist() == [3, 2]
    assert portfolio.known is not None
    assert portfolio.known.shares == ((0.6, 0.3, 0.1), None)
    assert portfolio.known.lift.tolist() == [0.05, 0.05]
    assert Portfolio.of(rows, objective="bound").objective == "bound"
    plain = Portfolio.of([{"id": "a", "arms": 2, "visitors": 9}])
    assert plain.objective == "bound"
    with pytest.raises(InvalidArgumentError, match="bound, without base rates"):
        plain.judged_by("expected")
    with pytest.raises(
        InvalidArgumentError, match="objective='clicks': expected expected or bound"
    ):
        Portfolio.of(rows, objective="clicks")
    with pytest.raises(InvalidArgumentError, match="with the form paper"):
        Portfolio.of(rows, objective="expected", form="paper")
