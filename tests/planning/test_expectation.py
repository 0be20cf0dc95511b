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
from deniable.expectations.prior import Prior
from deniable.expectations.surface import worst_error
from deniable.planning import simulated
from deniable.planning.asked import Asked
from deniable.planning.expectation import NEAR_LOST, TOP
from deniable.planning.plan import Plan
from deniable.planning.report import expected_words, known_words, plan_sections
from deniable.planning.simulated import simulate_budgets, simulated_outcomes
from deniable.strategies import STRATEGIES

KNOWN: dict[str, Any] = {"base_rate": 0.1, "lift": 0.1, "heterogeneity": 0.5}
SIZES: dict[str, Any] = {"n_arms": 4, "horizon": 200_000, "n_segments": 3}


def planned(**changed: Any) -> Plan:
    return deniable.plan(**{**SIZES, **KNOWN, **changed})


def test_numbers_are_the_surface_s() -> None:
    plan = planned(budget=1)
    assert plan.expected is not None
    found = plan.expected
    assert (found.source, found.note) == ("surface", "")
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
        beside = planned(**beyond, simulate=False)
        assert beside.expected is not None
        assert beside.expected.source == "surface"
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
    assert titles[0] == "What to expect of 4 arms, 200,000 visitors, 3 segments"
    assert titles[1] == "Expected clicks lost, by budget"
    assert titles.index("What it costs") > 2
    rows = {row[0]: row for row in sections[0].rows}
    assert rows["random arms"][2] != "0"
    assert rows["perfect information"][2] == "0"
    assert "joint, budget 1" in rows
    assert [section.title for section in sections if section.folded] == ["What it costs"]
    assert titles[-1] == "What it costs"
    without = plan_sections(deniable.plan(**SIZES))
    assert not any("expect" in section.title or section.folded for section in without)


def test_bounds_are_folded_in_a_notebook_where_clicks_are_expected() -> None:
    shown, folded = planned()._repr_html_().split("<details>", 1)
    assert "regret bound" not in shown
    assert "Recommended: budget" in shown
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


def test_segments_of_different_sizes_are_simulated_and_told() -> None:
    changed: dict[str, Any] = {"n_arms": 2, "horizon": 20_000, "n_segments": None}
    plan = planned(**changed, shares=[0.9, 0.1], budget=1)
    assert plan.expected is not None
    assert plan.expected.source == "simulated"
    assert "different sizes" in plan.expected.note
    quick = planned(**changed, shares=[0.9, 0.1], budget=1, simulate=False)
    assert quick.expected is not None
    assert quick.expected.source == "surface"
    assert "different sizes" in quick.expected.note
    assert quick.recommendation == plan.recommendation
    assert "one size" in plan.recommendation.reason


def test_simulated_outcomes_are_near_the_surface_where_there_is_one() -> None:
    asked = Asked(2, 50_000, 2, None, Prior(0.2, 0.1, 0.5))
    gain = float(asked.look_up("random").lost)
    for name in ("constant", "random"):
        (found,) = simulated_outcomes(asked, name, [2.0], worlds=400)
        assert found.lost == pytest.approx(float(asked.look_up(name, 2.0).lost), abs=0.1 * gain)
    (traced,) = simulated_outcomes(
        Asked(2, 50_000, 2, None, Prior(0.2, 0.1, 0.5), 0.05), "constant", [2.0], worlds=400
    )
    (plain,) = simulated_outcomes(asked, "constant", [2.0], worlds=400)
    assert traced.lost > plain.lost + 0.02 * gain  # noise costs clicks


def test_what_the_surface_does_not_cover_is_simulated_and_told() -> None:
    """Strategies and budgets concerned; the others are the surface's."""
    heard: list[tuple[int, int]] = []
    plan = planned(budget=6.5, progress=lambda done, total: heard.append((done, total)))
    edge = planned(budget=6.5, simulate=False)
    assert plan.expected is not None
    assert edge.expected is not None
    found, before = plan.expected, edge.expected
    assert found.source == "simulated"
    assert "constant, joint (a budget above 6) (200 draws" in found.note
    assert "edge" not in found.note
    assert before.source == "surface"
    assert "constant, joint (a budget above 6)" in before.note
    assert found.error is None
    assert found.strategies["dynamic"] == before.strategies["dynamic"]
    for name in ("constant", "joint"):
        lost = found.strategies[name].lost
        assert lost != before.strategies[name].lost
        assert lost == pytest.approx(before.strategies[name].lost, abs=0.1 * found.gain)
    assert found.table[:-1] == before.table[:-1]  # smaller budgets are on the surface
    assert heard == sorted(heard)
    assert heard[-1] == (400, 400)


def test_a_size_beyond_the_surface_is_simulated_for_the_strategies_that_it_concerns() -> None:
    plan = planned(horizon=300_000_000, n_arms=2, n_segments=2, budget=1)
    assert plan.expected is not None
    assert plan.expected.source == "simulated"
    assert "joint (more than 200,000,000 visitors)" in plan.expected.note
    assert "constant" not in plan.expected.note
    assert [line.budget for line in plan.expected.table] == [0.5, 1.0, 2.0, 4.0]
    advised = planned(horizon=300_000_000, n_arms=2, n_segments=2, simulate=False).recommendation
    assert advised.strategy == "joint"
    assert "edge of the surface" in advised.reason


def test_without_the_simulator_the_edge_is_taken_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deniable.planning.simulated.is_installed", lambda module: False)
    plan = planned(budget=6.5)
    assert plan.expected is not None
    assert plan.expected.source == "surface"
    assert "those of the edge. With the extra `simulate`" in plan.expected.note


def test_what_would_take_too_long_is_not_simulated() -> None:
    plan = planned(n_arms=100, n_segments=150, budget=1)
    assert plan.expected is not None
    assert plan.expected.source == "surface"
    assert "They cannot be simulated within a plan." in plan.expected.note
    for name in (*STRATEGIES, "pooled"):
        asked = Asked(10**4, 10**12, 10**3, None, Prior(0.1))
        assert simulated.worlds_for(asked, name) == 0


@pytest.mark.parametrize("strategy", ["constant", "dynamic", "joint", "pooled"])
@pytest.mark.parametrize("horizon", [3_000, 300_000, 30_000_000])
def test_simulated_losses_have_the_noise_that_they_tell(horizon: int, strategy: str) -> None:
    """The surface and its simulation are as far apart as both say; at another budget they are not."""
    asked = Asked(3, horizon, 2, None, Prior(0.2, 0.1, 0.5))
    gain = float(asked.look_up("random").lost)
    ((outcome, noise, worlds),) = simulate_budgets(asked, strategy, [1.0], 150)
    assert worlds == 150
    assert noise < 0.02 * gain
    told = float(asked.look_up(strategy, 1.0).lost)
    assert outcome.lost == pytest.approx(told, abs=0.02 * gain + 4.5 * noise)
    assert outcome.low <= outcome.lost <= outcome.high
    if horizon == 30_000_000 and strategy in ("constant", "dynamic"):
        other = float(asked.look_up(strategy, 2.0).lost)
        assert abs(outcome.lost - other) > 0.02 * gain + 4.5 * noise


def test_judging_runs_by_their_counts_leaves_the_mean_and_less_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(4, 5_000, 3, None, Prior(0.1, 0.05, 0.5))
    ((judged, noise, _),) = simulate_budgets(asked, "joint", [1.0], 150)
    monkeypatch.setattr(simulated, "MOST_JUDGED", 0.0)
    ((plain, more, _),) = simulate_budgets(asked, "joint", [1.0], 150)
    assert noise < 0.5 * more
    assert judged.lost == pytest.approx(plain.lost, abs=4.5 * math.hypot(noise, more))


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
