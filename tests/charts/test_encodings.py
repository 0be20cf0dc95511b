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
from deniable.charts.studies import firm_clicks, total_clicks
from deniable.planning.plan import plan
from deniable.policies.greedy import ConstantPolicy, DynamicPolicy
from deniable.simulation.environment import Environment
from deniable.simulation.results import SimulationResult
from deniable.studies.groups import group_chart
from deniable.studies.tracker import belief_ranges

POLICIES = (ConstantPolicy(1), DynamicPolicy(1))
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
    "a strategy over time": (
        lambda: strategies.strategy_panels("dynamic", horizon=100),
        [
            "line color=budget strokeDash=budget x=clock y=risk",
            "line color=budget strokeDash=budget x=clock y=exploration",
            "line color=budget strokeDash=budget x=clock y=exploitation",
        ],
    ),
    "elasticities": (
        lambda: strategies.elasticity_panels("constant", arms=[2], horizons=[10_000]),
        [
            "rule y=y",
            "line color=visitors strokeDash=visitors x=budget y=elasticity",
            "point x=budget y=elasticity",
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
