"""How tight the bounds are, and whether allocating by simulated regret would differ."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import numpy as np
import polars as pl
from altair.typing import ChartType
from numpy.typing import NDArray

from deniable import Case, Constant, Dynamic, Environment, allocate
from deniable.charts.theme import INK, STRATEGY_COLOURS, themed, values
from deniable.theory import constant_regret, dynamic_regret
from research.charts import SI_AXIS
from research.firm_clicks import Firm, load_firm, policy_of
from research.study import Claim, Context, Figure, StudyResult, judged

FloatArray = NDArray[np.float64]

VISITORS = 100_000
BUDGETS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
GAPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Differences of two arms' click rates around one half, of which the worst is used."""

CURVE = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
FIRM_BUDGETS = (5.0, 20.0, 100.0)
STEP = 0.25
"""Budgets in the allocation by simulated regret are multiples of this."""


def run(context: Context) -> StudyResult:
    """Compare bounds with simulated regret, and allocations by bound with those by simulation."""
    bounds = _against_bounds(context, context.scale(200, 10))
    firm = load_firm(context)
    shared, lost = _allocations(context, firm)
    return StudyResult(
        headline=_headline(lost),
        paragraphs=(
            "The bounds hold for every experiment, so they are far above what any one loses. Two arms "
            "are simulated with six differences of their click rates; for each budget the worst of "
            "them is compared with the bound.",
            "The firm's budget is divided by these bounds. With the true click rates one could divide "
            "it by simulated regret instead, which no firm can know beforehand. The difference is what "
            "not knowing costs. " + firm.source,
        ),
        figures=(
            Figure(
                "bounds_and_regret",
                f"Two arms, {VISITORS:,} visitors: bound, and mean regret of the worst of six "
                "experiments. Both axes tell clicks lost; the scale is logarithmic.",
                bound_chart(bounds),
                bounds,
            ),
            Figure(
                "allocation_by_simulation",
                "Left: budgets of the experiments at a firm budget of 20, by bound and by simulated "
                "regret. Right: clicks lost in all under each." + firm.mark,
                difference_chart(shared.filter(pl.col("firm_budget") == 20.0), lost),
                shared,
            ),
        ),
        claims=(_hold(bounds), _loose(bounds), _differs(shared, lost)),
        tables={"lost_clicks": lost},
    )


def _against_bounds(context: Context, repetitions: int) -> pl.DataFrame:
    policies = [kind(budget) for kind in (Constant, Dynamic) for budget in BUDGETS]
    worlds = [Environment([0.5 + d / 2, 0.5 - d / 2], VISITORS, name=f"gap {d}") for d in GAPS]
    results = context.simulate_each([[Case(w, p) for p in policies] for w in worlds], repetitions)
    bound = {"constant": constant_regret, "dynamic": dynamic_regret}
    frames = [result.summary("regret") for result in results]
    rows = []
    for policy in policies:
        means = [
            float(frame.filter(pl.col("policy") == policy.label)["mean"].item()) for frame in frames
        ]
        worst = int(np.argmax(means))
        rows.append(
            {
                "strategy": policy.name,
                "budget": policy.budget,
                "bound": float(bound[policy.name](2, VISITORS, policy.budget)),
                "worst_regret": means[worst],
                "worst_gap": GAPS[worst],
            }
        )
    return pl.DataFrame(rows)


def _allocations(context: Context, firm: Firm) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return budgets both ways, one row per experiment and firm budget, and the resulting losses."""
    curves = _regret_curves(context, firm, context.scale(20, 2))
    rows, lost = [], []
    for total in FIRM_BUDGETS:
        by_bound = allocate(firm.portfolio, total, regime="dynamic").budgets
        by_regret = np.asarray(spend_on_curves(curves, round(total / STEP)) * STEP)
        for way, budgets in (("bound", by_bound), ("simulated regret", by_regret)):
            lost.append(
                {
                    "firm_budget": total,
                    "allocated_by": way,
                    "funded": int((budgets > 0).sum()),
                    "lost_clicks": _lost(context, firm, budgets, context.scale(20, 2)),
                }
            )
        rows += [
            {
                "firm_budget": total,
                "experiment": each.name,
                "by_bound": float(a),
                "by_simulation": float(b),
            }
            for each, a, b in zip(firm.experiments, by_bound, by_regret, strict=True)
        ]
    return pl.DataFrame(rows), pl.DataFrame(lost)


def _regret_curves(context: Context, firm: Firm, repetitions: int) -> FloatArray:
    """Return mean simulated regret at each multiple of STEP: (experiments, budgets)."""
    policies = [policy_of("dynamic", budget) for budget in CURVE]
    worlds = [Environment(e.rates, e.visitors, name=e.name) for e in firm.experiments]
    results = context.simulate_each([[Case(w, p) for p in policies] for w in worlds], repetitions)
    fine = np.arange(0, CURVE[-1] + STEP / 2, STEP)
    curves = []
    for result in results:
        mean = {row["policy"]: row["mean"] for row in result.summary("regret").to_dicts()}
        curves.append(np.interp(fine, CURVE, [mean[policy.label] for policy in policies]))
    return np.array(curves)


def spend_on_curves(curves: FloatArray, units: int) -> NDArray[np.int64]:
    """Distribute whole units with the smallest sum of regret, by dynamic programming.

    Args:
        curves: regret of each experiment (row) at 0, 1, 2, ... units (columns).
        units: number of units to spend.

    >>> spend_on_curves(np.array([[9.0, 8, 1], [9.0, 5, 4]]), 2).tolist()
    [2, 0]
    """
    most = curves.shape[1] - 1
    best = np.zeros(units + 1)  # least regret of the experiments so far, by units spent
    choices = []
    for curve in curves:
        spent = np.arange(units + 1)[:, None] - np.arange(most + 1)
        total = np.where(spent >= 0, best[np.maximum(spent, 0)] + curve, np.inf)
        choices.append(total.argmin(axis=1))
        best = total.min(axis=1)
    left, chosen = units, []
    for choice in reversed(choices):
        chosen.append(int(choice[left]))
        left -= chosen[-1]
    return np.array(chosen[::-1], dtype=np.int64)


def _lost(context: Context, firm: Firm, budgets: FloatArray, repetitions: int) -> float:
    """Return the mean regret of all experiments, with other random numbers than the curves."""
    fresh = replace(context, seed=context.seed + 1)
    cases = [
        Case(Environment(e.rates, e.visitors, name=e.name), policy_of("dynamic", float(budget)))
        for e, budget in zip(firm.experiments, budgets, strict=True)
    ]
    return float(fresh.simulate(cases, repetitions).summary("regret")["mean"].sum())


def _headline(lost: pl.DataFrame) -> str:
    at = lost.filter(pl.col("firm_budget") == 20.0)
    by = {row["allocated_by"]: row["lost_clicks"] for row in at.iter_rows(named=True)}
    part = 1 - by["simulated regret"] / by["bound"]
    return (
        "The bounds are safe but loose: who knew the click rates beforehand would lose "
        f"{part:.0%} fewer clicks with the same firm budget of 20."
    )


def _hold(bounds: pl.DataFrame) -> Claim:
    ratio = (bounds["bound"] / bounds["worst_regret"]).to_list()
    return Claim(
        "The bounds are upper bounds on expected regret",
        "upper bounds",
        f"{min(ratio):.1f} to {max(ratio):.0f} times the worst simulated regret",
        judged(min(ratio) >= 1),
        "Two strategies, eight budgets, six experiments.",
    )


def _loose(bounds: pl.DataFrame) -> Claim:
    least = {
        (name,): rows.sort("bound").row(0, named=True)
        for (name,), rows in bounds.group_by("strategy")
    }
    real = {
        (name,): rows.sort("worst_regret").row(0, named=True)
        for (name,), rows in bounds.group_by("strategy")
    }
    constant, dynamic = ("constant",), ("dynamic",)
    return Claim(
        "Best budgets of the bounds are good budgets in practice",
        "rule of thumb",
        f"least bound at {least[constant]['budget']:g} (constant), {least[dynamic]['budget']:g} "
        f"(dynamic); least worst regret at {real[constant]['budget']:g} and {real[dynamic]['budget']:g}",
        judged(
            abs(least[constant]["budget"] - real[constant]["budget"]) <= 1
            and abs(least[dynamic]["budget"] - real[dynamic]["budget"]) <= 1,
            partly=abs(least[constant]["budget"] - real[constant]["budget"]) <= 2,
        ),
        "Of eight budgets, over the worst of six experiments. At small budgets the bound counts a full "
        "click for every random arm.",
    )


def _differs(shared: pl.DataFrame, lost: pl.DataFrame) -> Claim:
    pivot = {(row["firm_budget"], row["allocated_by"]): row for row in lost.iter_rows(named=True)}
    saved = {
        total: 1
        - pivot[total, "simulated regret"]["lost_clicks"] / pivot[total, "bound"]["lost_clicks"]
        for total in FIRM_BUDGETS
    }
    twenty = shared.filter(pl.col("firm_budget") == 20.0)
    both = twenty.filter((pl.col("by_bound") > 0) & (pl.col("by_simulation") > 0)).height
    return Claim(
        "Allocating by worst-case bounds instead of click rates costs little",
        "not studied",
        "; ".join(f"{total:g}: {part:.0%} fewer clicks lost" for total, part in saved.items()),
        judged(max(saved.values()) < 0.1, partly=min(saved.values()) < 0.1),
        f"With true click rates known. At 20, {both} experiments are funded both ways, "
        f"{pivot[20.0, 'bound']['funded']} by bound and {pivot[20.0, 'simulated regret']['funded']} by "
        "simulated regret: it prefers experiments whose arms really differ.",
    )


WAYS = {"bound": "#0072B2", "simulated regret": "#009E73"}


def bound_chart(table: pl.DataFrame) -> ChartType:
    """Chart regret over the budget on a log scale: bounds dashed, the worst simulated solid.

    Args:
        table: columns strategy, budget, bound, worst_regret.
    """
    kinds = {"bound": "bound", "worst_regret": "simulated, worst"}
    records = [
        {"strategy": row["strategy"], "budget": row["budget"], "kind": word, "regret": row[column]}
        for row in table.iter_rows(named=True)
        for column, word in kinds.items()
    ]
    base = alt.Chart(values(records), width=460, height=260).encode(
        x=alt.X("budget:Q", title="privacy budget"),
        y=alt.Y(
            "regret:Q",
            title="clicks lost",
            scale=alt.Scale(type="log", domain=[300, 200_000], nice=False),
            axis=alt.Axis(format="~s", values=[1000, 10_000, 100_000]),
        ),
        color=alt.Color(
            "strategy:N",
            scale=alt.Scale(domain=list(STRATEGY_COLOURS), range=list(STRATEGY_COLOURS.values())),
        ),
    )
    dash = alt.StrokeDash(
        "kind:N", title=None, scale=alt.Scale(domain=list(kinds.values()), range=[[5, 4], [1, 0]])
    )
    return themed(
        base.mark_line().encode(strokeDash=dash) + base.mark_point(filled=True, size=35, opacity=1)
    )


def difference_chart(budgets: pl.DataFrame, lost: pl.DataFrame) -> ChartType:
    """Chart budgets as one point per experiment, and total lost clicks by firm budget.

    Args:
        budgets: columns experiment, by_bound, by_simulation.
        lost: columns firm_budget, allocated_by, lost_clicks.
    """
    top = 1.05 * max([1.0, *budgets["by_bound"].to_list(), *budgets["by_simulation"].to_list()])
    scale = alt.Scale(domain=[0, top], nice=False)
    diagonal = alt.Chart(values([{"a": 0.0, "b": 0.0}, {"a": top, "b": top}]))
    points = (
        alt.Chart(values(budgets.to_dicts()), title="Budgets at a firm budget of 20")
        .mark_point(filled=True, size=45, opacity=0.45, color="#0072B2")
        .encode(
            x=alt.X("by_bound:Q", title="by bound", scale=scale),
            y=alt.Y("by_simulation:Q", title="by simulated regret", scale=scale),
        )
    )
    line = diagonal.mark_line(color=INK, strokeWidth=1, opacity=0.5).encode(
        x=alt.X("a:Q"), y=alt.Y("b:Q")
    )
    bars = (
        alt.Chart(values(lost.to_dicts()), title="Clicks lost", width=300, height=260)
        .mark_bar()
        .encode(
            x=alt.X("firm_budget:O", title="firm budget", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("allocated_by:N", sort=list(WAYS)),
            y=alt.Y("lost_clicks:Q", title="clicks lost by all experiments", axis=SI_AXIS),
            color=alt.Color(
                "allocated_by:N",
                title="allocated by",
                scale=alt.Scale(domain=list(WAYS), range=list(WAYS.values())),
            ),
        )
    )
    return themed(alt.hconcat((line + points).properties(width=260, height=260), bars))
