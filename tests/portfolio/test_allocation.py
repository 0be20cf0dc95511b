"""Optimality: against brute force, by the conditions an optimum meets, and by its certificate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.portfolio.brute_force import grid_optimum, loss_at
from tests.portfolio.instances import random_instance

from deniable.errors import InvalidArgumentError, InvalidTableError
from deniable.portfolio import solver
from deniable.portfolio.allocation import Allocation, allocate
from deniable.portfolio.problem import Portfolio
from deniable.portfolio.rules import equal_split, zero_budgets
from deniable.portfolio.units import Cells, Units
from deniable.theory.best_budget import best_dynamic_budget
from deniable.theory.regret import Form

BRUTE_FORCE_SEEDS = [*range(330), 3173]
STEPS = 700
GAP = 1e-4


def solve(seed: int, form: Form = "paper") -> tuple[list[dict[str, Any]], float, str, Allocation]:
    rows, firm_budget, regime = random_instance(seed)
    if form == "summed" and regime == "constant":
        regime = "joint"
    found = allocate(Portfolio.of(rows, form=form), firm_budget, regime=regime)
    return rows, firm_budget, regime, found


def verdict(seed: int, form: Form = "paper") -> list[str]:
    """What brute force finds wrong with the solver's answer to an instance."""
    rows, firm_budget, regime, found = solve(seed, form)
    grid = grid_optimum(rows, firm_budget, regime, STEPS, form)
    wrong = []
    possible = found.total_regret + found.total_saved - grid
    if found.total_regret > grid * (1 + 1e-9) + GAP * max(possible, 0.0):
        wrong.append("the grid has a better allocation")
    if found.lower_bound > grid * (1 + 1e-12):
        wrong.append("the lower bound is above a feasible value")
    if not found.certified or found.relative_gap > GAP:
        wrong.append("the gap is open")
    if found.spent_nano > found.firm_nano or found.firm_nano > firm_budget * 1e9 + 0.5:
        wrong.append("overspent")
    told = sum(
        float(loss_at({**row, "strategy": s}, np.array([b]), regime, form)[0])
        for row, s, b in zip(rows, found.strategies, found.budgets, strict=True)
    )
    if abs(told - found.total_regret) > 1e-9 * told:
        wrong.append("the total is not the sum of the bounds")
    return wrong


@pytest.mark.parametrize("block", range(11))
def test_no_division_on_a_fine_grid_is_better(block: int) -> None:
    seeds = [seed for seed in BRUTE_FORCE_SEEDS if seed % 11 == block]
    assert {seed: wrong for seed in seeds if (wrong := verdict(seed))} == {}


@pytest.mark.parametrize("block", range(4))
def test_summed_bounds_and_the_joint_strategy_too(block: int) -> None:
    seeds = [seed for seed in range(100) if seed % 4 == block]
    assert {seed: wrong for seed in seeds if (wrong := verdict(seed, "summed"))} == {}
    chosen = {name for seed in seeds[:9] for name in solve(seed, "summed")[3].strategies}
    assert {"joint", "dynamic"} <= chosen


def test_brute_force_sees_a_solver_that_takes_every_bound_for_convex(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solver, "_envelope", lambda cells: cells.slope)
    monkeypatch.setattr(solver, "_WIDTHS", ())
    complaints = [wrong for seed in range(24) for wrong in verdict(seed)]
    assert complaints, "the planted fault was not seen"


def test_brute_force_sees_a_bound_that_holds_at_tabulated_budgets_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: between its ends a cell is taken to be no better than at them."""
    monkeypatch.setattr("deniable.portfolio.units.CELLS", 3)
    monkeypatch.setattr(solver, "_ROUNDS", 1)
    monkeypatch.setattr(Cells, "lowest", Cells.at_ends)
    complaints = [wrong for seed in range(24) for wrong in verdict(seed)]
    assert "the lower bound is above a feasible value" in complaints


@pytest.mark.parametrize("firm_budget", [5.0, 6.0, 9.0])
def test_the_programme_s_bound_allows_what_is_reached(firm_budget: float) -> None:
    """Nearly equal experiments, of which some jump: the price alone proves little."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(20, 51, 40), 1_000_000 + rng.integers(0, 900_000, 40)
    rows = [
        {"id": f"e{i}", "arms": int(k), "visitors": int(t)}
        for i, (k, t) in enumerate(zip(*sizes, strict=True))
    ]
    found = allocate(Portfolio.of(rows, form="paper"), firm_budget)
    grid = grid_optimum(rows, firm_budget, "flexible", 500)
    assert found.lower_bound <= grid
    assert found.total_saved >= (found.total_regret + found.total_saved - grid) * (1 - 1e-4)
    assert found.relative_gap <= 2e-3
    units = Units(found.portfolio, found.curves)
    nothing = solver.Division(units.low, 0.0, 0.0, -np.inf)
    for price in (0.3 * found.shadow_value, found.shadow_value, 2 * found.shadow_value):
        cells = solver._candidates(units, units.table, price, nothing, firm_budget, 0.04)
        assert cells is not None
        lower = solver._programme(cells, units, firm_budget, nothing, 0.04, price)[1]
        assert lower <= -found.total_saved


def test_the_paper_s_two_experiments() -> None:
    two = Portfolio.from_sizes([2, 2], [1_000, 10_000], form="paper")
    large = allocate(two, 4, regime="dynamic")
    assert large.budgets == pytest.approx([1.2711, 2.7289], abs=5e-5)
    assert large.budgets[1] == pytest.approx(float(best_dynamic_budget(2, 10_000)), abs=1e-9)
    assert large.spent_nano == 4_000_000_000
    small = allocate(two, 1.5, regime="dynamic")
    assert small.budgets.tolist() == [0.0, 1.5]
    assert allocate(two, 4).budgets_nano.tolist() == large.budgets_nano.tolist()


def mixed(size: int, seed: int, segments: int = 3) -> Portfolio:
    rng = np.random.default_rng(seed)
    return Portfolio.from_sizes(
        rng.integers(2, 21, size),
        np.floor(10 ** rng.uniform(3, 9, size)),
        rng.integers(1, segments + 1, size),
        form="paper",
    )


@pytest.mark.parametrize("regime", ["flexible", "constant", "dynamic"])
@pytest.mark.parametrize("firm_budget", [1.0, 30.0, 150.0])
def test_interior_budgets_have_the_shadow_value_as_gain(regime: str, firm_budget: float) -> None:
    portfolio = mixed(60, seed=4)
    found = allocate(portfolio, firm_budget, regime=regime)
    curves = found.curves
    ends = np.zeros((portfolio.size, 2))
    for row, strategy in enumerate(found.strategies):
        own = (curves.experiment == row) & (curves.strategy == curves.names.index(strategy))
        ends[row] = curves.low[own][0], curves.high[own][0]
    inside = (found.budgets > ends[:, 0] + 1e-7) & (found.budgets < ends[:, 1] - 1e-7)
    assert inside.sum() > 0
    assert found.marginal_gain[inside] == pytest.approx(found.shadow_value, rel=2e-3)
    assert found.spent_nano == found.firm_nano  # a positive price leaves nothing over


@pytest.mark.parametrize("seed", range(12))
def test_the_shadow_value_is_the_slope_of_the_optimal_value(seed: int) -> None:
    portfolio = mixed(12, seed=seed)
    firm_budget, step = 2.0 + 2.5 * seed, 0.03
    found = allocate(portfolio, firm_budget)
    below = allocate(portfolio, firm_budget - step)
    above = allocate(portfolio, firm_budget + step)
    slopes = sorted(
        [
            (below.total_regret - found.total_regret) / step,
            (found.total_regret - above.total_regret) / step,
        ]
    )
    missed = found.total_regret - found.lower_bound  # of what each of the three may be off
    tolerance = 1e-2 * found.shadow_value + missed / step + 1e-6
    assert slopes[0] - tolerance <= found.shadow_value <= slopes[1] + tolerance


@pytest.mark.parametrize("seed", range(4))
def test_more_budget_never_loses_and_simple_rules_never_win(seed: int) -> None:
    portfolio = mixed(25, seed=seed)
    regrets = []
    for firm_budget in (0, 0.01, 0.5, 3, 10, 30, 80, 200):
        found = allocate(portfolio, firm_budget)
        regrets.append(found.total_regret)
        for rule in (equal_split, zero_budgets):
            assert found.total_regret <= rule(portfolio, firm_budget).total_regret * (1 + 1e-9)
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(regrets))


def test_the_order_of_experiments_does_not_matter() -> None:
    portfolio = mixed(40, seed=9)
    order = np.random.default_rng(1).permutation(40)
    turned = Portfolio.from_sizes(
        portfolio.arms[order], portfolio.visitors[order], portfolio.segments[order], form="paper"
    )
    one, other = allocate(portfolio, 25), allocate(turned, 25)
    assert other.total_regret == pytest.approx(one.total_regret, rel=1e-8)
    assert other.budgets == pytest.approx(one.budgets[order], abs=1e-3)


@pytest.mark.parametrize("firm_budget", [5.0, 10.0, 33.0])
def test_identical_experiments_are_no_trap(firm_budget: float) -> None:
    """Twenty-four twins: m of them share the budget, and the best m is found by trying all."""
    count = 24
    found = allocate(
        Portfolio.from_sizes([6] * count, [100_000] * count, form="paper"),
        firm_budget,
    )
    row = {"arms": 6, "visitors": 100_000}
    tries = [
        m * loss_at(row, np.array([firm_budget / m]), "flexible")[0]
        + (count - m) * loss_at(row, np.array([0.0]), "flexible")[0]
        for m in range(1, count + 1)
    ]
    assert found.relative_gap <= 1e-3
    assert found.total_regret <= min(tries) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_budgets_are_whole_nano_nats_within_limits_and_the_firm_budget(seed: int) -> None:
    _, _, _, found = solve(1000 + seed)
    portfolio = found.portfolio
    assert found.budgets_nano.dtype == np.int64
    assert (found.budgets_nano >= portfolio.min_nano).all()
    assert (found.budgets_nano <= portfolio.max_nano).all()
    assert found.spent_nano <= found.firm_nano


def test_a_group_costs_its_largest_budget() -> None:
    rows = [{"id": name, "arms": 3, "visitors": 50_000, "layer": "home"} for name in "abc"]
    found = allocate(Portfolio.of(rows, form="paper"), 2)
    assert found.budgets.tolist() == [2.0, 2.0, 2.0]
    assert found.spent_nano == 2_000_000_000
    alone = allocate(Portfolio.from_sizes([3] * 3, [50_000] * 3, form="paper"), 2)
    assert found.total_regret < alone.total_regret


def test_commitments_stay_and_a_reserve_is_kept() -> None:
    rows = [
        {"id": "running", "arms": 4, "visitors": 10_000, "committed": 0.7, "strategy": "constant"},
        {"id": "new", "arms": 4, "visitors": 90_000},
    ]
    found = allocate(Portfolio.of(rows, form="paper"), 3, reserve=0.5)
    assert found.budgets_nano[0] == 700_000_000
    assert found.strategies[0] == "constant"
    assert found.spent_nano == 2_500_000_000


def test_decimals_mean_what_was_written() -> None:
    rows = [
        {"id": "a", "arms": 2, "visitors": 10_000, "committed": 0.1},
        {"id": "b", "arms": 2, "visitors": 10_000, "committed": 0.2},
    ]
    assert allocate(Portfolio.of(rows, form="paper"), 0.3).spent_nano == 300_000_000


def test_commitments_above_the_firm_budget_are_listed() -> None:
    rows = [
        {"id": "a", "arms": 2, "visitors": 10_000, "committed": 1},
        {"id": "b", "arms": 2, "visitors": 10_000},
        {"id": "c", "arms": 2, "visitors": 10_000, "min_budget": 1.5},
    ]
    with pytest.raises(InvalidTableError, match=r"need 2\.5 nats, only 2 are available") as caught:
        allocate(Portfolio.of(rows, form="paper"), 2)
    assert [row for row, _ in caught.value.problems] == [0, 1, 3]


def test_a_gap_that_stays_open_is_told() -> None:
    rng = np.random.default_rng(3)
    portfolio = Portfolio.from_sizes(
        [20] * 400, 1_000_000 + rng.integers(0, 900_000, 400), form="paper"
    )
    found = allocate(portfolio, 11, gap=1e-12)
    assert not found.certified
    assert 1e-12 < found.relative_gap < 1e-4
    assert found.certificate.startswith("NOT certified: up to 0.0")
    assert found.spent_nano <= found.firm_nano
    usual = allocate(portfolio, 11)
    assert usual.certified
    assert usual.lower_bound <= found.total_regret


def test_a_layer_may_use_what_its_largest_minimum_costs_anyway() -> None:
    """The other member is free up to there, and the proof counts from there."""
    rows = [
        {"id": "a", "arms": 2, "visitors": 38_327, "min_budget": 1.2, "layer": "g"},
        {"id": "b", "arms": 3, "visitors": 90_000, "layer": "g"},
    ]
    found = allocate(Portfolio.of(rows, form="paper"), 1.2)
    assert found.budgets.tolist() == [1.2, 1.2]
    assert found.saved[0] == 0
    assert found.saved[1] > 0
    assert found.total_saved == pytest.approx(float(found.saved.sum()))
    assert found.lower_bound <= found.total_regret
    assert found.certified


def test_budget_that_would_not_help_is_left_unspent() -> None:
    """In the paper's form, dynamic bounds for several segments rise before they fall."""
    few = {"id": "few", "arms": 3, "visitors": 411, "segments": 12, "max_budget": 0.657}
    rows = [
        {"id": "many", "arms": 2, "visitors": 38_327, "layer": "g", "min_budget": 1.2},
        {**few, "layer": "g"},
    ]
    found = allocate(Portfolio.of(rows, form="paper"), 3, regime="dynamic")
    losses = loss_at(few, np.linspace(0, 0.657, 4001), "dynamic")
    assert losses[-1] > losses.min()
    assert found.regret[1] <= losses.min() * (1 + 1e-9)
    assert found.budgets[1] < 0.657


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"firm_budget": -1}, "firm_budget"),
        ({"firm_budget": float("nan")}, "firm_budget"),
        ({"firm_budget": 1, "regime": "both"}, "regime"),
        ({"firm_budget": 1, "reserve": -0.1}, "reserve"),
        ({"firm_budget": 1, "gap": 0}, "gap"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        allocate(Portfolio.from_sizes([2], [1000], form="paper"), **options)
    assert caught.value.argument == argument


def test_tiny_and_huge_experiments() -> None:
    portfolio = Portfolio.from_sizes(
        [2, 2, 50, 2, 1000, 3], [1, 2, 3, 10**12, 10**9, 872], form="paper"
    )
    for firm_budget in (0.0, 1e-9, 0.2, 5.0, 1e4):
        found = allocate(portfolio, firm_budget)
        assert found.certified
        assert np.isfinite(found.regret).all()
        assert found.budgets_nano[0] == 0  # one visitor teaches nothing
