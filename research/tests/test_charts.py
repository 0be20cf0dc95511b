"""The studies' figures show what they should: their data, and which column is on which axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from tests.charts.test_charts import records
from tests.charts.test_encodings import marks

from research.charts import elasticity_panels, firm_clicks, strategy_panels, total_clicks
from research.groups import group_chart
from research.tracker import belief_ranges


def clicked() -> pl.DataFrame:
    rows = [("constant", 1.0), ("dynamic", 1.0), ("random", None), ("perfect", None)]
    names = ("policy", "budget", "mean", "low", "high", "arms")
    return pl.DataFrame([(*row, 2.0, 1.0, 3.0, "2 arms") for row in rows], names, orient="row")


def firms() -> pl.DataFrame:
    names = ("rule", "regime", "firm_budget", "median", "q25", "q75")
    rules = ("regret-based", "equal split")
    return pl.DataFrame(
        [(rule, "flexible", 1.0, 2.0, 1.0, 3.0) for rule in rules], names, orient="row"
    )


def groups() -> Any:
    bounds = pl.DataFrame({"group_size": [1], "firm_budget": [1.0], "regret_bound": [2.0]})
    clicks = pl.DataFrame({"group_size": [1], "median": [2.0], "q25": [1.0], "q75": [3.0]})
    return group_chart(bounds, clicks)


def believed() -> Any:
    row = {"budget": 1.0, "strategy": "dynamic", "channel": "arm", "q01": 0.1, "q99": 0.4}
    row |= {"bound_low": 0.1, "bound_high": 0.5, "members_mean": 0.3, "others_mean": 0.2}
    return belief_ranges(pl.DataFrame([row]))


FIGURES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a strategy over time": (
        lambda: strategy_panels("dynamic", horizon=100),
        [
            "line color=budget strokeDash=budget x=clock y=risk",
            "line color=budget strokeDash=budget x=clock y=exploration",
            "line color=budget strokeDash=budget x=clock y=exploitation",
        ],
    ),
    "elasticities": (
        lambda: elasticity_panels("constant", arms=[2], horizons=[10_000]),
        [
            "rule y=y",
            "line color=visitors strokeDash=visitors x=budget y=elasticity",
            "point x=budget y=elasticity",
        ],
    ),
    "clicks of a study": (
        lambda: total_clicks(clicked(), [1.0], columns="arms"),
        [
            "rule y=mean",
            "line color=policy x=x y=mean",
            "rule color=policy x=x y=low y2=high",
            "point color=policy shape=policy x=x y=mean",
        ],
    ),
    "clicks of a firm": (
        lambda: firm_clicks(firms(), 3.0, 4.0),
        [
            "rule y=y",
            "rule y=y",
            "rule y=y",
            "rule color=rule x=x y=q25 y2=q75",
            "point color=rule shape=regime x=x y=median",
        ],
    ),
    "groups": (
        groups,
        [
            "line color=group_size strokeDash=group_size x=firm_budget y=regret_bound",
            "rule x=group_size y=q25 y2=q75",
            "point x=group_size y=median",
        ],
    ),
    "beliefs of a tracker": (
        believed,
        [
            "rule color=strategy x=x y=q01 y2=q99",
            "rule x=left x2=right y=y",
            "point color=strategy shape=who x=x y=mean",
        ],
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_mark_shows_what_it_should(name: str) -> None:
    make, expected = FIGURES[name]
    assert marks(make().to_dict(validate=False)) == expected


def test_constant_panels_are_flat_and_dynamic_ones_end_at_the_cap() -> None:
    flat = [r for r in records(strategy_panels("constant")) if r.get("budget") == "3"]
    assert {round(r["exploration"], 6) for r in flat} == {0.094852}
    assert {round(r["exploitation"], 6) for r in flat} == {0.905148}
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
