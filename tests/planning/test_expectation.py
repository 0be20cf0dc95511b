"""The expected part of a plan: the surface's numbers, the recommendation by them, and its words."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import deniable
from deniable.errors import InvalidArgumentError
from deniable.expectations.expected import RIVALS, expected_loss
from deniable.expectations.surface import worst_error
from deniable.planning.expectation import NEAR_LOST, TOP
from deniable.planning.plan import Plan
from deniable.planning.report import expected_words, known_words, plan_sections
from deniable.strategies import STRATEGIES

KNOWN: dict[str, Any] = {"base_rate": 0.1, "lift": 0.1, "heterogeneity": 0.5}
SIZES: dict[str, Any] = {"n_arms": 4, "horizon": 200_000, "n_segments": 3}


def planned(**changed: Any) -> Plan:
    return deniable.plan(**{**SIZES, **KNOWN, **changed})


def test_numbers_are_the_surface_s() -> None:
    plan = planned(budget=1)
    assert plan.expected is not None
    found = plan.expected
    assert found.note == ""
    for name, one in {**found.strategies, **found.rivals}.items():
        told = expected_loss(name, 4, 200_000, 3, **KNOWN, budgets=1.0)
        for part in ("clicks", "lost", "low", "high"):
            assert getattr(one, part) == pytest.approx(float(getattr(told, part)), rel=1e-12)
    assert set(found.strategies) == set(STRATEGIES)
    assert set(found.rivals) == set(RIVALS)
    assert found.gain == pytest.approx(found.rivals["random"].lost)
    assert [line.budget for line in found.table] == sorted({line.budget for line in found.table})
    here = next(line for line in found.table if line.budget == 1)
    assert here.outcomes == found.strategies
    assert json.loads(json.dumps(plan.to_dict()))["expected"]["best"] == found.best


@pytest.mark.parametrize("heterogeneity", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("max_belief", [None, 0.25, 0.5])
@pytest.mark.parametrize(("n_arms", "horizon"), [(2, 20_000), (10, 3_000_000)])
def test_the_recommendation_is_the_smallest_budget_near_the_least_loss(
    n_arms: int, horizon: int, max_belief: float | None, heterogeneity: float
) -> None:
    changed = {"n_arms": n_arms, "horizon": horizon, "heterogeneity": heterogeneity}
    plan = planned(**changed, max_belief=max_belief)
    advice = plan.recommendation
    top = TOP if max_belief is None else math.log(max_belief / (1 - max_belief) / 0.25)
    budgets = np.append(np.arange(0, top, 0.01), top)
    known = {**KNOWN, "heterogeneity": heterogeneity}
    lost = np.array(
        [
            expected_loss(name, n_arms, horizon, 3, **known, budgets=budgets).lost
            for name in STRATEGIES
        ]
    )
    gain = float(expected_loss("random", n_arms, horizon, 3, **known).lost)
    near = lost.min() + NEAR_LOST * gain
    assert plan.expected is not None
    assert advice.lost == pytest.approx(plan.expected.strategies[advice.strategy].lost)
    assert advice.lost <= near * (1 + 1e-6) + 0.01 * gain
    assert advice.strategy == plan.expected.best
    smaller = lost[:, budgets < advice.budget - 0.011]
    assert smaller.size == 0 or smaller.min() > near - 1e-6 * gain
    assert max_belief is None or advice.belief <= max_belief
    assert advice.budget == round(advice.budget, 3)


def test_the_plan_says_how_far_its_surface_may_be_off() -> None:
    """Where it was compared with direct simulation, and nowhere else."""
    plan = planned(budget=5.5)
    found = plan.expected
    assert found is not None
    assert found.error is not None
    assert found.note == ""
    assert found.error == pytest.approx(worst_error(found.best) * found.gain)
    assert all(0 < worst_error(name) < 0.02 for name in STRATEGIES)
    assert f"off by at most {found.error / found.gain:.1%} of" in known_words(plan)
    for beyond in ({"base_rate": 0.001}, {"n_arms": 80}, {"horizon": 150}, {"budget": 6.5}):
        beside = planned(**beyond)
        assert beside.expected is not None
        assert beside.expected.error is None
        assert "those of the edge" in beside.expected.note
        assert "off by at most" not in known_words(beside)


def test_the_cost_of_the_budget_is_told_by_day() -> None:
    plan = planned(budget=0.5, per_day=30_000)
    found = plan.expected
    assert found is not None
    assert found.days == 7
    least = min(
        float(
            expected_loss(name, 4, 200_000, 3, **KNOWN, budgets=np.arange(0, 6.01, 0.01)).lost.min()
        )
        for name in STRATEGIES
    )
    assert found.privacy_cost == pytest.approx(found.strategies[found.best].lost - least)
    assert found.privacy_cost_per_day == pytest.approx(found.privacy_cost * 0.15)
    assert "in 7 days" in expected_words(plan)
    assert "clicks a day" in expected_words(plan)
    free = planned(budget=0.5).expected
    assert free is not None
    assert (free.days, free.privacy_cost_per_day) == (None, None)


def test_it_is_told_first_and_bounds_later() -> None:
    sections = plan_sections(planned(budget=1))
    titles = [section.title for section in sections]
    assert titles[0].startswith("Recommended: ")
    assert titles[1] == "Expected clicks lost, by budget"
    assert titles.index("What it costs") > 2
    rows = {row[0]: row for row in sections[0].table.rows}
    assert len(rows) == 6
    assert rows["No privacy"][4] == "100%"
    assert rows["Joint, on segments"][4] == "40%"
    assert [section.title for section in sections if section.folded] == ["What it costs"]
    assert titles[-1] == "What it costs"
    without = plan_sections(deniable.plan(**SIZES))
    assert not any("expect" in section.title or section.folded for section in without)


def test_bounds_are_folded_in_a_notebook_where_clicks_are_expected() -> None:
    shown, folded = planned()._repr_html_().split("<details>", 1)
    assert "regret bound" not in shown
    assert "To personalise this experiment alone: budget" in shown
    assert folded.startswith("<summary>What it costs</summary>")
    assert "regret bound, joint" in folded
    assert "<details>" not in deniable.plan(**SIZES)._repr_html_()


def test_a_plan_without_a_base_rate_expects_nothing() -> None:
    plan = deniable.plan(**SIZES)
    assert plan.expected is None
    assert plan.recommendation.lost is None
    assert expected_words(plan) == ""


def test_equal_shares_are_no_shares() -> None:
    equal, unsaid = planned(shares=[1 / 3] * 3, budget=1), planned(budget=1)
    assert equal.expected == unsaid.expected


def test_the_note_names_the_strategies_beyond_the_surface_and_why() -> None:
    plan = planned(budget=6.5)
    assert plan.expected is not None
    assert plan.expected.note == (
        "Beyond what the surface covers: constant, joint (a budget above 6). These figures are those "
        "of the edge. `deniable simulate` gives those of your own rates and sizes."
    )
    assert plan.expected.error is None
    many = planned(horizon=300_000_000, n_arms=2, n_segments=2, budget=1)
    assert many.expected is not None
    assert "joint (more than 200,000,000 visitors)" in many.expected.note
    assert "constant" not in many.expected.note
    advised = planned(horizon=300_000_000, n_arms=2, n_segments=2).recommendation
    assert advised.strategy == "joint"
    assert "edge of the surface" in advised.reason


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("base_rate", 0),
        ("base_rate", 1.0),
        ("lift", 0.0),
        ("lift", 2),
        ("heterogeneity", 1.1),
        ("per_day", -1),
        ("per_day", float("inf")),
    ],
)
def test_bad_input_names_the_argument(argument: str, value: float) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        planned(**{argument: value})
    assert caught.value.argument == argument


@pytest.mark.parametrize("base_rate", [5e-324, 1 - 2**-53])
@pytest.mark.parametrize("lift", [5e-324, 1.0])
@pytest.mark.parametrize("horizon", [1, 10**12])
def test_extremes_are_numbers(base_rate: float, lift: float, horizon: int) -> None:
    plan = planned(base_rate=base_rate, lift=lift, horizon=horizon, n_arms=128, budget=700)
    assert plan.expected is not None
    for one in (*plan.expected.strategies.values(), *plan.expected.rivals.values()):
        assert all(math.isfinite(part) for part in (one.clicks, one.lost, one.low, one.high))
