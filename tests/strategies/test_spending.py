"""Strategies: risk and exploration over the clock, against 50 digits and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests import oracle
from tests.agreement import agree, grid

from deniable import ArmConstant, ArmDynamic, Constant, Dynamic
from deniable.privacy import exhaustion_clock

CLOCKS = (1, 2, 3, 5, 10, 51, 100, 1000, 10**6, 10**9, 10**12)
clocks = st.integers(1, 10**9)
budgets = st.floats(0, 50)


def _capped(k: int, n: int, gamma: float) -> oracle.Real:
    with mp.workdps(110):
        return min(mpf(gamma), oracle.xi_of(k, oracle.eps_dyn(k, n)))


def test_dynamic_risk_and_exploration_to_the_last_digits() -> None:
    for k, gamma in grid((2, 5, 100, 10_000), (1e-9, 0.05, 1.0, 3.0, 20.0, 700.0)):
        strategy = Dynamic(gamma)
        rows = [(k, gamma, n) for n in CLOCKS]
        want = [_capped(k, n, gamma) for n in CLOCKS]
        scale = [max(w, mpf(k) / 100) for w in want]  # the schedule's conditioning near risk 0
        agree(rows, strategy.risk(CLOCKS, k), want, 1e-14, scale)
        explored = [oracle.eps(k, risk) for risk in want]
        agree(rows, strategy.exploration(CLOCKS, k), explored, 1e-13)
        assert strategy.risk_cap == gamma


def test_constant_risk_is_the_budget() -> None:
    strategy = Constant(0.7)
    assert strategy.risk(CLOCKS, 5).tolist() == [0.7] * len(CLOCKS)
    agree([()], [strategy.exploration(3, 5)], [oracle.eps(5, 0.7)], 1e-15)
    assert (strategy.binds_at(5), strategy.clock_kind) == (1, "segment")


@given(st.integers(2, 200), budgets, clocks, clocks)
def test_risk_rises_with_the_clock_to_the_budget(
    n_arms: int, budget: float, one: int, other: int
) -> None:
    strategy = Dynamic(budget)
    early, late = sorted((one, other))
    assert 0 <= strategy.risk(early, n_arms) <= strategy.risk(late, n_arms) + 1e-12
    assert strategy.risk(late, n_arms) <= budget
    assert strategy.exploration(early, n_arms) >= strategy.exploration(late, n_arms) - 1e-12


@given(st.integers(2, 200), st.floats(0, 8))
def test_the_budget_binds_where_the_strategy_says(n_arms: int, budget: float) -> None:
    strategy = Dynamic(budget)
    clock = int(strategy.binds_at(n_arms))
    assert strategy.binds_at(n_arms) == exhaustion_clock(n_arms, budget)
    assert float(strategy.risk(clock, n_arms)) == pytest.approx(
        budget, rel=1e-12, abs=1e-13 * n_arms
    )
    assert float(strategy.risk(clock + 1, n_arms)) == pytest.approx(
        budget, rel=1e-12, abs=1e-13 * n_arms
    )
    if clock > 3 and budget > 0:
        assert strategy.risk(clock - 1, n_arms) < budget


def test_mechanisms_carry_the_risk_of_their_clock() -> None:
    dynamic = Dynamic(1.0)
    for clock in (1, 10, 100, 10_000):
        assert dynamic.mechanism(clock, 3).risk == dynamic.risk(clock, 3)
        assert dynamic.mechanism(clock, 3).exploration == dynamic.exploration(clock, 3)


def test_arm_specific_risks_are_capped_one_by_one() -> None:
    strategy = ArmDynamic([0.5, 1, 2])
    for n in CLOCKS:
        want = [_capped(3, n, gamma) for gamma in (0.5, 1, 2)]
        agree([(n,)] * 3, strategy.arm_risks(n), want, 1e-13)
        assert strategy.risk(n) == strategy.arm_risks(n).max()
        assert strategy.mechanism(n).risks.tolist() == strategy.arm_risks(n).tolist()
    assert strategy.binds_at == exhaustion_clock(3, 2)
    assert (strategy.clock_kind, strategy.n_arms, strategy.risk_cap) == ("experiment", 3, 2)
    assert strategy.arm_risks(np.ones((4, 5))).shape == (4, 5, 3)


def test_arm_specific_exploration_over_clocks() -> None:
    table = np.array([[10, 100], [1000, 10_000]])
    for strategy in (ArmDynamic([0.5, 1, 2]), ArmConstant([0.5, 1, 2])):
        got = np.asarray(strategy.exploration(table))
        assert got.shape == (2, 2)
        for index, clock in np.ndenumerate(table):
            c = [oracle.inverse_odds(float(x)) for x in strategy.arm_risks(int(clock))]
            agree([(clock,)], [got[index]], [sum(c) / (1 + sum(c))])
    assert ArmDynamic([0.5, 1, 2]).exploration(1) == 1


def test_arm_specific_constant() -> None:
    strategy = ArmConstant([0.5, 1, 2])
    assert strategy.arm_risks([1, 10]).tolist() == [[0.5, 1, 2]] * 2
    assert strategy.risk([1, 10]).tolist() == [2, 2]
    assert (strategy.binds_at, strategy.clock_kind) == (1, "segment")


def test_value_objects() -> None:
    assert Dynamic(1) == Dynamic(1.0)
    assert len({Dynamic(1), Constant(1)}) == 2
    assert ArmConstant([1, 2]) == ArmConstant((1.0, 2.0))
    assert len({ArmConstant([1, 2]), ArmDynamic([1, 2])}) == 2
    assert len({ArmDynamic([1, 2]), ArmDynamic([1, 2.0])}) == 1
