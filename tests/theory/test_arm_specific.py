"""The price of unequal budgets against 50 digits, and what must hold between its parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import oracle
from tests.agreement import agree

import deniable
from deniable.privacy import ArmSpecificResponse

RISKS: tuple[list[float], ...] = (
    [0.5, 1, 2],
    [1, 1 + 1e-12],
    [1e-9, 1e-9 * (1 + 1e-9)],
    [1e-9, 700],
    [700, 700],
    [699, 700],
    [20, 20, 20.000001],
    [1e-3 * 1.3**i for i in range(50)],
    [3.0] * 8,
)
CLOCKS = (1, 2, 3, 10, 10**4, 10**9, 10**12)
unequal = st.lists(st.floats(1e-6, 600), min_size=2, max_size=10)


@pytest.mark.parametrize("risks", RISKS)
def test_to_the_last_digits(risks: list[float]) -> None:
    agree([(risks,)], [deniable.theory.heterogeneity_gap(risks)], [oracle.gap(risks)])
    rows = [(risks, t) for t in CLOCKS]
    pairs: list[tuple[oracle.Bound, oracle.Bound]] = [
        (deniable.theory.arm_specific_per_round_regret, oracle.arm_round),
        (deniable.theory.arm_specific_excess, oracle.arm_excess),
        (deniable.theory.arm_specific_excess_linear, oracle.arm_excess_linear),
        (deniable.theory.arm_specific_constant_regret, oracle.arm_constant),
    ]
    for formula, truth in pairs:
        agree(rows, formula(risks, CLOCKS), [truth(*row) for row in rows])
    totals = [oracle.arm_constant(risks, t, 20) for t in CLOCKS]
    agree(rows, deniable.theory.arm_specific_constant_regret(risks, CLOCKS, 20), totals)


def test_a_cancelling_difference_would_be_noticed() -> None:
    """Subtracting two bounds in floats loses every digit where the risks are nearly equal."""
    risks, t = [1, 1 + 1e-12], 10_000
    naive = deniable.theory.arm_specific_per_round_regret(risks, t)
    naive = naive - deniable.theory.arm_specific_per_round_regret([max(risks)] * 2, t)
    want = float(oracle.arm_excess(risks, t))
    assert float(naive) != pytest.approx(want, rel=1e-6, abs=0)
    assert float(deniable.theory.arm_specific_excess(risks, t)) == pytest.approx(
        want, rel=1e-13, abs=0
    )


@given(unequal, st.integers(1, 10**12))
def test_the_linear_bound_is_above_the_excess(risks: list[float], clock: int) -> None:
    excess = float(deniable.theory.arm_specific_excess(risks, clock))
    assert (
        0 <= excess <= float(deniable.theory.arm_specific_excess_linear(risks, clock)) * (1 + 1e-13)
    )


@given(st.floats(1e-6, 600), st.integers(2, 20), st.integers(1, 10**12))
def test_equal_risks_cost_nothing_extra(risk: float, n_arms: int, clock: int) -> None:
    risks = [risk] * n_arms
    assert deniable.theory.heterogeneity_gap(risks) == 0
    assert deniable.theory.arm_specific_excess(risks, clock) == 0
    symmetric = deniable.theory.constant_regret(n_arms, clock, risk)
    assert float(deniable.theory.arm_specific_constant_regret(risks, clock)) == pytest.approx(
        float(symmetric), rel=1e-12, abs=0
    )
    rate = deniable.privacy.exploration_from_risk(n_arms, risk)
    assert float(deniable.theory.arm_specific_per_round_regret(risks, clock)) == pytest.approx(
        float(deniable.theory.per_round_regret(n_arms, clock, rate)), rel=1e-12, abs=0
    )


@given(unequal, st.integers(1, 10**12))
def test_the_per_round_bound_is_the_mechanisms(risks: list[float], clock: int) -> None:
    """Exploration and the rarest random arm are those of the mechanism."""
    response = ArmSpecificResponse(risks)
    rarest = response.exploration * response.weights.min()
    want = response.exploration + 2 * np.sqrt(2 * np.log(clock) / clock) / np.sqrt(rarest)
    got = float(deniable.theory.arm_specific_per_round_regret(risks, clock))
    assert got == pytest.approx(float(want), rel=1e-11, abs=0)


@given(unequal, st.integers(2, 10**6))
def test_excess_is_the_difference_of_the_bounds(risks: list[float], clock: int) -> None:
    excess = oracle.arm_excess(risks, clock)
    got = float(deniable.theory.arm_specific_excess(risks, clock))
    assert got == pytest.approx(float(excess), rel=1e-12, abs=1e-300)


def test_arrays_of_risks() -> None:
    table = np.array([[[0.5, 1, 2], [1, 1, 1]], [[2, 2, 3], [0.1, 5, 9]]])
    assert np.asarray(deniable.theory.heterogeneity_gap(table)).shape == (2, 2)
    got = np.asarray(deniable.theory.arm_specific_excess(table, [[10], [1000]]))
    assert got.shape == (2, 2)
    for index in np.ndindex(2, 2):
        alone = deniable.theory.arm_specific_excess(table[index], [10, 1000][index[0]])
        assert float(alone) == pytest.approx(got[index], rel=1e-15, abs=0)
