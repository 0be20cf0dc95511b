"""The best private table against HiGHS, against exact rational arithmetic and by its own proof."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tests.rational import exp_bounds
from tests.strategies.lp_oracle import by_highs as oracle
from tests.strategies.lp_oracle import exactly

from deniable import _extras
from deniable.errors import InvalidArgumentError, MissingExtraError
from deniable.strategies import joint_lp
from deniable.strategies.joint_lp import (
    GAP,
    best_table,
    by_highs,
    dual_bound,
    lowest_ratio,
    proved_table,
)

WEBSITE = np.array([[0.324, 0.295], [0.295, 0.324]])
ALIKE = np.array([[0.10, 0.02, 0.02, 0.07], [0.02, 0.10, 0.02, 0.07], [0.02, 0.02, 0.10, 0.07]])
MIXED = np.array(
    [
        [0.10, 0.02, 0.04, 0.06, 0.01],
        [0.08, 0.10, 0.03, 0.07, 0.01],
        [0.01, 0.05, 0.09, 0.055, 0.02],
    ]
)
THIRDS = [1 / 3] * 3


def _draw(rng: np.random.Generator, n_arms: int, n_segments: int) -> tuple[np.ndarray, np.ndarray]:
    rates = rng.uniform(0.02, 0.08, (n_segments, n_arms))
    return rates, rng.dirichlet(np.ones(n_segments))


def test_two_arms_two_segments() -> None:
    best = proved_table(WEBSITE, [0.5, 0.5], 1)
    assert best.table[:, 0] == pytest.approx([0.731059, 0.268941], abs=5e-7)
    assert best.value == pytest.approx(0.316201, abs=5e-7)
    unequal = proved_table(WEBSITE, [0.9, 0.1], 1)
    assert unequal.table.tolist() == [[1, 0], [1, 0]]
    assert unequal.value == pytest.approx(0.3211)
    more = proved_table(WEBSITE, [0.9, 0.1], 3)
    assert more.table[:, 0] == pytest.approx([0.952574, 0.047426], abs=5e-7)
    assert more.value == pytest.approx(0.322625, abs=5e-7)


def test_the_switch_from_one_arm_to_two() -> None:
    switch = np.log(9)
    assert proved_table(WEBSITE, [0.9, 0.1], switch - 1e-6).table[:, 1].max() == 0
    assert proved_table(WEBSITE, [0.9, 0.1], switch + 1e-6).table[:, 1].min() > 0


def test_an_arm_that_everybody_likes_a_little() -> None:
    for budget in (0.5, 1):
        best = proved_table(ALIKE, THIRDS, budget)
        assert best.table[:, 3] == pytest.approx([1, 1, 1])
        assert best.value == pytest.approx(0.07)
    best = proved_table(ALIKE, THIRDS, 2)
    assert best.table[:, 0] == pytest.approx([0.786986, 0.106507, 0.106507], abs=5e-7)
    assert best.value == pytest.approx(0.082959, abs=5e-7)


def test_a_compromise_arm_that_is_nobodys_best() -> None:
    shares = [0.5, 0.3, 0.2]
    low = proved_table(MIXED, shares, 0.5)
    assert low.table[:, 0] == pytest.approx([1, 1, 1])
    assert low.value == pytest.approx(0.076)
    best = proved_table(MIXED, shares, 1)
    assert best.table[:, 0] == pytest.approx([0.731059, 0.731059, 0.268941], abs=5e-7)
    assert best.table[:, 3] == pytest.approx([0.268941, 0.268941, 0.731059], abs=5e-7)
    assert best.value == pytest.approx(0.076394, abs=5e-7)
    assert proved_table(MIXED, shares, 2).value == pytest.approx(0.085113, abs=5e-7)


@pytest.mark.parametrize("budget", [0.01, 0.1, 0.5, 1, 2, 3, 8, 15])
@pytest.mark.parametrize(("n_arms", "n_segments"), [(2, 2), (4, 3), (3, 6), (8, 5), (20, 4)])
def test_against_highs(n_arms: int, n_segments: int, budget: float) -> None:
    rng = np.random.default_rng([n_arms, n_segments, int(100 * budget)])
    for _ in range(4):
        rates, shares = _draw(rng, n_arms, n_segments)
        best = proved_table(rates, shares, budget)
        want = oracle(rates.T * shares, float(np.exp(budget)))
        assert best.value == pytest.approx(want, abs=1e-9)
        assert best.gap <= GAP


@pytest.mark.parametrize("budget", [0.3, 2, 20, 60, 200, 700])
def test_against_rational_arithmetic(budget: float) -> None:
    rng = np.random.default_rng(int(10 * budget))
    ratio = exp_bounds(Fraction(budget))[0]
    for _ in range(3):
        rates, shares = _draw(rng, 3, 3)
        best = proved_table(rates, shares, budget)
        values = [[Fraction(float(v)) for v in row] for row in rates.T * shares]
        assert best.value == pytest.approx(float(exactly(values, ratio)), abs=1e-12)


@pytest.mark.parametrize("budget", [1e-9, 1e-3, 0.1, 0.5, 1, 3, 15, 700])
@pytest.mark.parametrize(("n_arms", "n_segments"), [(50, 20), (5, 20), (20, 20), (200, 10)])
def test_feasible_sparse_and_proved(n_arms: int, n_segments: int, budget: float) -> None:
    rng = np.random.default_rng([n_arms, n_segments])
    rates, shares = _draw(rng, n_arms, n_segments)
    rates[1] = rates[0]  # ties
    best = proved_table(rates, shares, budget)
    assert best.gap <= GAP
    assert best.table.sum(axis=1) == pytest.approx(np.ones(n_segments))
    low, high = best.table.min(axis=0), best.table.max(axis=0)
    assert (low >= 0).all()
    assert (high <= low * np.exp(budget) * (1 + 1e-9)).all()
    assert (high > 0).sum() <= min(n_arms, n_segments)
    assert best.value == pytest.approx((shares[:, None] * rates * best.table).sum())


@pytest.mark.parametrize("budget", [0.0, 0.5, 3.0])
def test_many_segments(budget: float) -> None:
    rng = np.random.default_rng(9)
    rates, shares = _draw(rng, 60, 60)
    best = proved_table(rates, shares, budget)
    assert best.gap <= GAP
    low, high = best.table.min(axis=0), best.table.max(axis=0)
    assert (high <= low * np.exp(budget) * (1 + 1e-6) + 1e-12).all()


def _hard(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """More segments than the simplex method has pivots for, with very unequal rates and shares."""
    rng = np.random.default_rng(seed)
    rates = np.clip(rng.lognormal(-5, 2, (34, 50)).T, 0, 1)
    shares = rng.dirichlet(np.full(50, 0.3))
    return rates, shares / shares.sum()


@pytest.mark.parametrize("seed", [24, 27, 51])
def test_highs_proves_what_the_simplex_method_leaves_open(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, shares = _hard(seed)
    best = proved_table(rates, shares, 1.0)
    assert best.gap <= GAP
    low, high = best.table.min(axis=0), best.table.max(axis=0)
    assert (high <= low * np.exp(1) * (1 + 1e-9)).all()
    assert best.value == pytest.approx((shares[:, None] * rates * best.table).sum())
    # Without SciPy the table is still served, and its gap says what is not proved.
    monkeypatch.setattr(_extras, "find_spec", lambda module: None if module == "scipy" else "")
    unproved = proved_table(rates, shares, 1.0)
    assert unproved.gap > GAP
    assert best.value - 1e-12 <= unproved.value + unproved.gap
    with pytest.raises(MissingExtraError):
        best_table(rates, 1.0, shares)


def test_a_method_that_lies_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap comes from the prices' own check, so a wrong answer is not kept."""
    rates, shares = _hard(24)

    def wrong(values: np.ndarray, weakest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(values.shape, 1 / len(values)), np.zeros(values.shape[1])

    monkeypatch.setattr(joint_lp, "_OTHER_METHODS", ())
    simplex = proved_table(rates, shares, 1.0)
    monkeypatch.setattr(joint_lp, "_OTHER_METHODS", (wrong,))
    best = proved_table(rates, shares, 1.0)
    assert best.gap == simplex.gap > GAP
    assert (best.table == simplex.table).all()


@pytest.mark.parametrize("budget", [0.1, 1, 3, 8])
def test_highs_agrees_with_the_simplex_method(budget: float) -> None:
    rng = np.random.default_rng(int(100 * budget))
    for n_arms, n_segments in [(2, 2), (8, 5), (5, 12)]:
        rates, shares = _draw(rng, n_arms, n_segments)
        values, weakest = np.ascontiguousarray(rates.T * shares), lowest_ratio(budget, n_arms)
        found = by_highs(values, weakest)
        assert found is not None
        table, prices = found
        value = float((values * table).sum())
        assert value == pytest.approx(proved_table(rates, shares, budget).value, abs=1e-9)
        assert -1e-12 < dual_bound(values, weakest, prices) - value < GAP


def test_two_segments_in_closed_form() -> None:
    rng = np.random.default_rng(5)
    for budget in (0.2, 1.0, 4.0):
        power = np.exp(budget)
        for _ in range(20):
            rates, shares = _draw(rng, 6, 2)
            v = rates.T * shares
            want = (power * v[:, 0] + v[:, 1]).max() + (v[:, 0] + power * v[:, 1]).max()
            assert proved_table(rates, shares, budget).value == pytest.approx(want / (1 + power))


def test_the_gap_is_a_proof() -> None:
    """Any prices give a bound above the value of any feasible table; bad prices, a loose one."""
    rng = np.random.default_rng(1)
    rates, shares = _draw(rng, 8, 5)
    values, weakest = np.ascontiguousarray(rates.T * shares), lowest_ratio(1.0, 8)
    best = proved_table(rates, shares, 1.0)
    bounds = [dual_bound(values, weakest, rng.normal(0.01, 0.01, 5)) for _ in range(200)]
    assert min(bounds) > best.value
    assert dual_bound(values, weakest, np.zeros(5)) > best.value + 0.01


def test_one_segment_leaks_nothing() -> None:
    best = proved_table([[0.1, 0.3, 0.2]], [1.0], 0)
    assert best.table.ravel().tolist() == [0, 1, 0]
    assert best.value == 0.3


def test_budget_zero_is_one_arm_for_everybody_not_uniform() -> None:
    best = proved_table(MIXED, [0.5, 0.3, 0.2], 0)
    assert best.table[:, 0].tolist() == [1, 1, 1]
    assert best.gap == 0


@pytest.mark.parametrize("budget", [1e-10, 1e-9, 1e-8, 1e-7, 1e-6])
def test_budgets_near_zero(budget: float) -> None:
    """The gain over one arm for everybody is at most e^budget - 1; the gap says what is not proved."""
    rng = np.random.default_rng(10)
    for n_arms, n_segments in [(5, 3), (50, 20), (60, 60)]:
        rates, shares = _draw(rng, n_arms, n_segments)
        best = proved_table(rates, shares, budget)
        assert best.value >= (shares @ rates).max() - 1e-9
        assert best.gap <= max(GAP, budget)


def test_a_budget_for_each_arm() -> None:
    """A row for each arm's own ratio, by HiGHS's plain form through the equal-budget oracle."""
    equal = proved_table(MIXED, THIRDS, 1.5)
    assert proved_table(MIXED, THIRDS, [1.5] * 5).value == pytest.approx(equal.value)
    best = proved_table(MIXED, THIRDS, [0.5, 1, 1.5, 1, 2])
    low, high = best.table.min(axis=0), best.table.max(axis=0)
    assert (high <= low * np.exp([0.5, 1, 1.5, 1, 2]) * (1 + 1e-9)).all()
    assert best.gap <= GAP
    assert (
        proved_table(MIXED, THIRDS, 0.5).value < best.value < proved_table(MIXED, THIRDS, 2).value
    )


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("rates", {"rates": np.full((201, 2), 0.1)}),
        ("rates", {"rates": [0.1, 0.2]}),
        ("rates", {"rates": [[1.5, 0.1], [0.1, 0.1]]}),
        ("shares", {"shares": [0.5, 0.6]}),
        ("shares", {"shares": [1.0]}),
        ("budget", {"budget": -1}),
        ("budget", {"budget": float("nan")}),
        ("budget", {"budget": [1, 2, 3]}),
        ("budget", {"budget": [0, 2]}),
    ],
)
def test_refusals(argument: str, given: dict[str, object]) -> None:
    usual: dict[str, object] = {"rates": WEBSITE, "shares": [0.5, 0.5], "budget": 1}
    with pytest.raises(InvalidArgumentError) as caught:
        proved_table(**{**usual, **given})  # type: ignore[arg-type]
    assert caught.value.argument == argument
