"""The promise itself, in exact fractions: no shown arm moves a watcher's odds beyond e^budget.

Twice: on the integer tables that are served, and on the real mechanism, whose probabilities are
enclosed in rationals from the power series of e^x.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rational import exp_bounds

from deniable import (
    ArmConstantStrategy,
    ArmDynamicStrategy,
    ConstantStrategy,
    DynamicStrategy,
    ServingSchedule,
    ServingTable,
)
from deniable.errors import NANO

clocks = st.integers(1, 10**12)
nano_budgets = st.one_of(st.integers(0, 30 * NANO), st.integers(0, 5000), st.just(700 * NANO))

Enclosure = tuple[Fraction, Fraction]


def _ceiling(budget_nano: int) -> Fraction:
    """A rational at most e^budget."""
    return exp_bounds(Fraction(budget_nano, NANO))[0]


def _largest_ratios(one: ServingTable, other: ServingTable) -> list[Fraction]:
    """For each shown arm the largest ratio between the tables, over all pairs of greedy arms."""
    return [
        Fraction(high + one.bonus, low) for high, low in zip(one.pieces, other.pieces, strict=True)
    ]


@given(st.integers(2, 20), nano_budgets, clocks, clocks, st.booleans())
def test_served_symmetric_tables_with_any_two_clocks(
    n_arms: int, budget: int, one: int, other: int, dynamic: bool
) -> None:
    schedule = ServingSchedule((budget,) * n_arms, dynamic=dynamic)
    first, second = schedule.table(one), schedule.table(other)
    promised = _ceiling(budget)
    for table in (first, second):
        assert sum(table.count(shown, 0) for shown in range(n_arms)) == 2**64
    for ratio in _largest_ratios(first, second) + _largest_ratios(second, first):
        assert ratio <= promised


@given(st.integers(2, 6), nano_budgets, clocks, clocks)
def test_the_shortcut_of_largest_ratios_is_the_definition(
    n_arms: int, budget: int, one: int, other: int
) -> None:
    schedule = ServingSchedule((budget,) * n_arms, dynamic=True)
    first, second = schedule.table(one), schedule.table(other)
    arms = range(n_arms)
    brute = [
        max(Fraction(first.count(a, g), second.count(a, h)) for g in arms for h in arms)
        for a in arms
    ]
    assert brute == _largest_ratios(first, second)


def _symmetric(n_arms: int, risk: float) -> tuple[Enclosure, Enclosure]:
    """Rationals around the greedy arm's and every other arm's probability."""
    low, high = exp_bounds(Fraction(risk))
    rest = n_arms - 1
    return (low / (rest + low), high / (rest + high)), (1 / (rest + high), 1 / (rest + low))


@given(st.integers(2, 10_000), st.floats(0, 700), clocks, clocks, st.booleans())
def test_real_symmetric_strategies_with_any_two_clocks(
    n_arms: int, budget: float, one: int, other: int, dynamic: bool
) -> None:
    strategy = (DynamicStrategy if dynamic else ConstantStrategy)(n_arms, budget)
    first, second = (_symmetric(n_arms, float(strategy.risk(n))) for n in (one, other))
    promised = exp_bounds(Fraction(budget))[1]
    enclosing = 1 + Fraction(1, 2**250)
    for above in first:
        for below in second:
            assert above[1] / below[0] <= promised * enclosing
            assert below[1] / above[0] <= promised * enclosing


def test_the_enclosure_is_tight_enough_to_see_a_breach() -> None:
    """A risk one part in 10^12 above the budget fails the very same comparison."""
    greedy, rest = _symmetric(5, 1 + 1e-12)
    assert greedy[0] / rest[1] > exp_bounds(Fraction(1))[1] * (1 + Fraction(1, 2**250))


@pytest.mark.parametrize("n_arms", [2, 5, 20])
def test_the_real_matrix_is_within_its_enclosure(n_arms: int) -> None:
    for risk in (1e-9, 0.1, 1.0, 5.0, 50.0):
        greedy, rest = _symmetric(n_arms, risk)
        matrix = ConstantStrategy(n_arms, risk).mechanism(1).matrix
        assert abs(Fraction(float(matrix[0, 0])) / greedy[0] - 1) < Fraction(1, 2**51)
        assert abs(Fraction(float(matrix[0, 1])) / rest[0] - 1) < Fraction(1, 2**51)


unequal = st.lists(st.integers(1, 20 * NANO), min_size=2, max_size=12).map(tuple)


@given(unequal, clocks, st.booleans())
def test_served_arm_specific_tables_on_the_experiment_clock(
    budgets: tuple[int, ...], clock: int, dynamic: bool
) -> None:
    """All segments share the clock: arm j moves the odds by at most e^budget_j."""
    table = ServingSchedule(budgets, dynamic=dynamic).table(clock)
    for shown, budget in enumerate(budgets):
        assert table.worst_ratio(shown) <= _ceiling(budget)


def _arm_specific(risks: list[float]) -> tuple[list[Enclosure], list[Enclosure]]:
    """Rationals around p_jj and p_jl, for each shown arm j."""
    bounds = [exp_bounds(Fraction(risk)) for risk in risks]
    c = [(1 / (high - 1), 1 / (low - 1)) for low, high in bounds]
    total = 1 + sum(low for low, _ in c), 1 + sum(high for _, high in c)
    own = [((1 + low) / total[1], (1 + high) / total[0]) for low, high in c]
    other = [(low / total[1], high / total[0]) for low, high in c]
    return own, other


@given(st.lists(st.floats(1e-6, 50), min_size=2, max_size=6), clocks, st.booleans())
def test_real_arm_specific_strategies_on_the_experiment_clock(
    budgets: list[float], clock: int, dynamic: bool
) -> None:
    strategy = (ArmDynamicStrategy if dynamic else ArmConstantStrategy)(budgets)
    risks = [float(risk) for risk in strategy.arm_risks(clock)]
    if max(risks) == 0:
        return  # uniform: every ratio is 1
    own, other = _arm_specific(risks)
    for above, below, budget in zip(own, other, budgets, strict=True):
        assert above[1] / below[0] <= exp_bounds(Fraction(budget))[1] * (1 + Fraction(1, 2**200))


def test_the_arm_specific_strategy_fails_on_segment_clocks() -> None:
    """Budgets .5, 1, 2: a late segment shows the first arm with .775, a new one with 1/3."""
    budgets = (NANO // 2, NANO, 2 * NANO)
    schedule = ServingSchedule(budgets, dynamic=True)
    new, late = schedule.table(1), schedule.table(10**6)
    served = Fraction(late.count(0, greedy=0), new.count(0, greedy=1))
    assert float(served) == pytest.approx(2.325, abs=1e-3)
    assert served > exp_bounds(Fraction(1, 2))[1]  # e^.5 = 1.649

    strategy = ArmDynamicStrategy([0.5, 1, 2])
    real = strategy.mechanism(10**6).matrix[0, 0] / strategy.mechanism(1).matrix[0, 1]
    assert real == pytest.approx(2.325, abs=1e-3)
    assert strategy.clock_kind == "experiment"
