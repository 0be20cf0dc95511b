"""The figures show the formulas: their data is checked against numbers from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deniable.charts.beliefs import belief_bounds
from deniable.charts.elasticities import elasticity_panels
from deniable.charts.planning import arm_plan_chart, plan_chart
from deniable.charts.save import save_chart
from deniable.charts.strategies import strategy_panels
from deniable.charts.theme import themed
from deniable.errors import InvalidArgumentError


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


def test_constant_panels_are_flat_and_dynamic_ones_end_at_the_cap() -> None:
    flat = [r for r in records(strategy_panels("constant")) if r.get("budget") == "3"]
    assert {round(r["exploration"], 6) for r in flat} == {0.094852}
    rising = [r for r in records(strategy_panels("dynamic")) if r.get("budget") == "3"]
    assert rising[0]["risk"] == 0
    assert rising[-1]["risk"] == 3
    assert {r["risk"] < 3 for r in rising if r["clock"] < 23_599} == {True}
    assert {r["risk"] == 3 for r in rising if r["clock"] >= 23_599} == {True}


def test_elasticity_points_stand_at_the_best_budgets() -> None:
    constant = records(elasticity_panels("constant", arms=[2], horizons=[10_000]))
    marks = [r for r in constant if r.get("panel") == "2 arms"][-1]
    assert marks["budget"] == pytest.approx(1.968181, abs=5e-7)
    assert marks["elasticity"] == pytest.approx(0, abs=1e-12)
    dynamic = records(elasticity_panels("dynamic", arms=[5], horizons=[1_000_000]))
    assert all(r["elasticity"] <= 0 for r in dynamic if "panel" in r)
    assert max(r["budget"] for r in dynamic if "panel" in r) == pytest.approx(4.769489, abs=5e-7)


def test_plan_figure_shows_the_chosen_budget_and_both_best_ones() -> None:
    chart = plan_chart(n_arms=2, horizon=10_000, n_segments=1, prior=0.2, budget=1)
    single = ({"budget"}, {"budget", "y"})
    budgets = [row["budget"] for row in records(chart) if set(row) in single]
    for expected in (1, 1.968181, 2.728852):
        assert any(abs(b - expected) < 1e-6 for b in budgets)


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
