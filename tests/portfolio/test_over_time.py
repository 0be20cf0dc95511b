"""Beyond one allocation: other firm budgets, experiments over time, visitors who meet only some."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from deniable.errors import NANO, InvalidArgumentError, InvalidTableError
from deniable.portfolio.allocation import Allocator, allocate
from deniable.portfolio.participation import realized_risk, sampled_risk
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.rolling_budget import RollingBudget
from deniable.portfolio.whatif import budget_for_share, what_if

THREE = Portfolio.from_sizes([2, 5, 9], [1000, 10**5, 10**6], [1, 1, 3], form="paper")


def test_the_what_if_curve_is_the_allocation_at_each_budget() -> None:
    curve = what_if(THREE, [0.5, 2, 8])
    for i, firm_budget in enumerate((0.5, 2, 8)):
        found = allocate(THREE, firm_budget)
        assert curve.total_regret[i] == pytest.approx(found.total_regret, rel=1e-6)
        assert curve.shadow_value[i] == pytest.approx(found.shadow_value, rel=1e-6)
    assert all(curve.certified)


def test_the_default_curve_spans_all_there_is_to_gain() -> None:
    curve = what_if(THREE, n_points=9)
    assert curve.firm_budgets[0] == 0
    assert curve.firm_budgets[-1] >= curve.unlimited_cost
    assert (np.diff(curve.total_regret) <= 1e-6 * curve.total_regret[0]).all()
    assert curve.share_of_gain[[0, -1]].tolist() == [0.0, 1.0]
    assert curve.shadow_value[-1] == 0
    more = allocate(THREE, 2 * curve.unlimited_cost)
    assert more.total_regret == pytest.approx(curve.total_regret[-1], rel=1e-9)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_the_least_budget_for_a_share_is_enough_and_no_more(share: float) -> None:
    needed = budget_for_share(THREE, share)
    allocator = Allocator(THREE)
    worst, best = (allocator.allocate(b).total_regret for b in (0, 100))
    target = worst - share * (worst - best)
    assert allocator.allocate(needed).total_regret <= target * (1 + 1e-9)
    assert allocator.allocate(needed - 1e-3).total_regret > target


def test_all_or_nothing_of_the_gain() -> None:
    assert budget_for_share(THREE, 0) == 0
    whole = budget_for_share(THREE, 1)
    assert whole == pytest.approx(what_if(THREE, [1]).unlimited_cost, abs=1e-4)


def row(name: str, visitors: int = 10_000, **more: object) -> dict[str, object]:
    return {"id": name, "arms": 3, "visitors": visitors, **more}


def test_running_experiments_keep_their_budget_and_the_rest_is_allocated() -> None:
    rolling = RollingBudget(firm_budget=5, reserve=1.5, form="paper")
    first = rolling.start([row("a"), row("b", 40_000)])
    assert first.spent_nano == 3_500_000_000
    before = dict(rolling.committed)
    second = rolling.start([row("c", 90_000)])
    assert {name: rolling.committed[name] for name in "ab"} == before
    assert second.budgets_nano[2] == 0  # only the reserve was left, and it is kept
    third = rolling.start([row("d", 90_000)], reserve=0)
    assert third.budgets_nano[3] == 1_500_000_000
    assert rolling.spent == 5.0


def test_an_ended_experiment_stays_spent_unless_released() -> None:
    for release, left in ((False, 0.0), (True, 2.0)):
        rolling = RollingBudget(firm_budget=2, release_ended=release, form="paper")
        rolling.start([row("a", 10**6)])
        rolling.end(["a"])
        assert rolling.start([row("b", 10**6)]).budgets[-1] == left
    with pytest.raises(InvalidArgumentError, match="a running experiment"):
        rolling.end(["a"])


def test_rolling_commitments_survive_rounding() -> None:
    """Budgets like 1.2711484 are held to the nano-nat through decimals and back."""
    rolling = RollingBudget(firm_budget=4.000000001, form="paper")
    first = rolling.start([row("a", 1234), row("b", 77_777), row("c", 5_000)])
    again = rolling.start([row("d", 50)])
    assert again.budgets_nano[:3].tolist() == first.budgets_nano.tolist()
    assert again.spent_nano <= 4_000_000_001


def test_a_minimum_that_does_not_fit_any_more_is_an_error() -> None:
    rolling = RollingBudget(firm_budget=1, form="paper")
    rolling.start([row("a", 10**6)])
    with pytest.raises(InvalidTableError, match="only 1 are available"):
        rolling.start([row("b", min_budget=0.5)])
    assert list(rolling.committed) == ["a"]


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
    rows = [row("a", group="g"), row("b", group="g"), row("c")]
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
