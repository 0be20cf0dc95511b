"""The promise itself, in exact fractions: no shown arm moves a tracker's odds beyond e^budget.

On the real mechanism, whose probabilities are enclosed in rationals from the power series of e^x. The
integer tables that are served are in `test_tables.py`.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rational import exp_bounds

from deniable import ArmConstant, ArmDynamic, Constant, Dynamic

clocks = st.integers(1, 10**12)

Enclosure = tuple[Fraction, Fraction]


def _symmetric(n_arms: int, risk: float) -> tuple[Enclosure, Enclosure]:
    """Rationals around the greedy arm's and every other arm's probability."""
    low, high = exp_bounds(Fraction(risk))
    rest = n_arms - 1
    return (low / (rest + low), high / (rest + high)), (1 / (rest + high), 1 / (rest + low))


@given(st.integers(2, 10_000), st.floats(0, 700), clocks, clocks, st.booleans())
def test_real_symmetric_strategies_with_any_two_clocks(
    n_arms: int, budget: float, one: int, other: int, dynamic: bool
) -> None:
    strategy = (Dynamic if dynamic else Constant)(budget)
    first, second = (_symmetric(n_arms, float(strategy.risk(n, n_arms))) for n in (one, other))
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
        matrix = Constant(risk).mechanism(1, n_arms).matrix
        assert abs(Fraction(float(matrix[0, 0])) / greedy[0] - 1) < Fraction(1, 2**51)
        assert abs(Fraction(float(matrix[0, 1])) / rest[0] - 1) < Fraction(1, 2**51)


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
    strategy = (ArmDynamic if dynamic else ArmConstant)(budgets)
    risks = [float(risk) for risk in strategy.arm_risks(clock)]
    if max(risks) == 0:
        return  # uniform: every ratio is 1
    own, other = _arm_specific(risks)
    for above, below, budget in zip(own, other, budgets, strict=True):
        assert above[1] / below[0] <= exp_bounds(Fraction(budget))[1] * (1 + Fraction(1, 2**200))


def test_the_arm_specific_strategy_fails_on_segment_clocks() -> None:
    """Budgets .5, 1, 2: a late segment shows the first arm with .775, a new one with 1/3."""
    strategy = ArmDynamic([0.5, 1, 2])
    real = strategy.mechanism(10**6).matrix[0, 0] / strategy.mechanism(1).matrix[0, 1]
    assert real == pytest.approx(2.325, abs=1e-3)
    assert real > exp_bounds(Fraction(1, 2))[1]  # e^.5 = 1.649
    assert strategy.clock_kind == "experiment"
