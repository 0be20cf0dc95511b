"""Strategies: risk and exploration over the clock, against 50 digits and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests import oracle
from tests.agreement import agree, grid

from deniable import (
    ArmConstantStrategy,
    ArmDynamicStrategy,
    ConstantStrategy,
    DynamicStrategy,
    exhaustion_clock,
)

CLOCKS = (1, 2, 3, 5, 10, 51, 100, 1000, 10**6, 10**9, 10**12)
clocks = st.integers(1, 10**9)
budgets = st.floats(0, 50)


def _capped(k: int, n: int, gamma: float) -> oracle.Real:
    with mp.workdps(110):
        return min(mpf(gamma), oracle.xi_of(k, oracle.eps_dyn(k, n)))


def test_dynamic_risk_and_exploration_to_the_last_digits() -> None:
    for k, gamma in grid((2, 5, 100, 10_000), (1e-9, 0.05, 1.0, 3.0, 20.0, 700.0)):
        strategy = DynamicStrategy(k, gamma)
        rows = [(k, gamma, n) for n in CLOCKS]
        want = [_capped(k, n, gamma) for n in CLOCKS]
        scale = [max(w, mpf(k) / 100) for w in want]  # the schedule's conditioning near risk 0
        agree(rows, strategy.risk(CLOCKS), want, 1e-14, scale)
        explored = [oracle.eps(k, risk) for risk in want]
        agree(rows, strategy.exploration(CLOCKS), explored, 1e-13)
        assert strategy.global_budget == gamma


def test_constant_risk_is_the_budget() -> None:
    strategy = ConstantStrategy(5, 0.7)
    assert strategy.risk(CLOCKS).tolist() == [0.7] * len(CLOCKS)
    agree([()], [strategy.exploration(3)], [oracle.eps(5, 0.7)], 1e-15)
    assert (strategy.binds_at, strategy.clock_kind) == (1, "segment")


@given(st.integers(2, 200), budgets, clocks, clocks)
def test_risk_rises_with_the_clock_to_the_budget(
    n_arms: int, budget: float, one: int, other: int
) -> None:
    strategy = DynamicStrategy(n_arms, budget)
    early, late = sorted((one, other))
    assert 0 <= strategy.risk(early) <= strategy.risk(late) + 1e-12
    assert strategy.risk(late) <= budget
    assert strategy.exploration(early) >= strategy.exploration(late) - 1e-12


@given(st.integers(2, 200), st.floats(0, 8))
def test_the_budget_binds_where_the_strategy_says(n_arms: int, budget: float) -> None:
    strategy = DynamicStrategy(n_arms, budget)
    clock = int(strategy.binds_at)
    assert strategy.binds_at == exhaustion_clock(n_arms, budget)
    assert float(strategy.risk(clock)) == pytest.approx(budget, rel=1e-12, abs=1e-13 * n_arms)
    assert float(strategy.risk(clock + 1)) == pytest.approx(budget, rel=1e-12, abs=1e-13 * n_arms)
    if clock > 3 and budget > 0:
        assert strategy.risk(clock - 1) < budget


def test_mechanisms_carry_the_risk_of_their_clock() -> None:
    dynamic = DynamicStrategy(3, 1.0)
    for clock in (1, 10, 100, 10_000):
        assert dynamic.mechanism(clock).risk == dynamic.risk(clock)
        assert dynamic.mechanism(clock).exploration == dynamic.exploration(clock)


def test_arm_specific_risks_are_capped_one_by_one() -> None:
    strategy = ArmDynamicStrategy([0.5, 1, 2])
    for n in CLOCKS:
        want = [_capped(3, n, gamma) for gamma in (0.5, 1, 2)]
        agree([(n,)] * 3, strategy.arm_risks(n), want, 1e-13)
        assert strategy.risk(n) == strategy.arm_risks(n).max()
        assert strategy.mechanism(n).risks.tolist() == strategy.arm_risks(n).tolist()
    assert strategy.binds_at == exhaustion_clock(3, 2)
    assert (strategy.clock_kind, strategy.n_arms, strategy.global_budget) == ("experiment", 3, 2)
    assert strategy.arm_risks(np.ones((4, 5))).shape == (4, 5, 3)


def test_arm_specific_exploration_over_clocks() -> None:
    table = np.array([[10, 100], [1000, 10_000]])
    for strategy in (ArmDynamicStrategy([0.5, 1, 2]), ArmConstantStrategy([0.5, 1, 2])):
        got = np.asarray(strategy.exploration(table))
        assert got.shape == (2, 2)
        for index, clock in np.ndenumerate(table):
            c = [oracle.inverse_odds(float(x)) for x in strategy.arm_risks(int(clock))]
            agree([(clock,)], [got[index]], [sum(c) / (1 + sum(c))])
    assert ArmDynamicStrategy([0.5, 1, 2]).exploration(1) == 1


def test_arm_specific_constant() -> None:
    strategy = ArmConstantStrategy([0.5, 1, 2])
    assert strategy.arm_risks([1, 10]).tolist() == [[0.5, 1, 2]] * 2
    assert strategy.risk([1, 10]).tolist() == [2, 2]
    assert (strategy.binds_at, strategy.clock_kind) == (1, "segment")


def test_value_objects() -> None:
    assert DynamicStrategy(2, 1) == DynamicStrategy(2, 1.0)
    assert len({DynamicStrategy(2, 1), ConstantStrategy(2, 1)}) == 2
    assert ArmConstantStrategy([1, 2]) == ArmConstantStrategy((1.0, 2.0))
    assert ArmConstantStrategy([1, 2]) != ArmDynamicStrategy([1, 2])
    assert len({ArmDynamicStrategy([1, 2]), ArmDynamicStrategy([1, 2.0])}) == 1
