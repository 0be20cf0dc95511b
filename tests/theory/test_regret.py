"""Regret bounds against 50 digits, term by term, from one visitor to a trillion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import oracle
from tests.agreement import ARMS, BUDGETS, HORIZONS, SEGMENTS, agree, columns, grid

import deniable

RATES = (1e-300, 1e-100, 1e-9, 0.1, 0.24, 0.9, 1 - 2**-53, 1.0)
sizes = {"n_arms": st.integers(2, 10_000), "horizon": st.integers(3, 10**12)}


def test_without_privacy() -> None:
    rows = grid(ARMS, HORIZONS, SEGMENTS)
    want = [oracle.nonprivate(*row) for row in rows]
    agree(rows, deniable.theory.nonprivate_regret(*columns(rows)), want, 1e-14)


@pytest.mark.parametrize("sharp", [False, True])
def test_per_round(sharp: bool) -> None:
    rows = grid(ARMS, HORIZONS, RATES)
    want = [oracle.per_round(*row, sharp=sharp) for row in rows]
    agree(rows, deniable.theory.per_round_regret(*columns(rows), sharp=sharp), want, 1e-14)


@pytest.mark.parametrize("n_segments", SEGMENTS)
def test_constant_by_term(n_segments: int) -> None:
    rows = grid(ARMS, HORIZONS, (0.0, *BUDGETS), (n_segments,))
    terms = deniable.theory.constant_regret_terms(*columns(rows))
    wanted = [oracle.constant_terms(*row) for row in rows]
    for got, want in zip(terms, zip(*wanted, strict=True), strict=True):
        agree(rows, got, want, 1e-14)
    agree(rows, deniable.theory.constant_regret(*columns(rows)), map(sum, wanted), 1e-14)


@pytest.mark.parametrize("n_segments", SEGMENTS)
def test_dynamic_by_term(n_segments: int) -> None:
    """Terms on the scale of the bound.

    Where the budget almost reaches the horizon, T - n is a small difference of two large numbers,
    and the last bit of n is all there is of it: a term by itself cannot be better than that.
    """
    rows = grid(ARMS, HORIZONS, (0.0, *BUDGETS), (n_segments,))
    if n_segments == 1:
        wanted = [oracle.dynamic_terms(*row[:3]) for row in rows]
    else:
        wanted = [oracle.dynamic_terms_j(*row) for row in rows]
    totals = [sum(terms) for terms in wanted]
    terms = deniable.theory.dynamic_regret_terms(*columns(rows))
    for got, want in zip(terms, zip(*wanted, strict=True), strict=True):
        agree(rows, got, want, scale=totals)
    agree(rows, terms.total, totals)
    agree(rows, deniable.theory.dynamic_regret(*columns(rows)), totals)


def test_the_bound_for_any_segments_is_looser_for_one() -> None:
    rows = grid(ARMS, HORIZONS, BUDGETS, (1,))
    wanted = [oracle.dynamic_terms_j(*row) for row in rows]
    terms = deniable.theory.dynamic_regret_terms_any_segments(*columns(rows))
    agree(rows, terms.total, [sum(w) for w in wanted])
    sharper = np.asarray(deniable.theory.dynamic_regret(*columns(rows)))
    assert (sharper <= np.asarray(terms.total) * (1 + 1e-14)).all()
    assert (sharper < 0.9 * np.asarray(terms.total)).any()


def test_once_the_cap_does_not_bind_the_bound_is_the_one_without_privacy() -> None:
    rows = grid(ARMS, HORIZONS[1:], SEGMENTS)
    k, t, j = columns(rows)
    best = np.asarray(deniable.theory.best_dynamic_budget(k, t))
    free = np.asarray(deniable.theory.nonprivate_regret(k, t, j))
    for budget in (best, best + 1e-9, best + 1, np.full_like(best, 700)):
        np.testing.assert_allclose(
            deniable.theory.dynamic_regret(k, t, budget, j), free, rtol=1e-14
        )


FORMULAS = [
    deniable.theory.constant_regret,
    deniable.theory.dynamic_regret,
    deniable.theory.constant_gain,
    deniable.theory.dynamic_gain,
    deniable.theory.constant_elasticity,
    deniable.theory.dynamic_elasticity,
]


@pytest.mark.parametrize("bound", FORMULAS)
def test_long_arrays_are_their_parts(bound: oracle.Bound) -> None:
    """Long arrays may be evaluated in blocks; no seam may show."""
    budgets = np.linspace(0, 9, 20_011)
    whole = np.asarray(bound(5, 10**6, budgets, 3))
    parts = [np.asarray(bound(5, 10**6, part, 3)) for part in np.array_split(budgets, 97)]
    np.testing.assert_allclose(whole, np.concatenate(parts), rtol=1e-12)
    table = np.asarray(bound(5, 10**6, budgets[:, None], [1, 3]))
    np.testing.assert_allclose(table[:, 1], whole, rtol=1e-12)


@pytest.mark.parametrize("bound", FORMULAS)
def test_absurd_budgets_are_finite_and_silent(bound: oracle.Bound) -> None:
    """Beyond 1,300 nats the bounds stay where they are there, some 280 powers of ten up."""
    for k, t, j in grid((2, 10_000), (1, 10**12), (1, 1000)):
        assert np.isfinite(bound(k, t, [1300, 1500, 1e6], j)).all()
    assert np.isfinite(bound(2, 1000, 1e300))


@pytest.mark.parametrize("bound", FORMULAS)
def test_scalars_arrays_and_broadcasting_agree(bound: oracle.Bound) -> None:
    k, t = np.array([2, 5])[:, None, None, None], np.array([10, 10**6])[:, None, None]
    b, j = np.array([0.1, 1.0, 3.0])[:, None], np.array([1, 2, 20, 1])
    table = np.asarray(bound(k, t, b, j))
    assert table.shape == (2, 2, 3, 4)
    for (at_k, at_t, at_b, at_j), value in np.ndenumerate(table):
        one = bound(int(k.flat[at_k]), int(t.flat[at_t]), float(b.flat[at_b]), int(j[at_j]))
        assert isinstance(one, np.float64)
        assert float(one) == pytest.approx(value, rel=1e-14, abs=0)
    assert np.asarray(bound(2, 10_000, 1, [1, 1])).shape == (2,)
    assert np.asarray(bound([2, 3], 10_000, 1)).shape == (2,)
    assert np.asarray(bound(2, 10_000, np.empty((0,)))).shape == (0,)


@pytest.mark.parametrize(
    "split",
    [
        deniable.theory.constant_regret_terms,
        deniable.theory.dynamic_regret_terms,
        deniable.theory.dynamic_regret_terms_any_segments,
    ],
)
def test_terms_share_one_shape_and_sum_to_the_total(split: oracle.Bound) -> None:
    terms = split([2, 5], 10_000, [[0.5], [1.0], [9.0]], 4)
    assert [np.shape(term) for term in terms] == [(3, 2)] * 3
    np.testing.assert_array_equal(terms.total, sum(terms))
    assert [np.shape(term) for term in split(2, 10_000, 1, [1, 2, 3])] == [(3,)] * 3
    terms.learning[0, 0] = -1  # each term is the caller's own
    assert np.asarray(split([2, 5], 10_000, [[0.5], [1.0], [9.0]], 4).learning)[0, 0] != -1


@given(**sizes, budget=st.floats(0, 60), n_segments=st.integers(1, 1000))
def test_more_visitors_arms_and_segments_cost_more(
    n_arms: int, horizon: int, budget: float, n_segments: int
) -> None:
    slack = 1 + 1e-12
    for bound in (deniable.theory.constant_regret, deniable.theory.dynamic_regret):
        base = float(bound(n_arms, horizon, budget, n_segments))
        assert base <= float(bound(n_arms, horizon + 1, budget, n_segments)) * slack
        assert base <= float(bound(n_arms, 2 * horizon, budget, n_segments)) * slack
        assert base <= float(bound(n_arms, horizon, budget, 2 * n_segments)) * slack
    free = float(deniable.theory.nonprivate_regret(n_arms, horizon, n_segments))
    assert free <= float(deniable.theory.nonprivate_regret(n_arms + 1, horizon, n_segments)) * slack


@given(**sizes, budget=st.floats(0, 60), n_segments=st.integers(1, 1000))
def test_privacy_is_never_free(n_arms: int, horizon: int, budget: float, n_segments: int) -> None:
    """No capped bound is below the dynamic strategy's without a cap."""
    free = float(deniable.theory.nonprivate_regret(n_arms, horizon, n_segments))
    for bound in (deniable.theory.constant_regret, deniable.theory.dynamic_regret):
        assert float(bound(n_arms, horizon, budget, n_segments)) >= free * (1 - 1e-12)
