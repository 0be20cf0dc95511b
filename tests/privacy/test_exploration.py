"""Risk and exploration, both ways, against 50 digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests import oracle
from tests.agreement import ARMS, BUDGETS, agree, columns, errors, grid

import deniable
from deniable.privacy.exploration import exploitation_from_risk

RATES = (1e-300, 1e-100, 1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, 1 - 2**-53, 1.0)
arms = st.integers(2, 10_000)
risks = st.floats(0, 700)


def test_exploration_to_the_last_digits() -> None:
    rows = grid(ARMS, (0.0, *BUDGETS))
    agree(
        rows,
        deniable.privacy.exploration_from_risk(*columns(rows)),
        [oracle.eps(*r) for r in rows],
        1e-15,
    )


def test_exploitation_does_not_cancel() -> None:
    rows = grid(ARMS, BUDGETS)
    want = [mp.expm1(mpf(x)) / (k - 1 + mp.exp(mpf(x))) for k, x in rows]
    agree(rows, exploitation_from_risk(*columns(rows)), want, 1e-15)


def test_risk_to_the_last_digits() -> None:
    rows = grid(ARMS, RATES)
    want = [oracle.xi_of(k, e) for k, e in rows]
    agree(rows, deniable.privacy.risk_from_exploration(*columns(rows)), want, 1e-15)


def test_a_cancelling_formula_would_be_noticed() -> None:
    """The textbook inverse log(1 - K + K/e) loses its digits near e = 1, and this grid sees it."""
    rows = grid(ARMS, RATES)
    k, e = columns(rows)
    naive = np.log(1 - k + k / e)
    assert max(errors(naive, [oracle.xi_of(*r) for r in rows])) > 1e-9


def test_the_ends_of_the_dial() -> None:
    assert deniable.privacy.exploration_from_risk(7, 0) == 1
    assert deniable.privacy.exploration_from_risk(7, np.inf) == 0
    assert exploitation_from_risk(7, np.inf) == 1
    assert deniable.privacy.risk_from_exploration(7, 1) == 0


def test_scalars_arrays_and_broadcasting_agree() -> None:
    k, x = np.array(ARMS)[:, None], np.array(BUDGETS)
    table = np.asarray(deniable.privacy.exploration_from_risk(k, x))
    assert table.shape == (len(ARMS), len(BUDGETS))
    scalars = [[float(deniable.privacy.exploration_from_risk(a, b)) for b in BUDGETS] for a in ARMS]
    np.testing.assert_allclose(table, scalars, rtol=1e-15)
    assert isinstance(deniable.privacy.exploration_from_risk(2, 1), np.float64)
    assert np.asarray(deniable.privacy.risk_from_exploration(k, [0.5, 0.25])).shape == (
        len(ARMS),
        2,
    )


@given(arms, st.floats(1e-12, 600))
def test_the_inverse_returns_the_risk(n_arms: int, risk: float) -> None:
    back = deniable.privacy.risk_from_exploration(
        n_arms, deniable.privacy.exploration_from_risk(n_arms, risk)
    )
    # Near exploration 1 the float's spacing of 1e-16 is K/risk times as much of the risk.
    assert float(back) == pytest.approx(risk, rel=1e-14, abs=4e-16 * n_arms)


@given(arms, risks, risks)
def test_more_risk_is_less_exploration(n_arms: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert deniable.privacy.exploration_from_risk(
        n_arms, low
    ) >= deniable.privacy.exploration_from_risk(n_arms, high)
    assert exploitation_from_risk(n_arms, low) <= exploitation_from_risk(n_arms, high)
