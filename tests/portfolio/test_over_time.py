"""Beyond one allocation: other firm budgets, experiments over time, visitors who meet only some."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from deniable.errors import NANO, InvalidArgumentError, InvalidTableError
from deniable.portfolio.allocation import allocate
from deniable.portfolio.participation import realized_risk, sampled_risk
from deniable.portfolio.problem import Portfolio

THREE = Portfolio.from_sizes([2, 5, 9], [1000, 10**5, 10**6], [1, 1, 3], form="paper")


def test_the_what_if_curve_is_the_allocation_at_each_budget() -> None:
    curve = allocate(THREE, 1).what_if([0.5, 2, 8])
    for i, firm_budget in enumerate((0.5, 2, 8)):
        found = allocate(THREE, firm_budget)
        assert curve.total_regret[i] == pytest.approx(found.total_regret, rel=1e-6)
        assert curve.shadow_value[i] == pytest.approx(found.shadow_value, rel=1e-6)
    assert all(curve.certified)


def test_the_default_curve_spans_all_there_is_to_gain() -> None:
    curve = allocate(THREE, 1).what_if(n_points=9)
    assert curve.firm_budgets[0] == 0
    assert curve.firm_budgets[-1] >= curve.unlimited_cost
    assert (np.diff(curve.total_regret) <= 1e-6 * curve.total_regret[0]).all()
    assert curve.share_of_gain[[0, -1]].tolist() == [0.0, 1.0]
    assert curve.shadow_value[-1] == 0
    more = allocate(THREE, 2 * curve.unlimited_cost)
    assert more.total_regret == pytest.approx(curve.total_regret[-1], rel=1e-9)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_the_least_budget_for_a_share_is_enough_and_no_more(share: float) -> None:
    needed = allocate(THREE, 1).budget_for_share(share)
    worst, best = (allocate(THREE, b).total_regret for b in (0, 100))
    target = worst - share * (worst - best)
    assert allocate(THREE, needed).total_regret <= target * (1 + 1e-9)
    assert allocate(THREE, needed - 1e-3).total_regret > target


def test_all_or_nothing_of_the_gain() -> None:
    assert allocate(THREE, 1).budget_for_share(0) == 0
    whole = allocate(THREE, 1).budget_for_share(1)
    assert whole == pytest.approx(allocate(THREE, 1).what_if([1]).unlimited_cost, abs=1e-4)


def row(name: str, visitors: int = 10_000, **more: object) -> dict[str, object]:
    return {"id": name, "arms": 3, "visitors": visitors, **more}


def test_running_experiments_keep_their_budget_and_the_rest_is_allocated() -> None:
    first = allocate(Portfolio.of([row("a"), row("b", 40_000)], form="paper"), 5, reserve=1.5)
    assert first.spent_nano == 3_500_000_000
    running = [
        row(name, visitors, committed=nano / NANO, strategy=strategy)
        for name, visitors, nano, strategy in zip(
            "ab", (10_000, 40_000), first.budgets_nano, first.strategies, strict=True
        )
    ]
    kept = allocate(Portfolio.of([*running, row("c", 90_000)], form="paper"), 5, reserve=1.5)
    assert kept.budgets_nano.tolist() == [*first.budgets_nano.tolist(), 0]
    rest = allocate(Portfolio.of([*running, row("c", 90_000)], form="paper"), 5)
    assert rest.budgets_nano.tolist() == [*first.budgets_nano.tolist(), 1_500_000_000]


def test_commitments_survive_rounding() -> None:
    """Budgets like 1.2711484 are held to the nano-nat through decimals and back."""
    sizes = {"a": 1234, "b": 77_777, "c": 5_000}
    rows = [row(name, visitors) for name, visitors in sizes.items()]
    first = allocate(Portfolio.of(rows, form="paper"), 4.000000001)
    for held, nano in zip(rows, first.budgets_nano, strict=True):
        held["committed"] = nano / NANO
    again = allocate(Portfolio.of([*rows, row("d", 50)], form="paper"), 4.000000001)
    assert again.budgets_nano[:3].tolist() == first.budgets_nano.tolist()
    assert again.spent_nano <= 4_000_000_001


def test_a_minimum_that_does_not_fit_beside_commitments_is_an_error() -> None:
    portfolio = Portfolio.of([row("a", committed=1), row("b", min_budget=0.5)], form="paper")
    with pytest.raises(InvalidTableError, match="only 1 are available"):
        allocate(portfolio, 1)


def test_realized_risk_against_all_outcomes() -> None:
    portfolio = Portfolio.from_sizes([2] * 5, [1000] * 5, form="paper")
    budgets = np.array([0.5, 1.0, 1.5, 2.0, 0.0])
    chance = np.array([0.1, 0.7, 0.3, 0.5, 0.9])
    risk = realized_risk(portfolio, (budgets * NANO).astype(np.int64), chance)
    outcomes = np.array(list(product([0, 1], repeat=5)))
    weight = np.prod(np.where(outcomes, chance, 1 - chance), axis=1)
    total = outcomes @ budgets
    assert risk.worst_case == 5.0
    assert risk.mean == pytest.approx(float(weight @ total))
    for at in (0.0, 0.5, 1.0, 2.5, 3.5, 4.9):
        exact = float(weight[total <= at + 1e-9].sum())
        index = np.searchsorted(risk.risk, at + 0.01, side="right") - 1
        assert risk.probability[index] == pytest.approx(exact, abs=1e-12)
    for part in (0.2, 0.5, 0.9, 0.999):
        order = np.argsort(total)
        exact = total[order][np.searchsorted(np.cumsum(weight[order]), part - 1e-12)]
        assert exact - 1e-9 <= risk.quantile(part) <= exact + 0.01  # rounded up, by little


def test_a_visitor_meets_one_experiment_of_a_group() -> None:
    rows = [row("a", layer="g"), row("b", layer="g"), row("c")]
    portfolio = Portfolio.of(rows, form="paper")
    risk = realized_risk(portfolio, np.array([1, 3, 1]) * NANO, 1.0)
    assert (risk.worst_case, risk.mean) == (4.0, 3.0)
    assert risk.quantile(0.4) == pytest.approx(2.0, abs=0.01)
    with pytest.raises(InvalidArgumentError, match="group 'g'"):
        sampled_risk(portfolio, np.array([1, 3, 1]) * NANO, [[1, 0, 1], [1, 1, 0]])


def test_sampled_memberships_and_independent_ones_agree() -> None:
    rng = np.random.default_rng(8)
    portfolio = Portfolio.from_sizes([2] * 30, [1000] * 30, form="paper")
    budgets = rng.integers(0, 10**9, 30)
    sample = sampled_risk(portfolio, budgets, rng.random((40_000, 30)) < 0.1)
    exact = realized_risk(portfolio, budgets, 0.1)
    assert sample.mean == pytest.approx(exact.mean, abs=0.03)
    for part in (0.25, 0.5, 0.9, 0.99):
        assert sample.quantile(part) == pytest.approx(exact.quantile(part), abs=0.06)
    assert sample.quantile(1) <= exact.worst_case


@pytest.mark.parametrize("bad", [[[1, 2, 0]], [[1, 0]], [1, 0, 1], []])
def test_bad_memberships(bad: object) -> None:
    with pytest.raises(InvalidArgumentError, match="memberships"):
        sampled_risk(THREE, np.zeros(3, dtype=np.int64), np.array(bad))


def test_nobody_is_exposed_without_budgets() -> None:
    risk = realized_risk(THREE, np.zeros(3, dtype=np.int64), 0.5)
    assert (risk.worst_case, risk.mean, risk.quantile(0.9)) == (0.0, 0.0, 0.0)
