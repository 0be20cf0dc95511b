"""The planner against the formulas, and its words against its numbers."""

from __future__ import annotations

import json

import pytest

import deniable
from deniable.errors import InvalidArgumentError
from deniable.planning.report import arm_plan_sections, plan_sections


def test_numbers_are_the_formulas() -> None:
    plan = deniable.plan(n_arms=2, horizon=10_000, prior=0.2, budget=1)
    assert plan.highest_belief == pytest.approx(0.405, abs=5e-4)
    assert plan.constant.regret == pytest.approx(8689.255, abs=5e-4)
    assert plan.dynamic.regret == pytest.approx(8530.937, abs=5e-4)
    assert plan.constant.elasticity == pytest.approx(-0.313281, abs=5e-7)
    assert plan.dynamic.elasticity == pytest.approx(-0.349826, abs=5e-7)
    assert plan.constant.best_budget == pytest.approx(1.968181, abs=5e-7)
    assert plan.dynamic.best_budget == pytest.approx(2.728852, abs=5e-7)
    assert plan.dynamic.binds_at == 51
    assert plan.dynamic.exploration_first == 1
    for outlook in (plan.constant, plan.dynamic):
        parts = outlook.learning + outlook.exploration + outlook.estimation
        assert parts == pytest.approx(outlook.regret, rel=1e-14)


@pytest.mark.parametrize(
    ("budget", "constant", "dynamic"),
    [
        (1.0, "too random", "too random"),
        (1.968181, "balanced", "too random"),
        (2.5, "too greedy", "too random"),
        (3.0, "too greedy", "cap never binds"),
    ],
)
def test_reading_follows_the_sign_of_the_elasticity(
    budget: float, constant: str, dynamic: str
) -> None:
    plan = deniable.plan(n_arms=2, horizon=10_000, budget=budget)
    assert (plan.constant.reading, plan.dynamic.reading) == (constant, dynamic)


@pytest.mark.parametrize("n_arms", [2, 5, 20])
@pytest.mark.parametrize("horizon", [10_000, 1_000_000, 10**12])
@pytest.mark.parametrize("n_segments", [1, 4])
def test_recommendation_is_near_the_best_and_not_larger_than_needed(
    n_arms: int, horizon: int, n_segments: int
) -> None:
    advice = deniable.plan(n_arms=n_arms, horizon=horizon, n_segments=n_segments).recommendation
    bounds = {"constant": deniable.constant_regret, "dynamic": deniable.dynamic_regret}
    best = min(
        float(deniable.constant_regret(n_arms, horizon, b / 200, n_segments)) for b in range(3000)
    )
    best = min(best, float(deniable.nonprivate_regret(n_arms, horizon, n_segments)))
    assert advice.regret <= 1.05 * best * (1 + 1e-9)
    for bound in bounds.values():
        smaller = float(bound(n_arms, horizon, 0.99 * advice.budget, n_segments))
        assert smaller > 1.05 * best


def test_largest_belief_limits_the_recommendation() -> None:
    advice = deniable.plan(n_arms=2, horizon=10_000, max_belief=0.4).recommendation
    assert advice.belief == pytest.approx(0.4, rel=1e-12)
    assert "0.4" in advice.reason
    loose = deniable.plan(n_arms=2, horizon=10_000, max_belief=0.999).recommendation
    assert loose == deniable.plan(n_arms=2, horizon=10_000).recommendation


def test_too_few_visitors_are_told_so() -> None:
    plan = deniable.plan(n_arms=50, horizon=20)
    assert plan.recommendation.budget == 0
    assert "too few" in plan.recommendation.reason


@pytest.mark.parametrize(
    ("n_arms", "horizon", "budget"),
    [(2, 1, 0), (10_000, 10**12, 700), (2, 10**12, 1e-9), (2, 2, 700)],
)
def test_extremes_plan_without_a_warning(n_arms: int, horizon: int, budget: float) -> None:
    plan = deniable.plan(n_arms=n_arms, horizon=horizon, budget=budget)
    text = json.dumps(plan.to_dict())
    assert "NaN" not in text


def test_arm_plan_numbers() -> None:
    plan = deniable.plan_arms(arm_budgets=[0.5, 1, 2], horizon=10_000)
    assert plan.exploration == pytest.approx(0.695, abs=5e-4)
    assert [round(line.weight, 3) for line in plan.arms] == [0.676, 0.255, 0.069]
    assert [round(line.shown_if_greedy, 3) for line in plan.arms] == [0.775, 0.482, 0.353]
    assert [round(line.shown_otherwise, 3) for line in plan.arms] == [0.470, 0.177, 0.048]
    assert plan.per_round_excess <= plan.per_round_excess_linear
    assert plan.regret > plan.symmetric_regret
    equal = deniable.plan_arms(arm_budgets=[1, 1], horizon=10_000)
    assert equal.regret == pytest.approx(equal.symmetric_regret, rel=1e-13)
    assert equal.gap == 0


def test_words_carry_the_numbers() -> None:
    plan = deniable.plan(n_arms=2, horizon=100_000, budget=1)
    words = " ".join(section.text + section.title for section in plan_sections(plan))
    assert "0.084 to 0.405" in words
    assert f"budget {plan.recommendation.budget:.4g}" in words
    rows = {row[0].strip(): row[1:] for s in plan_sections(plan) for row in s.rows}
    assert rows["budget binds at a segment's visitor"] == ("1", "51")
    table = arm_plan_sections(deniable.plan_arms(arm_budgets=[0.5, 1, 2], horizon=100))[1].rows
    assert table[0] == ("arm 1", "0.775", "0.470", "0.470")


def test_notebook_html_is_static_and_escaped() -> None:
    html = deniable.plan(n_arms=2, horizon=10_000)._repr_html_()
    assert html.count("<table>") == 2
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
    ],
)
def test_bad_input_names_the_argument(argument: str, value: object) -> None:
    good = {"n_arms": 2, "horizon": 1000, argument: value}
    with pytest.raises(InvalidArgumentError) as caught:
        deniable.plan(**good)  # type: ignore[arg-type]
    assert caught.value.argument == argument
    assert str(value) in str(caught.value) or repr(value) in str(caught.value)


def test_belief_below_the_prior_cannot_be_promised() -> None:
    with pytest.raises(InvalidArgumentError, match="from the prior"):
        deniable.plan(n_arms=2, horizon=1000, prior=0.5, max_belief=0.4)


@pytest.mark.parametrize("budgets", [[1], [], [0, 1], [0, 0], [-1, 2], [float("nan"), 1]])
def test_bad_arm_budgets(budgets: list[float]) -> None:
    with pytest.raises(InvalidArgumentError):
        deniable.plan_arms(arm_budgets=budgets, horizon=1000)
