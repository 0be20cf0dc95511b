"""The rules a firm might use instead, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests import oracle

from deniable.errors import NANO
from deniable.portfolio.allocation import allocate
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.rules import best_budgets, compare_rules, equal_split, zero_budgets


def test_best_budgets_are_each_experiment_s_own_and_may_cost_too_much() -> None:
    found = best_budgets(
        Portfolio.from_sizes([2, 5, 20], [10_000, 10**6, 10**5], form="paper"), 5, "constant"
    )
    assert found.budgets == pytest.approx([1.968181, 4.041814, 4.038283], abs=1e-6)
    assert found.cost_nano / NANO == pytest.approx(1.968181 + 4.041814 + 4.038283, abs=3e-6)
    assert not found.affordable
    dynamic = best_budgets(
        Portfolio.from_sizes([2, 5, 20], [10_000, 10**6, 10**5], form="paper"), 50
    )
    assert dynamic.budgets == pytest.approx([2.728852, 4.769489, 4.886264], abs=1e-6)
    assert dynamic.affordable


def test_equal_split_takes_the_better_strategy_at_the_cap() -> None:
    portfolio = Portfolio.from_sizes([2, 5], [10_000, 10**6], [1, 30], form="paper")
    found = equal_split(portfolio, 3)
    assert found.budgets.tolist() == [1.5, 1.5]
    for row, (k, t, j) in enumerate([(2, 10_000, 1), (5, 10**6, 30)]):
        both = {
            "constant": oracle.constant(k, t, 1.5, j),
            "dynamic": oracle.dynamic(k, t, 1.5, j),
        }
        better = min(both, key=lambda name: both[name])
        assert found.strategies[row] == better
        assert found.regret[row] == pytest.approx(float(both[better]), rel=1e-12)


def test_equal_split_respects_pins_and_counts_a_group_once() -> None:
    rows = [
        {"id": "held", "arms": 2, "visitors": 1000, "committed": 2},
        {"id": "small", "arms": 2, "visitors": 1000, "max_budget": 0.5},
        {"id": "a", "arms": 2, "visitors": 1000, "layer": "g"},
        {"id": "b", "arms": 2, "visitors": 1000, "layer": "g"},
        {"id": "c", "arms": 2, "visitors": 1000},
    ]
    found = equal_split(Portfolio.of(rows, form="paper"), 5.5)
    assert found.budgets.tolist() == [2.0, 0.5, 1.5, 1.5, 1.5]
    assert found.cost_nano == 5_500_000_000


def test_no_affordable_rule_beats_the_optimum_where_budget_is_left_over() -> None:
    """Joint bounds fall forever; what hardly helps is left unspent by rules and optimum alike."""
    rows = [
        {"id": "capped", "arms": 3, "visitors": 250_000, "max_budget": 1.5},
        {"id": "large", "arms": 4, "visitors": 4_000_000, "segments": 3},
        {"id": "small", "arms": 2, "visitors": 40_000},
    ]
    for objective in ("bound", "expected"):
        known = [{**row, "base_rate": 0.05} for row in rows]
        found = allocate(Portfolio.of(known, objective=objective), 40)
        assert found.spent_nano < found.firm_nano
        assert found.shadow_value == 0
        assert found.at_limit.tolist() == [True, False, False]
        assert found.marginal_gain[1:].tolist() == [0.0, 0.0]
        for outcome in compare_rules(found):
            assert outcome.total_regret >= found.total_regret * (1 - 1e-12)


def test_savings_count_from_least_budgets_in_rows_total_and_rules() -> None:
    rows = [
        {"id": "held", "arms": 2, "visitors": 400_000, "committed": 0.8},
        {"id": "free", "arms": 5, "visitors": 900_000},
        {"id": "some", "arms": 3, "visitors": 90_000, "min_budget": 0.4},
    ]
    found = allocate(Portfolio.of(rows, form="paper"), 4)
    zero = zero_budgets(found.portfolio, 4)
    assert found.saved[0] == 0
    assert found.total_saved == pytest.approx(float(found.saved.sum()))
    assert found.total_saved == pytest.approx(zero.total_regret - found.total_regret)


def test_zero_leaves_commitments() -> None:
    rows = [
        {"id": "held", "arms": 2, "visitors": 1000, "committed": 0.4},
        {"id": "free", "arms": 2, "visitors": 10_000},
    ]
    found = zero_budgets(Portfolio.of(rows, form="paper"), regime="constant")
    assert found.budgets.tolist() == [0.4, 0.0]
    told = oracle.constant(2, 1000, 0.4) + oracle.constant(2, 10_000, 0)
    assert found.total_regret == pytest.approx(float(told), rel=1e-12)


def test_the_comparison_holds_the_optimum_and_every_rule() -> None:
    found = allocate(Portfolio.from_sizes([2, 5, 9], [1000, 10**5, 10**6], form="paper"), 4)
    outcomes = {outcome.rule: outcome for outcome in compare_rules(found)}
    assert list(outcomes) == ["optimal", "best budgets", "equal split", "zero", "random arms"]
    assert outcomes["random arms"].total_regret == 1000 + 10**5 + 10**6
    for rule in ("equal split", "zero"):
        assert outcomes["optimal"].total_regret <= outcomes[rule].total_regret
    assert outcomes["best budgets"].total_regret <= outcomes["optimal"].total_regret
    assert np.array_equal(outcomes["optimal"].budgets_nano, found.budgets_nano)
