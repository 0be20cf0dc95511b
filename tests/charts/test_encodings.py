"""What each mark of a figure shows: which column is on which axis, and both ends of every band.

A chart whose axes are swapped, whose band has one end twice or whose quantile is another one has the
right data all the same, so the encodings are told here, figure by figure.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from deniable.charts import experiments, leak, portfolio, strategies
from deniable.charts.audit import audit_chart
from deniable.charts.planning import PANELS, plan_data
from deniable.charts.results import rates_with_bands
from deniable.charts.simulation import clicks_chart, regret_chart
from deniable.charts.strategies import arm_plan_chart
from deniable.planning.plan import plan
from deniable.simulation.environment import Environment
from deniable.simulation.results import SimulationResult
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic

POLICIES = (Constant(1), Dynamic(1))
ENVIRONMENT = Environment([[0.1, 0.2], [0.2, 0.1]], 100)


def marks(node: Any, inherited: dict[str, str] | None = None) -> list[str]:
    """The marks of a chart, in drawing order, each with its channels; words are left out."""
    fields = dict(inherited or {})
    for channel, value in node.get("encoding", {}).items():
        if isinstance(value, dict) and "field" in value:
            fields[channel] = value["field"]
    found = []
    if "mark" in node:
        kind = node["mark"] if isinstance(node["mark"], str) else node["mark"]["type"]
        if kind != "text":
            shown = " ".join(f"{channel}={fields[channel]}" for channel in sorted(fields))
            found.append(f"{kind} {shown}")
    for kids in ("layer", "hconcat", "vconcat", "concat"):
        for kid in node.get(kids, []):
            found += marks(kid, fields)
    return found


def result() -> SimulationResult:
    """What the charts of a simulation ask for: a summary at three checkpoints."""
    names = ("mean", "low", "high", "q025", "q975")
    table = pl.DataFrame(
        [
            {"policy": policy.label, "visitors": at, **{n: 1.0 + i for i, n in enumerate(names)}}
            for policy in POLICIES
            for at in (1, 10, 100)
        ]
    )
    return cast(SimulationResult, SimpleNamespace(summary=lambda _what: table))


FIGURES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "belief": (
        PANELS["belief"].make,
        [
            "area x=prior y=low y2=high",
            "line x=prior y=prior",
            "line x=prior y=high",
            "point x=prior y=belief",
        ],
    ),
    "expected": (
        PANELS["expected"].make,
        [
            "area x=budget y=low y2=high",
            "rule y=y",
            "line color=strategy strokeDash=strategy x=budget y=lost",
            "rule x=budget",
        ],
    ),
    "schedule": (
        PANELS["schedule"].make,
        ["line color=strategy strokeDash=strategy x=clock y=share"],
    ),
    "regret": (
        PANELS["regret"].make,
        [
            "line color=strategy strokeDash=strategy x=budget y=regret",
            "rule y=y",
            "rule x=budget",
            "point color=strategy x=budget y=regret",
        ],
    ),
    "elasticity": (
        PANELS["elasticity"].make,
        [
            "rule y=y",
            "line color=strategy strokeDash=strategy x=budget y=elasticity",
            "rule x=budget",
        ],
    ),
    "parts": (PANELS["parts"].make, ["bar color=part order=order x=clicks y=strategy"]),
    "bounds of beliefs": (
        strategies.belief_bounds,
        [
            "line x=prior y=belief",
            "line color=budget detail=bound order=prior strokeDash=budget x=prior y=belief",
            "point x=prior y=belief",
        ],
    ),
    "budgets by arm": (
        lambda: arm_plan_chart(budgets=[0.5, 1], horizon=100, prior=0.2),
        [
            "rect color=probability x=greedy y=shown",
            "line color=arm strokeDash=arm x=clock y=risk",
            "line x=prior y=belief",
            "line color=budget detail=bound order=prior strokeDash=budget x=prior y=belief",
            "point x=prior y=belief",
        ],
    ),
    "audit": (
        lambda: audit_chart(arms=[("a", 1, 1.0)], ratios=[("a", 0.5, 1.0)]),
        [
            "bar color=which x=share y=arm yOffset=which",
            "bar x=worst y=arm",
            "tick x=budget y=arm",
        ],
    ),
    "arms with intervals": (
        lambda: rates_with_bands(["a", "b"], 2, share=True),
        [
            "bar color=arm x=low x2=high y=segment yOffset=arm",
            "point color=arm x=estimate y=segment yOffset=arm",
        ],
    ),
    "totals": (
        lambda: experiments.totals_over_time(["a"], "visitors"),
        ["line color=arm x=time y=total", "point color=arm x=time y=total"],
    ),
    "segments": (
        lambda: experiments.segment_risks(2, 1.0),
        ["bar x=risk y=segment", "rule x=cap"],
    ),
    "regret against its bound": (
        experiments.regret_against_bound,
        [
            "line color=series strokeDash=series x=visitors y=clicks",
            "point color=series x=visitors y=clicks",
        ],
    ),
    "clicks of policies": (
        lambda: clicks_chart(result(), ENVIRONMENT, POLICIES),
        [
            "rule color=policy x=q025 x2=q975 y=policy",
            "rule color=policy x=low x2=high y=policy",
            "point color=policy x=mean y=policy",
        ],
    ),
    "regret of policies": (
        lambda: regret_chart(result(), ENVIRONMENT, POLICIES),
        ["line color=policy x=visitors y=mean", "line color=policy x=visitors y=bound"],
    ),
    "leaks": (
        lambda: leak.ratio_chart([("a", 2.0, 1.5, 3.0)]),
        ["rule x=low x2=high y=name", "point x=value y=name"],
    ),
    "allocation": (portfolio.bars_panel, ["bar color=strategy x=budget y=id"]),
    "marginal gains": (
        portfolio.gains_panel,
        [
            "line color=experiment x=budget y=gain",
            "rule y=gain",
            "point color=experiment x=budget y=gain",
        ],
    ),
    "another firm budget": (
        portfolio.what_if_panel,
        ["line x=firm_budget y=regret", "point x=firm_budget y=regret"],
    ),
    "rules": (portfolio.rules_panel, ["bar color=rule x=regret y=rule"]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_mark_shows_what_it_should(name: str) -> None:
    make, expected = FIGURES[name]
    assert marks(make().to_dict(validate=False)) == expected


def test_too_greedy_is_above_zero_and_too_random_below() -> None:
    """Less budget would help where the elasticity is positive: the words stand on those sides."""
    zero = plan_data(plan(n_arms=2, horizon=10_000, n_segments=1))["zero"]
    assert zero == [{"y": 0, "above": "too greedy ↑", "below": "too random ↓"}]
    panel = PANELS["elasticity"].make().to_dict(validate=False)
    sides = dict(word for layer in panel["layer"] for word in _heights(layer))
    assert sides["above"] < 0 < sides["below"]  # upwards is negative on a screen


def _heights(node: Any) -> list[tuple[str, float]]:
    """(column, offset) of every word."""
    if "mark" in node:
        kind = node["mark"]
        is_word = isinstance(kind, dict) and kind["type"] == "text"
        return [(node["encoding"]["text"]["field"], kind["dy"])] if is_word else []
    return [word for layer in node.get("layer", []) for word in _heights(layer)]
