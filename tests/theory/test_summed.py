"""The form `summed`: bounds, gains and best budgets against 50 digits, scans and plain sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests import oracle
from tests.agreement import agree, columns, grid
from tests.oracle import mp, mpf

import deniable as d
from deniable.errors import InvalidArgumentError

SHARES: tuple[list[float], ...] = ([1.0], [0.5, 0.5], [0.25] * 4, [0.75, 0.25], [0.5, 0.375, 0.125])
ARMS, HORIZONS, BUDGETS = (2, 5, 100), (10, 1000, 10**6, 10**12), (1e-6, 0.2, 1.0, 3.0, 6.0, 40.0)
FORMULAS: dict[str, tuple[Any, Any, Any, Any]] = {
    "constant": (
        d.theory.constant_regret,
        d.theory.constant_gain,
        d.theory.best_constant_budget,
        oracle.summed_constant,
    ),
    "dynamic": (
        d.theory.dynamic_regret,
        d.theory.dynamic_gain,
        d.theory.best_dynamic_budget,
        oracle.summed_dynamic,
    ),
}


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("strategy", FORMULAS)
def test_the_bound_is_the_sum_of_the_segments_bounds(strategy: str, shares: list[float]) -> None:
    bound, *_, truth = FORMULAS[strategy]
    rows = grid(ARMS, HORIZONS, BUDGETS)
    want = [truth(*row, list(map(mpf, shares))) for row in rows]
    agree(rows, bound(*columns(rows), form="summed", shares=shares), want)
    if len(set(shares)) == 1:
        agree(rows, bound(*columns(rows), len(shares), form="summed"), want)


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("strategy", FORMULAS)
def test_the_gain_is_its_derivative(strategy: str, shares: list[float]) -> None:
    bound, gain, _, truth = FORMULAS[strategy]
    rows = grid(ARMS, HORIZONS, BUDGETS[1:])
    parts = list(map(mpf, shares))
    slopes = [
        oracle.slope(lambda a, b, c, j: truth(a, b, c, parts), k, t, budget, 1)
        for k, t, budget in rows
    ]
    values = [truth(*row, parts) for row in rows]
    scale = [
        max(abs(slope), oracle.fall(row[0], row[2]) * value)
        for row, slope, value in zip(rows, slopes, values, strict=True)
    ]
    got = gain(*columns(rows), form="summed", shares=shares)
    agree(rows, got, [-slope for slope in slopes], 1e-12, scale)
    elasticity = {"constant": d.theory.constant_elasticity, "dynamic": d.theory.dynamic_elasticity}[
        strategy
    ]
    k, t, budget = columns(rows)
    want = -budget * got / bound(k, t, budget, form="summed", shares=shares)
    np.testing.assert_allclose(elasticity(k, t, budget, form="summed", shares=shares), want, 1e-12)


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("strategy", FORMULAS)
def test_the_best_budget_is_found_by_a_scan_too(strategy: str, shares: list[float]) -> None:
    """A scan in 25 digits, then golden section, then the bounds of both answers."""
    _, _, best_budget, truth = FORMULAS[strategy]
    parts = list(map(mpf, shares))
    for k, t in [(2, 10**4), (5, 10**6), (20, 10**5), (2, 40), (3, 12), (50, 10**9)]:

        def bound(gamma: Any, k: int = k, t: int = t) -> Any:
            return truth(k, t, gamma, parts)

        got = float(best_budget(k, t, form="summed", shares=shares))
        with mp.workdps(25):
            low, high = _valley(bound, got + 2)
            found = _golden_section(low, high, bound)
            at_found, at_got = bound(found), bound(mpf(got))
            assert at_got <= at_found * (1 + mpf(10) ** -12)
            if at_got > at_found * (1 - mpf(10) ** -12) and found < got + mpf("0.5"):
                assert got == pytest.approx(float(found), abs=2e-6)  # what a flat floor can tell


@pytest.mark.parametrize(
    ("k", "t", "shares"),
    [
        (2, 100, [0.9, 0.1]),
        (2, 300, [0.9, 0.1]),
        (2, 10**4, [0.6, 0.3, 0.1]),
        (8, 10**5, [0.6, 0.3, 0.1]),
    ],
)
def test_the_lowest_of_several_valleys_is_found(k: int, t: int, shares: list[float]) -> None:
    """Each segment adds a valley of its own; no budget on a fine grid has a lower bound."""
    best = float(d.theory.best_dynamic_budget(k, t, len(shares), form="summed", shares=shares))
    fine = np.linspace(0, 8, 80_001)
    bounds = np.asarray(
        d.theory.dynamic_regret(k, t, fine, len(shares), form="summed", shares=shares)
    )
    at_best = float(d.theory.dynamic_regret(k, t, best, len(shares), form="summed", shares=shares))
    assert at_best <= bounds.min() * (1 + 1e-12)
    assert best == pytest.approx(fine[bounds.argmin()], abs=2e-4)


def _valley(bound: Any, top: float) -> tuple[Any, Any]:
    points = [mpf(top) * i / 160 for i in range(161)]
    values = [bound(g) for g in points]
    at = min(range(len(values)), key=values.__getitem__)
    return points[max(at - 1, 0)], points[min(at + 1, 160)]


def _golden_section(low: Any, high: Any, value: Any) -> Any:
    ratio = (mp.sqrt(5) - 1) / 2
    for _ in range(45):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if value(left) <= value(right) else (left, high)
    return low


@pytest.mark.parametrize(
    ("k", "t", "literal"), [(2, 10**4, 2.30), (5, 10**6, 4.36), (20, 10**5, 4.42)]
)
def test_against_the_plain_sum_over_visitors(k: int, t: int, literal: float) -> None:
    """The closed form is above the plain sum, and its best budget costs next to nothing more."""
    near = literal + np.arange(-0.2, 0.21, 0.02)
    budgets = np.unique(np.round([*np.arange(0, 6, 0.1), *near], 6))  # each is a sum of t terms
    sums = np.array([oracle.visitor_by_visitor(k, t, float(b)) for b in budgets])
    bounds = np.asarray(d.theory.dynamic_regret(k, t, budgets, form="summed"))
    assert (bounds >= sums).all()
    assert budgets[sums.argmin()] == pytest.approx(literal, abs=0.021)
    best = float(d.theory.best_dynamic_budget(k, t, form="summed"))
    assert best == pytest.approx(literal, abs=0.05)
    assert oracle.visitor_by_visitor(k, t, best) < 1.001 * sums.min()
    # The paper's form is below the sum that it stands for.
    assert (np.asarray(d.theory.dynamic_regret(k, t, budgets)) < sums)[budgets > best].all()


def test_the_elasticity_turns_positive_and_then_ends() -> None:
    best, free = float(d.theory.best_dynamic_budget(2, 10**4, form="summed")), 2.728852
    budgets = np.array([best - 0.1, best + 0.1, free - 1e-3, free + 1e-5, 9.0])
    signs = np.sign(d.theory.dynamic_elasticity(2, 10**4, budgets, form="summed"))
    assert signs.tolist() == [-1, 1, 1, 0, 0]


def test_telling_the_truth_about_segments_has_no_hump() -> None:
    """K=3, T=200,000, J=3: the paper's bound rises from budget 2.5 to 3.6, this one falls."""
    paper = np.asarray(d.theory.dynamic_regret(3, 200_000, [2.5, 3.6], 3))
    assert paper.round().tolist() == [106_058, 148_964]
    budgets = np.linspace(0, 8, 801)
    summed = np.asarray(d.theory.dynamic_regret(3, 200_000, budgets, 3, form="summed"))
    best = float(d.theory.best_dynamic_budget(3, 200_000, 3, form="summed"))
    assert (np.diff(summed[budgets <= best]) < 0).all()
    assert summed[budgets > best].max() < 1.05 * summed.min()


def test_tiny_segments_may_lose_all_their_visitors() -> None:
    for bound in (d.theory.constant_regret, d.theory.dynamic_regret):
        assert bound(2, 10, [0, 1, 5], 1000, form="summed").tolist() == [10, 10, 10]
        assert bound(2, 2, 1, form="summed") == 2
    assert d.theory.nonprivate_regret(2, 10, 1000, form="summed") == 10
    for gain in (d.theory.constant_gain, d.theory.dynamic_gain):
        assert gain(2, 10, [0, 1, 5], 1000, form="summed").tolist() == [0, 0, 0]
    for best in (d.theory.best_constant_budget, d.theory.best_dynamic_budget):
        assert best(2, 10, 1000, form="summed") == 0
        assert best(2, 1, form="summed") == 0
    free = d.theory.nonprivate_regret(2, 10**6, form="summed", shares=[0.5, 0.5])
    assert free == pytest.approx(
        float(d.theory.dynamic_regret(2, 10**6, 30, 2, form="summed")), rel=1e-13
    )


def test_arrays_of_experiments() -> None:
    k, t, j = np.array([2, 5, 20]), np.array([10**4, 10**6, 10**5]), np.array([1, 2, 3])
    best = np.asarray(d.theory.best_dynamic_budget(k, t, j, form="summed"))
    alone = [
        d.theory.best_dynamic_budget(a, b, c, form="summed")
        for a, b, c in zip(k, t, j, strict=True)
    ]
    np.testing.assert_allclose(best, alone, rtol=1e-12)
    table = np.asarray(
        d.theory.dynamic_regret(k, t, np.ones((4, 1)), form="summed", shares=[0.9, 0.1])
    )
    assert table.shape == (4, 3)
    near = np.asarray(d.theory.dynamic_budget_for_regret(k, t, [[0.05], [0.5]], j, form="summed"))
    assert near.shape == (2, 3)
    assert (near[0] > near[1]).all()
    assert (near[0] < best).all()


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"form": "other"}, "form"),
        ({"shares": [0.5, 0.5]}, "shares"),
        ({"form": "summed", "shares": [0.5, 0.4]}, "shares"),
        ({"form": "summed", "shares": [1.5, -0.5]}, "shares"),
        ({"form": "summed", "shares": 1.0}, "shares"),
        ({"form": "summed", "shares": [0.5, 0.5], "n_segments": 3}, "shares"),
    ],
)
def test_wrong_forms_and_shares(options: dict[str, Any], argument: str) -> None:
    for formula in (
        d.theory.constant_regret,
        d.theory.dynamic_regret,
        d.theory.constant_gain,
        d.theory.dynamic_gain,
        d.theory.constant_elasticity,
        d.theory.dynamic_elasticity,
        d.theory.dynamic_regret_terms,
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            formula(2, 1000, 1.0, **options)
        assert caught.value.argument == argument
    for best in (
        d.theory.best_constant_budget,
        d.theory.best_dynamic_budget,
        d.theory.nonprivate_regret,
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            best(2, 1000, **options)
        assert caught.value.argument == argument
