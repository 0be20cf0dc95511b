"""The figures show the formulas: their data is checked against numbers from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deniable
from deniable.charts.audit import audit_chart
from deniable.charts.planning import PANELS, plan_data
from deniable.charts.save import save_chart
from deniable.charts.strategies import arm_plan_chart, belief_bounds
from deniable.charts.theme import themed
from deniable.errors import InvalidArgumentError
from deniable.strategies import STRATEGIES


def records(chart: Any) -> list[dict[str, Any]]:
    """All inline data of a chart, whatever its nesting."""
    spec = themed(chart).to_dict()
    found = [row for rows in spec.get("datasets", {}).values() for row in rows]

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.extend(node.get("data", {}).get("values", []) if "data" in node else [])
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(spec)
    return found


def test_belief_figure_marks_the_papers_points() -> None:
    points = {row["text"] for row in records(belief_bounds()) if "text" in row}
    assert points == {"20% → 20.8%", "20% → 40.5%"}


def test_plan_figure_shows_the_chosen_budget_and_the_best_ones() -> None:
    plan = deniable.plan(n_arms=2, horizon=10_000, n_segments=1, budget=1)
    data = plan.chart().to_dict()["datasets"]
    assert data == {name: data[name] for name in data} == {n: plan_data(plan)[n] for n in data}
    assert data["chosen"] == [{"budget": 1, "text": "budget 1"}]
    best = {row["strategy"]: row["budget"] for row in data["best"]}
    assert (best["constant"], best["dynamic"]) == pytest.approx((1.968181, 2.268161), abs=1e-6)
    curve = [row for row in data["regret"] if row["strategy"] == "constant"]
    at = min(curve, key=lambda row: abs(row["budget"] - 1))
    assert at["regret"] == pytest.approx(
        float(deniable.theory.constant_regret(2, 10_000, at["budget"])), rel=1e-4
    )


def test_bounds_that_say_nothing_are_not_drawn() -> None:
    data = plan_data(deniable.plan(n_arms=20, horizon=10_000, n_segments=5, budget=1))
    assert {row["regret"] for row in data["regret"]} == {None, 10_000}
    drawn = [row for row in data["regret"] if row["regret"] is not None]
    assert [row["strategy"] for row in drawn] == list(STRATEGIES)  # one point draws no line
    assert {row["text"] for row in data["best"]} == {""}
    assert data["limit"][0] == {"y": 10_000, "text": "all visitors: a bound above says nothing"}
    assert {row["clicks"] for row in data["parts"]} == {0}
    clear = plan_data(deniable.plan(n_arms=2, horizon=10**9, n_segments=1, budget=4))
    assert {row["text"] for row in clear["best"]} >= {"best 5.66", "best 5.94"}


def test_panels_name_the_data_they_read() -> None:
    data = plan_data(deniable.plan(n_arms=2, horizon=10_000, n_segments=1))
    read = {part for panel in PANELS.values() for part in panel.datasets}
    assert read == set(data)
    for panel in PANELS.values():
        spec = str(panel.make().to_dict(validate=False))
        assert all(f"'name': '{part}'" in spec for part in panel.datasets)


def test_arm_figure_shows_the_matrix() -> None:
    chart = arm_plan_chart(budgets=[0.5, 1, 2], horizon=10_000, prior=0.2)
    cells = {
        (r["shown"], r["greedy"]): round(r["probability"], 3)
        for r in records(chart)
        if "probability" in r
    }
    assert cells["arm 1", "arm 1"] == 0.775
    assert cells["arm 3", "arm 1"] == 0.048


def test_unknown_ending_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="ends in"):
        save_chart(belief_bounds(), tmp_path / "belief.gif")
    assert list(tmp_path.iterdir()) == []


def test_belief_curves_are_both_bounds() -> None:
    curves = [r for r in records(belief_bounds()) if r.get("budget") == "1" and "bound" in r]
    for side, formula in (
        ("low", deniable.privacy.lowest_belief),
        ("high", deniable.highest_belief),
    ):
        drawn = {r["prior"]: r["belief"] for r in curves if r["bound"] == side}
        assert len(drawn) == 201
        assert drawn[0.5] == pytest.approx(float(formula(0.5, 1)), abs=1e-12)
        assert drawn[0.2] == pytest.approx(float(formula(0.2, 1)), abs=1e-12)


def test_the_audit_shows_what_was_observed_beside_the_design() -> None:
    chart = audit_chart(arms=[("old", 30, 40.0), ("new", 70, 60.0)], ratios=[("old", 0.9, 1.0)])
    found = {(r["arm"], r["which"]): r["share"] for r in records(chart) if "which" in r}
    assert found["old", "observed"] == 0.3
    assert found["old", "designed"] == 0.4
    assert found["new", "observed"] == 0.7
    assert [(r["worst"], r["budget"]) for r in records(chart) if "worst" in r] == [(0.9, 1.0)]
