"""Charts of a plan: what a budget means, how it is spent, what it costs, where more would help.

Each panel is a chart without data; `PANELS` names the data it reads, and `plan_data` creates it. A
page keeps its panels and replaces their data while a slider moves; `plan_chart` combines the same
panels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import altair as alt
import numpy as np
from altair.typing import ChartType

from deniable._types import Record
from deniable.charts.theme import (
    ACCENT,
    BLUE,
    INK,
    Panel,
    Records,
    rows,
    strategy_encodings,
    themed,
    with_datasets,
)
from deniable.expectations.expected import expected_loss, has_surface
from deniable.privacy.belief import belief_curve
from deniable.strategies import STRATEGIES

WIDTH, HEIGHT = 340, 240
POINTS = 80
PARTS = {
    "learning": "learning",
    "exploration": "random arms",
    "estimation": "wrong best arm",
}
"""Term of a bound -> its name for people."""

EXPECTED_TOP = 5.0
"""Expected losses are drawn up to this budget, or to the plan's."""

ABOVE = 1.15
"""Bounds are drawn up to this multiple of the number of visitors; above 1 they are uninformative."""

if TYPE_CHECKING:

    class Summary(Protocol):
        """What the charts need of one strategy at the plan's budget."""

        @property
        def best_budget(self) -> float: ...  # noqa: D102
        @property
        def best_regret(self) -> float: ...  # noqa: D102
        @property
        def informative(self) -> bool: ...  # noqa: D102

    class Planned(Protocol):
        """What the charts need of a plan."""

        @property
        def n_arms(self) -> int: ...  # noqa: D102
        @property
        def horizon(self) -> int: ...  # noqa: D102
        @property
        def n_segments(self) -> int: ...  # noqa: D102
        @property
        def shares(self) -> tuple[float, ...] | None: ...  # noqa: D102
        @property
        def prior(self) -> float: ...  # noqa: D102
        @property
        def budget(self) -> float: ...  # noqa: D102
        @property
        def highest_belief(self) -> float: ...  # noqa: D102
        @property
        def strategies(self) -> Mapping[str, Summary]: ...  # noqa: D102
        @property
        def expected(self) -> ChartType: ...  # noqa: D102
        @property
        def ladder(self) -> ChartType: ...  # noqa: D102


def plan_chart(plan: Planned) -> ChartType:
    """Return the complete figure of a plan: expected losses if known, then belief and bounds."""
    expected = () if plan.expected is None else ("ladder", "expected")
    shown = (*expected, "belief", "schedule", "regret", "elasticity")
    panels = [
        PANELS[name].make().properties(title=PANELS[name].title, width=WIDTH) for name in shown
    ]
    chart = alt.concat(*panels, columns=2, spacing=28)
    chart = chart.resolve_scale(color="independent", strokeDash="independent")
    data = plan_data(plan)
    wanted = {dataset for name in shown for dataset in PANELS[name].datasets}
    return with_datasets(themed(chart), {name: data[name] for name in sorted(wanted)})


def plan_data(plan: Planned) -> dict[str, Records]:
    """Return the data of every panel by dataset name, with numbers rounded to five digits."""
    best = max(one.best_budget for one in plan.strategies.values())
    top = float(f"{max(1.4 * best, 1.25 * plan.budget, 1.0):.2g}")
    sizes = (plan.n_arms, plan.horizon, plan.n_segments, plan.shares)
    regret, elasticity = _curves(sizes, top, tuple(plan.strategies))
    clock = np.unique(np.geomspace(1, max(_largest(plan), 2), POINTS).round())
    prior, low, high = belief_curve(plan.budget, n_points=61)
    here = f"{plan.prior:.0%} → {plan.highest_belief:.0%}"
    highest = max(line["regret"] or plan.horizon for line in regret)
    limit = "all visitors: a bound above says nothing" if highest >= plan.horizon else ""
    data: dict[str, Records] = {
        "belief": _short(rows(prior=prior, low=low, high=high)),
        "belief_here": [{"prior": plan.prior, "belief": plan.highest_belief, "text": here}],
        "schedule": [],
        "regret": regret,
        "elasticity": elasticity,
        "best": [],
        "parts": [],
        "chosen": [{"budget": plan.budget, "text": f"budget {plan.budget:.3g}"}],
        "zero": [{"y": 0, "above": "too greedy ↑", "below": "too random ↓"}],
        "limit": [{"y": min(highest, plan.horizon), "text": limit}],
    }
    data |= _expected(plan) | {"ladder": _ladder(plan)}
    for place, (name, one) in enumerate(plan.strategies.items()):
        share = STRATEGIES[name](plan.budget).exploration(clock, plan.n_arms)
        if share is not None:  # strategies without a schedule are not in this chart
            data["schedule"] += _short(rows(clock=clock, share=share, strategy=name))
        told = one.best_regret < plan.horizon
        data["best"].append(
            {
                "budget": one.best_budget,
                "regret": min(one.best_regret, plan.horizon),
                "strategy": name,
                "text": f"best {one.best_budget:.2f}" if told else "",
                "place": place,
            }
        )
        data["parts"] += [
            {
                "strategy": name,
                "part": word,
                "clicks": getattr(one, term) if one.informative else 0,
                "order": order,
            }
            for order, (term, word) in enumerate(PARTS.items())
        ]
    return data


def _expected(plan: Planned) -> dict[str, Records]:
    """Return expected lost clicks by budget, with the best strategy's interval at the plan's budget."""
    found = plan.expected
    if found is None:  # the panel is then hidden, but its axes need a point
        point: Records = [{"budget": plan.budget, "lost": 0, "strategy": next(iter(STRATEGIES))}]
        band: Records = [{"budget": plan.budget, "low": 0, "high": 0}]
        return {"expected": point, "expected_band": band, "rivals": [{"y": 0, "text": ""}]}
    lost: Records = []
    top = max(EXPECTED_TOP, 1.1 * plan.budget)
    budgets = np.linspace(0, top, POINTS + 1)
    for name in filter(has_surface, plan.strategies):
        told = expected_loss(
            name,
            plan.n_arms,
            plan.horizon,
            plan.n_segments,
            base_rate=found.base_rate,
            lift=found.lift,
            heterogeneity=found.heterogeneity,
            budgets=budgets,
            shares=plan.shares,
        )
        lost += rows(budget=budgets, lost=told.lost, low=told.low, high=told.high, strategy=name)
    names = {"random": "random arms", "pooled": "one bandit for everybody"}
    return {
        "expected": _short([_without(one, "low", "high") for one in lost]),
        "expected_band": _short(
            [_without(one, "lost", "strategy") for one in lost if one["strategy"] == found.best]
        ),
        "rivals": [{"y": found.rivals[name].lost, "text": text} for name, text in names.items()],
    }


def _ladder(plan: Planned) -> Records:
    """Return a bar for each step of the ladder; without a base rate the panel is hidden."""
    if plan.ladder is None:
        return [{"step": 1, "more": 0, "text": "", "kind": "step"}]
    return [
        {
            "step": number,
            "more": step.more or 0,
            "text": f"{step.title}: does not apply"
            if step.more is None
            else f"{step.title}: {step.more:+,.0f}, at most {step.belief:.0%} sure",
            "kind": "ceiling"
            if step.budget is None
            else "recommended"
            if step.step == plan.ladder.recommended
            else "step",
        }
        for number, step in enumerate(plan.ladder.steps, 1)
    ]


def _without(record: Record, *names: str) -> Record:
    return {name: value for name, value in record.items() if name not in names}


@lru_cache(maxsize=256)
def _curves(
    sizes: tuple[int, int, int, tuple[float, ...] | None], top: float, names: tuple[str, ...]
) -> tuple[Records, Records]:
    """Return bounds and elasticities over budgets up to `top`, independent of the slider."""
    n_arms, horizon, n_segments, shares = sizes
    budgets = np.linspace(top / POINTS, top, POINTS)
    regret: Records = []
    elasticity: Records = []
    for name in names:
        strategy = STRATEGIES[name]
        bound = np.asarray(strategy.regret(n_arms, horizon, budgets, n_segments, shares=shares))
        bound = np.where(bound <= ABOVE * horizon, bound, np.nan)
        if np.isnan(bound).all():
            bound[-1] = horizon  # one point draws no line, but defines the axis
        slope = strategy.elasticity(n_arms, horizon, budgets, n_segments, shares=shares)
        regret += _short(rows(budget=budgets, regret=bound, strategy=name))
        elasticity += _short(rows(budget=budgets, elasticity=slope, strategy=name))
    return regret, elasticity


def _largest(plan: Planned) -> float:
    share = 1 / plan.n_segments if plan.shares is None else max(plan.shares)
    return plan.horizon * share


def _short(records: Records) -> Records:
    """Round numbers to five digits, which is enough to see and reduces the data sent."""
    return [
        {name: float(f"{x:.5g}") if isinstance(x, float) else x for name, x in record.items()}
        for record in records
    ]


def ladder_panel() -> ChartType:
    """Chart what each step of the ladder brings beyond one bandit for everybody, one bar per step."""
    base = alt.Chart(alt.NamedData(name="ladder")).encode(
        y=alt.Y("step:O", title=None, axis=alt.Axis(domain=False, ticks=False, labelPadding=6))
    )
    bars = base.mark_bar(height=12, yOffset=7).encode(
        x=alt.X(
            "more:Q",
            title="clicks beyond one bandit for everybody",
            axis=alt.Axis(format="~s", tickCount=5),
        ),
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values())),
            legend=None,
        ),
    )
    words = base.encode(x=alt.value(2), text=alt.Text("text:N"))
    return alt.layer(
        bars, words.mark_text(align="left", fontSize=11, color=INK, yOffset=-8)
    ).properties(height=6 * 40)


KINDS = {"step": BLUE, "recommended": ACCENT, "ceiling": "#999999"}
"""Kinds of steps with their colours."""


def expected_panel() -> ChartType:
    """Chart expected lost clicks over the budget, with dashed lines for policies without a budget."""
    lines = _over_budget("expected", "clicks lost, expected", alt.Axis(format="~s"), field="lost")
    band = (
        alt.Chart(alt.NamedData(name="expected_band"))
        .mark_area(opacity=0.12, color=INK, clip=True)
        .encode(x=alt.X("budget:Q"), y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    )
    rivals = alt.Chart(alt.NamedData(name="rivals")).encode(y=alt.Y("y:Q"))
    rule = rivals.mark_rule(color=INK, strokeDash=[3, 3]).encode(opacity=_if_told())
    label = _words(rivals.encode(x=alt.value("width")), align="right", dx=-4, dy=-8)
    return _sized(alt.layer(band, rule, lines, _chosen(HEIGHT - 14), label))


def belief_panel() -> ChartType:
    """Chart the weakest and strongest possible belief, over all priors, at one budget."""
    base = alt.Chart(alt.NamedData(name="belief"))
    area = base.mark_area(opacity=0.25, color=BLUE, line={"strokeWidth": 1.5}).encode(
        x=alt.X("prior:Q", title="belief before", axis=_percent(), scale=_unit()),
        y=alt.Y("low:Q", title="belief after one shown arm", axis=_percent(), scale=_unit()),
        y2=alt.Y2("high:Q"),
    )
    none = base.mark_line(color=INK, strokeWidth=1, strokeDash=[3, 3], opacity=0.6)
    here = alt.Chart(alt.NamedData(name="belief_here")).encode(
        x=alt.X("prior:Q"), y=alt.Y("belief:Q")
    )
    return _sized(
        area
        + none.encode(x=alt.X("prior:Q"), y=alt.Y("prior:Q"))
        + base.mark_line(color=BLUE).encode(x=alt.X("prior:Q"), y=alt.Y("high:Q"))
        + here.mark_point(filled=True, size=90, color=ACCENT, opacity=1)
        + _words(here, color=ACCENT, align="left", dx=9, dy=12)
    )


def schedule_panel() -> ChartType:
    """Chart the share of random arms over a segment's visitors, for every strategy."""
    return _sized(
        alt.Chart(alt.NamedData(name="schedule"))
        .mark_line()
        .encode(
            x=alt.X(
                "clock:Q",
                title="visitor of the segment",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~s", tickCount=6, grid=False),
            ),
            y=alt.Y("share:Q", title="share of random arms", axis=_percent(), scale=_unit()),
            **strategy_encodings(orient="bottom", title=None),
        )
    )


def regret_panel() -> ChartType:
    """Chart the bound on lost clicks over the budget, with points at the best budgets."""
    best = alt.Chart(alt.NamedData(name="best")).encode(x=alt.X("budget:Q"), y=alt.Y("regret:Q"))
    colour = strategy_encodings(orient="bottom", title=None)["color"]
    points = best.mark_point(filled=True, size=90).encode(color=colour, opacity=_if_told())
    words = [
        _words(best.transform_filter(f"datum.place == {place}"), dy=dy)
        for place, dy in zip(range(len(STRATEGIES)), (-15, 17, 31, 45), strict=False)
    ]
    limit = alt.Chart(alt.NamedData(name="limit")).encode(y=alt.Y("y:Q"))
    rule = limit.mark_rule(color=INK, strokeDash=[3, 3]).encode(opacity=_if_told())
    label = _words(limit.encode(x=alt.value("width")), align="right", dx=-4, dy=10)
    lines = _over_budget("regret", "clicks lost, at most", alt.Axis(format="~s"))
    return _sized(alt.layer(lines, rule, _chosen(HEIGHT - 14), label, points, *words))


def parts_panel() -> ChartType:
    """Chart the parts of the bound at this budget, one bar per strategy."""
    kinds = list(PARTS.values())
    return (
        alt.Chart(alt.NamedData(name="parts"), height=45 * len(STRATEGIES))
        .mark_bar(height=24)
        .encode(
            y=alt.Y("strategy:N", title=None, sort=list(STRATEGIES)),
            x=alt.X(
                "clicks:Q", title="clicks lost, at most", axis=alt.Axis(format="~s", tickCount=6)
            ),
            color=alt.Color(
                "part:N",
                sort=kinds,
                scale=alt.Scale(domain=kinds, range=["#009E73", "#E69F00", "#CC79A7"]),
                legend=alt.Legend(orient="bottom", title=None, columns=2, labelLimit=260),
            ),
            order=alt.Order("order:Q"),
        )
    )


def elasticity_panel() -> ChartType:
    """Chart percent of the bound per percent of budget: negative is too random, positive too greedy."""
    zero = alt.Chart(alt.NamedData(name="zero")).encode(y=alt.Y("y:Q"))
    words = [
        _words(zero.encode(x=alt.value("width")), f"{side}:N", align="right", dx=-4, dy=dy)
        for side, dy in (("above", -10), ("below", 12))
    ]
    lines = _over_budget("elasticity", "% of the bound per % of budget", alt.Axis())
    rule = zero.mark_rule(color=INK, opacity=0.6)
    return _sized(alt.layer(rule, lines, _chosen(), *words))


PANELS: dict[str, Panel] = {
    "ladder": Panel("The ladder: what each step brings", ladder_panel, ("ladder",)),
    "expected": Panel(
        "What to expect: clicks lost",
        expected_panel,
        ("expected", "expected_band", "rivals", "chosen"),
    ),
    "belief": Panel("Belief before and after", belief_panel, ("belief", "belief_here")),
    "schedule": Panel("Random arms over time", schedule_panel, ("schedule",)),
    "regret": Panel(
        "What it costs: clicks lost, at most", regret_panel, ("regret", "limit", "best", "chosen")
    ),
    "elasticity": Panel(
        "Too random or too greedy", elasticity_panel, ("elasticity", "zero", "chosen")
    ),
    "parts": Panel("What the bound is made of", parts_panel, ("parts",)),
}
"""All charts of a plan, by name."""


def _over_budget(name: str, label: str, axis: alt.Axis, field: str = "") -> ChartType:
    return (
        alt.Chart(alt.NamedData(name=name))
        .mark_line(clip=True)
        .encode(
            x=alt.X(
                "budget:Q",
                title="privacy budget",
                scale=alt.Scale(nice=False, zero=True),
                axis=alt.Axis(tickCount=6, format="~g", labelOverlap=True),
            ),
            y=alt.Y(f"{field or name}:Q", title=label, axis=axis),
            **strategy_encodings(orient="bottom", title=None),
        )
    )


def _chosen(height: float = 0) -> ChartType:
    base = alt.Chart(alt.NamedData(name="chosen")).encode(x=alt.X("budget:Q"))
    word = _words(base.encode(y=alt.value(height)), color=ACCENT, align="left", dx=5, dy=6)
    return base.mark_rule(color=ACCENT, strokeWidth=2) + word


def _words(
    base: ChartType, field: str = "text:N", *, color: str = INK, **place: str | float
) -> ChartType:
    """Return text with a halo, to be legible over lines."""
    text = base.encode(text=alt.Text(field))
    halo = text.mark_text(fontSize=11, stroke="white", strokeWidth=4, opacity=0.85, **place)
    return halo + text.mark_text(fontSize=11, color=color, **place)


def _if_told() -> ChartType:
    """Hide a mark without text. It stays in the data, because an axis needs at least one value."""
    return alt.condition("datum.text == ''", alt.value(0), alt.value(1))


def _percent() -> alt.Axis:
    return alt.Axis(format=".0%")


def _unit() -> ChartType:
    return alt.Scale(domain=[0, 1])


def _sized(chart: ChartType) -> ChartType:
    return chart.properties(height=HEIGHT)
