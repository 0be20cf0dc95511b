"""The planner against the formulas, and its words against its numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from tests import oracle
from tests.oracle import mpf

import deniable
from deniable.errors import InvalidArgumentError
from deniable.planning.arm_plan import arm_plan_sections
from deniable.planning.report import chart_summaries, plan_sections


def test_numbers_are_the_formulas() -> None:
    plan = deniable.plan(n_arms=2, horizon=10_000, n_segments=1, prior=0.2, budget=1)
    assert plan.highest_belief == pytest.approx(0.405, abs=5e-4)
    constant, dynamic = plan.strategies["constant"], plan.strategies["dynamic"]
    assert constant.regret == pytest.approx(8689.255, abs=5e-4)
    assert dynamic.regret == pytest.approx(float(oracle.summed_dynamic(2, 10**4, 1, [mpf(1)])))
    assert constant.elasticity == pytest.approx(-0.313281, abs=5e-7)
    assert constant.best_budget == pytest.approx(1.968181, abs=5e-7)
    assert dynamic.best_budget == pytest.approx(2.268161, abs=5e-7)
    assert dynamic.binds_at == 51
    assert dynamic.exploration_first == 1
    for one in plan.strategies.values():
        parts = one.learning + one.exploration + one.estimation
        assert parts == pytest.approx(one.regret, rel=1e-14)
        if one.strategy != "joint":  # its bound falls forever
            assert one.best_regret <= one.regret


def test_segments_add_up() -> None:
    """The bound of a plan is the sum of its segments' for strategies that learn them apart."""
    whole = deniable.plan(n_arms=3, horizon=200_000, shares=[0.75, 0.25], budget=2)
    parts = [deniable.plan(n_arms=3, horizon=n, n_segments=1, budget=2) for n in (150_000, 50_000)]
    for name, one in whole.strategies.items():
        if name == "joint":
            continue
        assert one.regret == pytest.approx(sum(p.strategies[name].regret for p in parts))
        assert one.exploration_last == parts[0].strategies[name].exploration_last
    equal = deniable.plan(n_arms=3, horizon=200_000, shares=[0.5, 0.5], budget=2)
    assert equal.n_segments == 2
    unsaid = deniable.plan(n_arms=3, horizon=200_000, n_segments=2, budget=2)
    for name, one in equal.strategies.items():
        assert one.regret == pytest.approx(unsaid.strategies[name].regret)


def test_a_bound_above_the_visitors_says_nothing() -> None:
    plan = deniable.plan(n_arms=5, horizon=22_000, n_segments=5)
    assert not plan.recommendation.informative
    assert "say nothing" in plan.recommendation.reason
    told = [cell for s in plan_sections(plan) for row in s.table.rows for cell in row]
    text = " ".join(s.text for s in plan_sections(plan)) + " ".join(told)
    assert "says nothing" in told
    assert "clicks of" not in text
    printed = [float(cell.replace(",", "")) for cell in told if cell.replace(",", "").isdigit()]
    assert max(printed) < 22_000
    summaries = " ".join(chart_summaries(plan).values())
    assert "say nothing" in summaries
    assert "at most 1" not in summaries
    assert "is says" not in summaries


@pytest.mark.parametrize(
    ("budget", "constant", "dynamic"),
    [
        (1.0, "too random", "too random"),
        (1.968181, "near the best", "near the best"),
        (2.5, "too greedy", "near the best"),
        (3.0, "too greedy", "cap never binds"),
    ],
)
def test_reading_follows_the_sign_of_the_elasticity(
    budget: float, constant: str, dynamic: str
) -> None:
    plan = deniable.plan(n_arms=2, horizon=10_000, n_segments=1, budget=budget)
    found = {name: one.reading for name, one in plan.strategies.items()}
    assert found == {"constant": constant, "dynamic": dynamic, "joint": "cap never binds"}
    for one in plan.strategies.values():
        assert {"too random": -1, "too greedy": 1}.get(one.reading, 0) in (
            0,
            np.sign(one.elasticity),
        )


@pytest.mark.parametrize("n_arms", [2, 5, 20])
@pytest.mark.parametrize("horizon", [10_000, 1_000_000, 10**12])
@pytest.mark.parametrize("n_segments", [2, 4])
def test_the_recommended_strategy_has_the_smallest_bound_at_its_budget(
    n_arms: int, horizon: int, n_segments: int
) -> None:
    advice = deniable.plan(n_arms=n_arms, horizon=horizon, n_segments=n_segments).recommendation
    shares = [mpf(1) / n_segments] * n_segments
    others, size = min(n_arms, n_segments) - 1, n_arms * n_segments
    price = horizon * others / (others + math.exp(advice.budget))
    bounds = {
        "constant": float(oracle.summed_constant(n_arms, horizon, advice.budget, shares)),
        "dynamic": float(oracle.summed_dynamic(n_arms, horizon, advice.budget, shares)),
        "joint": price
        + 4 * math.sqrt(3 * size * horizon * math.log(horizon))
        + 2 * math.sqrt(1.5 * (n_segments - 1) * horizon)
        + 3.5 * size,
    }
    assert advice.regret == pytest.approx(bounds[advice.strategy], rel=1e-9)
    assert bounds[advice.strategy] == min(bounds.values()) or min(bounds.values()) >= horizon
    assert advice.informative == (min(bounds.values()) < horizon)
    assert advice.budget == float(f"{advice.budget:.3g}")
    if advice.strategy == "joint" and advice.budget:
        # The price of privacy is what learning costs: half of the bound, but for the rounding up.
        assert 0.97 * advice.regret / 2 < price <= advice.regret / 2 * (1 + 1e-9)


def test_one_segment_needs_no_budget() -> None:
    plan = deniable.plan(n_arms=2, horizon=10_000, n_segments=1)
    assert (plan.recommendation.strategy, plan.recommendation.budget) == ("joint", 0.0)
    assert "no budget is needed" in plan.recommendation.reason
    assert "nothing about segments can leak" in " ".join(s.text for s in plan_sections(plan))
    assert plan.strategies["joint"].drawn_by_lot == 1


def test_a_strategy_that_cannot_be_served_is_not_recommended() -> None:
    for n_arms, n_segments in ((201, 2), (2, 201)):
        plan = deniable.plan(horizon=10**9, n_arms=n_arms, n_segments=n_segments)
        assert not plan.strategies["joint"].servable
        assert plan.recommendation.strategy != "joint"
        assert "not served with so many" in " ".join(s.text for s in plan_sections(plan))
    assert deniable.plan(horizon=10**9, n_arms=200, n_segments=200).strategies["joint"].servable


def test_largest_belief_limits_the_recommendation() -> None:
    advice = deniable.plan(n_arms=2, horizon=10**6, n_segments=2, max_belief=0.4).recommendation
    assert 0.3975 < advice.belief <= 0.4  # rounded down, never above what is allowed
    assert "more than 40%" in advice.reason
    loose = deniable.plan(n_arms=2, horizon=10**6, n_segments=2, max_belief=0.999).recommendation
    assert loose == deniable.plan(n_arms=2, horizon=10**6, n_segments=2).recommendation


@pytest.mark.parametrize("beliefs", [{"max_belief": 1}, {"prior": 0, "max_belief": 0.5}])
@pytest.mark.parametrize("known", [{}, {"base_rate": 0.05}])
def test_a_belief_that_no_budget_reaches_is_no_limit(
    beliefs: dict[str, Any], known: dict[str, Any]
) -> None:
    size: dict[str, Any] = {"n_arms": 2, "horizon": 10**6, "n_segments": 2, **known}
    limited = deniable.plan(**size, **beliefs)
    assert limited.recommendation.budget == deniable.plan(**size).recommendation.budget


def test_too_few_visitors_are_told_so() -> None:
    plan = deniable.plan(n_arms=50, horizon=20, n_segments=2)
    assert plan.recommendation.budget == 0
    assert "too few" in plan.recommendation.reason


@pytest.mark.parametrize(
    ("n_arms", "horizon", "budget"),
    [(2, 1, 0), (10_000, 10**12, 700), (2, 10**12, 1e-9), (2, 2, 700)],
)
def test_extremes_plan_without_a_warning(n_arms: int, horizon: int, budget: float) -> None:
    plan = deniable.plan(n_arms=n_arms, horizon=horizon, n_segments=1, budget=budget)
    text = json.dumps(plan.to_dict())
    assert "NaN" not in text


def test_arm_plan_numbers() -> None:
    plan = deniable.plan_arms(arm_budgets=[0.5, 1, 2], horizon=10_000, n_segments=1)
    assert plan.exploration == pytest.approx(0.695, abs=5e-4)
    assert [round(line.weight, 3) for line in plan.arms] == [0.676, 0.255, 0.069]
    assert [round(line.shown_if_greedy, 3) for line in plan.arms] == [0.775, 0.482, 0.353]
    assert [round(line.shown_otherwise, 3) for line in plan.arms] == [0.470, 0.177, 0.048]
    assert plan.per_round_excess <= plan.per_round_excess_linear
    assert plan.regret > plan.symmetric_regret
    equal = deniable.plan_arms(arm_budgets=[1, 1], horizon=10_000, n_segments=1)
    assert equal.regret == pytest.approx(equal.symmetric_regret, rel=1e-13)
    assert equal.gap == 0


def test_words_carry_the_numbers() -> None:
    plan = deniable.plan(n_arms=2, horizon=100_000, n_segments=1, budget=1)
    words = " ".join(section.text + section.title for section in plan_sections(plan))
    assert "0.084 to 0.405" in words
    assert "Constant: the whole budget" in words
    assert f"budget {plan.recommendation.budget:.4g}" in words
    rows = {row[0].strip(): row[1:] for s in plan_sections(plan) for row in s.table.rows}
    assert rows["budget binds at a segment's visitor"] == ("1", "51", "-")
    table = arm_plan_sections(deniable.plan_arms(arm_budgets=[0.5, 1, 2], horizon=100))[
        1
    ].table.rows
    assert table[0] == ("arm 1", "0.775", "0.470", "0.470")


def test_notebook_html_is_static_and_escaped() -> None:
    html = deniable.plan(n_arms=2, horizon=10_000, n_segments=1)._repr_html_()
    assert html.count("<table") == 2
    assert "<svg" in html
    assert "<script" not in html
    assert "http" not in html.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_arms", 1),
        ("n_arms", 2.5),
        ("n_arms", True),
        ("horizon", 0),
        ("horizon", float("nan")),
        ("n_segments", 0),
        ("prior", 1.5),
        ("prior", -0.1),
        ("budget", -1),
        ("budget", float("inf")),
        ("max_belief", 2),
        ("max_belief", 0.1),  # below the prior of .2
        ("shares", [0.5, 0.4]),
    ],
)
def test_bad_input_names_the_argument(argument: str, value: object) -> None:
    good = {"n_arms": 2, "horizon": 1000, argument: value}
    with pytest.raises(InvalidArgumentError) as caught:
        deniable.plan(**good)  # type: ignore[arg-type]
    assert caught.value.argument == argument
    assert str(value) in str(caught.value) or repr(value) in str(caught.value)


def test_belief_below_the_prior_cannot_be_promised() -> None:
    with pytest.raises(InvalidArgumentError, match=r"max_belief=0\.4: expected the prior"):
        deniable.plan(n_arms=2, horizon=1000, n_segments=1, prior=0.5, max_belief=0.4)


@pytest.mark.parametrize("budgets", [[1], [], [0, 1], [0, 0], [-1, 2], [float("nan"), 1]])
def test_bad_arm_budgets(budgets: list[float]) -> None:
    with pytest.raises(InvalidArgumentError):
        deniable.plan_arms(arm_budgets=budgets, horizon=1000)


def test_the_advice_is_to_move_towards_the_best() -> None:
    for budget, reading, advice in ((1.0, "too random", "more"), (3.0, "too greedy", "less")):
        constant = deniable.plan(n_arms=2, horizon=10_000, n_segments=1, budget=budget).strategies[
            "constant"
        ]
        assert constant.reading == reading
        assert (budget < constant.best_budget) == (advice == "more")
        change = abs(constant.elasticity)
        words = f"{reading.capitalize()}: 1% {advice} budget would take {change:.2f}% of it off"
        assert constant.reading_words == f"{words} the bound."


def test_the_last_visitor_is_of_the_largest_segment() -> None:
    plan = deniable.plan(n_arms=2, horizon=1_000, shares=[0.1, 0.9], budget=10)
    found = plan.strategies["dynamic"].exploration_last
    assert found == pytest.approx(float(deniable.privacy.dynamic_exploration(2, 900)), rel=1e-12)
    assert plan.strategies["dynamic"].binds_at is None


def test_every_strategy_says_whether_its_bound_says_anything() -> None:
    for n_arms, horizon in ((2, 10_000), (20, 10_000), (20, 10**9)):
        plan = deniable.plan(n_arms=n_arms, horizon=horizon, n_segments=1, budget=2)
        told = {name: one.informative for name, one in plan.strategies.items()}
        assert told == {name: one.regret < horizon for name, one in plan.strategies.items()}
    small = deniable.plan(n_arms=20, horizon=10_000, n_segments=1, budget=2).strategies
    assert not small["constant"].informative
