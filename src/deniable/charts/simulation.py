"""Charts of a simulation: total clicks by policy, and regret over visitors with its bounds."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
from altair.typing import ChartType

from deniable.charts.theme import (
    BENCHMARK_COLOURS,
    ORDERED_COLOURS,
    STRATEGY_COLOURS,
    powers_of_ten,
    themed,
    values,
)
from deniable.simulation.environment import Environment
from deniable.simulation.results import SimulationResult
from deniable.strategies.benchmarks import EpsilonGreedy
from deniable.strategies.constant import Constant
from deniable.strategies.dynamic import Dynamic
from deniable.strategies.kernel_rules import Simulated
from deniable.theory.regret import constant_regret, dynamic_regret, nonprivate_regret

WIDTH, HEIGHT = 380, 300


def result_chart(result: SimulationResult, environment: Environment) -> ChartType:
    """Chart one environment's part of a result, in the house style."""
    rows = result.frame.filter(result.frame["environment"] == environment.name)
    used = set(rows["policy"])
    policies = [policy for policy in result.policies if policy.label in used]
    part = SimulationResult(rows, result.arms.clear(), (environment,), tuple(policies))
    return themed(simulation_chart(part, environment, policies))


def simulation_chart(
    result: SimulationResult, environment: Environment, policies: Sequence[Simulated]
) -> ChartType:
    """Chart clicks at the horizon and, if there are earlier checkpoints, regret over visitors."""
    clicks = clicks_chart(result, environment, policies)
    if result.frame["visitors"].n_unique() < 3:
        return clicks
    return alt.hconcat(clicks, regret_chart(result, environment, policies)).resolve_scale(
        color="shared"
    )


def clicks_chart(
    result: SimulationResult, environment: Environment, policies: Sequence[Simulated]
) -> ChartType:
    """Chart mean clicks at the horizon, best policy on top, with two kinds of 95% intervals."""
    value = "clicks" if environment.is_plain else "reward"
    rows = result.summary(value).to_dicts()
    horizon = max(row["visitors"] for row in rows)
    table = [row for row in rows if row["visitors"] == horizon]
    order = [row["policy"] for row in sorted(table, key=lambda row: -row["mean"])]
    base = alt.Chart(
        values(table),
        title=alt.TitleParams(
            f"{value.capitalize()} of {horizon:,} visitors",
            subtitle="thick: 95% interval of the mean; thin: 95% of the runs",
        ),
        width=WIDTH,
        height=HEIGHT,
    ).encode(
        y=alt.Y("policy:N", sort=order, title=None),
        color=_colour(policies, legend=False),
    )
    scale = alt.Scale(zero=False, nice=True)
    spread = base.mark_rule(strokeWidth=1.5, opacity=0.5).encode(
        x=alt.X("q025:Q", title=value, scale=scale, axis=alt.Axis(format="~s", tickCount=5)),
        x2=alt.X2("q975:Q"),
    )
    sure = base.mark_rule(strokeWidth=5).encode(x=alt.X("low:Q", scale=scale), x2=alt.X2("high:Q"))
    mean = base.mark_point(filled=True, size=70, opacity=1).encode(x=alt.X("mean:Q", scale=scale))
    return spread + sure + mean


def regret_chart(
    result: SimulationResult, environment: Environment, policies: Sequence[Simulated]
) -> ChartType:
    """Chart mean pseudo-regret over visitors on log axes, with the theory's bounds dashed."""
    table = [row for row in result.summary("regret").to_dicts() if row["mean"] > 0]
    bounds = [
        {"visitors": point, "bound": bound, "policy": policy.label}
        for policy in policies
        for point in sorted({row["visitors"] for row in table})
        if (bound := _bound(policy, environment, point)) is not None
    ]
    axes = {
        "x": alt.X(
            "visitors:Q",
            scale=alt.Scale(type="log"),
            title="visitors",
            axis=alt.Axis(values=powers_of_ten(environment.horizon), format="~s"),
        ),
        "color": _colour(policies, legend=True),
    }
    title = "Regret, and its bounds (dashed)" if bounds else "Regret"
    lines = (
        alt.Chart(values(table), title=title, width=WIDTH, height=HEIGHT)
        .mark_line()
        .encode(
            y=alt.Y(
                "mean:Q",
                scale=alt.Scale(type="log"),
                title="clicks lost" if environment.is_plain else "reward lost",
                axis=alt.Axis(format="~s", tickCount=6),
            ),
            **axes,
        )
    )
    dashed = (
        alt.Chart(values(bounds))
        .mark_line(strokeDash=[5, 4], strokeWidth=1.3)
        .encode(y=alt.Y("bound:Q", scale=alt.Scale(type="log")), **axes)
    )
    return lines + dashed if bounds else lines


def _bound(policy: Simulated, environment: Environment, visitors: int) -> float | None:
    sizes = (environment.n_arms, visitors)
    if environment.changes or not environment.is_plain:
        return None  # the theory's bounds are for immediate clicks at constant rates
    if isinstance(policy, Constant):
        return float(constant_regret(*sizes, policy.budget, environment.n_segments))
    if isinstance(policy, Dynamic):
        return float(dynamic_regret(*sizes, policy.budget, environment.n_segments))
    if isinstance(policy, EpsilonGreedy):
        return float(nonprivate_regret(*sizes, environment.n_segments))
    return None


def _colour(policies: Sequence[Simulated], *, legend: bool) -> alt.Color:
    labels = [policy.label for policy in policies]
    named = {**STRATEGY_COLOURS, **BENCHMARK_COLOURS}
    taken: set[str] = set()
    colours = []
    for i, policy in enumerate(policies):
        colour = named.get(policy.name, "")
        if not colour or colour in taken:  # several budgets of one strategy
            colour = ORDERED_COLOURS[i % len(ORDERED_COLOURS)]
        taken.add(colour)
        colours.append(colour)
    return alt.Color(
        "policy:N",
        sort=labels,
        scale=alt.Scale(domain=labels, range=colours),
        legend=alt.Legend(title="policy") if legend else None,
    )
