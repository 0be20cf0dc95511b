"""Beliefs against 50 digits, and the budget that keeps one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests import oracle
from tests.agreement import BUDGETS, agree, columns, grid

import deniable

PRIORS = (0.0, 1e-300, 1e-100, 1e-9, 1e-3, 0.2, 0.5, 0.9, 1 - 1e-9, 1 - 2**-53, 1.0)
inside = st.floats(1e-300, 1 - 2**-53)


def test_bounds_to_the_last_digits() -> None:
    rows = grid(PRIORS, (0.0, *BUDGETS))
    high = deniable.highest_belief(*columns(rows))
    low = deniable.privacy.lowest_belief(*columns(rows))
    agree(rows, high, [oracle.posterior_high(*row) for row in rows], 1e-15)
    agree(rows, low, [oracle.posterior_low(*row) for row in rows], 1e-15)


def test_infinite_risk_is_certainty_but_for_a_closed_mind() -> None:
    assert deniable.highest_belief([0, 0.3, 1], np.inf).tolist() == [0, 1, 1]
    assert deniable.privacy.lowest_belief([0, 0.3, 1], np.inf).tolist() == [0, 0, 1]


def test_the_curve_is_the_bounds_over_priors() -> None:
    priors, low, high = deniable.privacy.belief_curve(1.5, n_points=11)
    rows = [(p, 1.5) for p in priors]
    assert priors == pytest.approx([i / 10 for i in range(11)], rel=1e-15, abs=0)
    agree(rows, low, [oracle.posterior_low(*row) for row in rows], 1e-15)
    agree(rows, high, [oracle.posterior_high(*row) for row in rows], 1e-15)


def test_shapes_broadcast() -> None:
    priors, risks = np.array([[0.1], [0.2]]), np.array([1.0, 2.0, 3.0])
    assert np.asarray(deniable.highest_belief(priors, risks)).shape == (2, 3)
    assert np.asarray(deniable.budget_for_belief(priors, [0.5, 0.6, 0.7])).shape == (2, 3)
    assert isinstance(deniable.privacy.lowest_belief(0.2, 1), np.float64)


def test_budget_for_belief_is_the_difference_of_log_odds() -> None:
    rows = [(p, q) for p, q in grid(PRIORS, PRIORS) if 0 < p <= q < 1]
    want = [mp.log(mpf(q) * (1 - mpf(p)) / (mpf(p) * (1 - mpf(q)))) for p, q in rows]
    agree(rows, deniable.budget_for_belief(*columns(rows)), want, 1e-15)


@pytest.mark.parametrize(
    ("prior", "belief", "budget"),
    [
        (0.0, 0.5, np.inf),
        (0.0, 0.0, np.inf),
        (0.3, 1.0, np.inf),
        (0.3, 0.3, 0.0),
        (1.0, 1.0, np.inf),
    ],
)
def test_budget_for_belief_at_the_corners(prior: float, belief: float, budget: float) -> None:
    assert deniable.budget_for_belief(prior, belief) == budget


@given(inside, inside)
def test_budget_for_belief_is_the_largest(one: float, other: float) -> None:
    """At the budget the belief is met; a little more budget exceeds it, a little less does not."""
    prior, belief = sorted((one, other))
    budget = float(deniable.budget_for_belief(prior, belief))
    p, q = mpf(prior), mpf(belief)

    def reached(gamma: float) -> object:
        return p / (p + (1 - p) * mp.exp(-gamma))

    slack = mpf(10) ** -14 * max(mpf(budget), 1)
    assert reached(mpf(budget) - slack) <= q <= reached(mpf(budget) + slack)


@given(st.floats(0, 1), st.floats(0, 700), st.floats(0, 700))
def test_more_risk_moves_beliefs_further(prior: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    ends = [
        deniable.privacy.lowest_belief(prior, more),
        deniable.privacy.lowest_belief(prior, less),
        prior,
    ]
    ends += [deniable.highest_belief(prior, less), deniable.highest_belief(prior, more)]
    rounding = 4e-16 * np.array([1, 1, 1, 1])
    assert (np.diff(np.array(ends, dtype=np.float64)) >= -rounding).all()


@given(st.floats(0, 1), st.floats(0, 700))
def test_belief_against_a_segment_is_belief_in_the_rest(prior: float, risk: float) -> None:
    """lowest(p) = 1 - highest(1 - p)."""
    other = 1 - float(deniable.highest_belief(1 - prior, risk))
    assert float(deniable.privacy.lowest_belief(prior, risk)) == pytest.approx(other, abs=3e-16)
