"""The paper's appendix: bounds for several segments, composition, and the sum over finite rounds."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import polars as pl

from deniable import Case, Dynamic, Environment
from deniable.charts.theme import themed, values
from deniable.privacy import (
    RandomizedResponse,
    dynamic_exploration,
    exhaustion_clock,
    exploration_from_risk,
    parallel,
)
from deniable.privacy.composition import nano_up
from deniable.theory import (
    constant_regret,
    dynamic_regret,
    dynamic_regret_terms_any_segments,
    per_round_regret,
)
from research.study import Claim, Context, Figure, StudyResult, judged

ARMS, VISITORS, SEGMENTS = 3, 200_000, 3
BUDGETS = tuple(round(0.5 + 0.1 * i, 1) for i in range(46))
SIMULATED = (2.5, 3.6)
RATES = ((0.30, 0.20, 0.25), (0.25, 0.30, 0.20), (0.20, 0.25, 0.30))
"""Click rates in which each segment has a different best arm."""

ROUNDS = ((2, 10_000, 1.0), (2, 100_000, 3.0), (5, 100_000, 2.0))
"""Arms, visitors and budget of the sums over rounds."""


def run(context: Context) -> StudyResult:
    """Study segments, composition and rounds; only the regret of two budgets is simulated."""
    bounds = _segment_bounds()
    simulated = _simulated(context, context.scale(200, 20))
    rounds = _rounds()
    return StudyResult(
        headline="The appendix's bound for several segments can rise with the budget where regret "
        "falls; composition holds for one draw per visitor.",
        paragraphs=(
            "The appendix extends the bounds to several segments, says how risks of many visitors and "
            "many experiments compose, and sums the bound of one visitor over all of them. Planning in "
            "this package uses the sum over segments and the whole sum over visitors instead of the "
            "printed forms.",
        ),
        figures=(
            Figure(
                "segment_bounds",
                f"Dynamic strategy, {ARMS} arms, {SEGMENTS} segments, {VISITORS:,} visitors: the "
                "appendix's bound and the sum of the segments' bounds, over the budget.",
                _chart(bounds),
                bounds,
            ),
        ),
        claims=(
            _constant_segments(),
            _dynamic_segments(bounds, simulated),
            _one_segment_is_nested(),
            _parallel(),
            _second_draw(),
            _finite_rounds(rounds),
        ),
        tables={"simulated_regret": simulated, "finite_rounds": rounds},
    )


def _segment_bounds() -> pl.DataFrame:
    budgets = np.array(BUDGETS)
    printed = dynamic_regret(ARMS, VISITORS, budgets, SEGMENTS)
    summed = dynamic_regret(ARMS, VISITORS, budgets, SEGMENTS, form="summed")
    return pl.DataFrame(
        {"budget": budgets, "appendix": np.asarray(printed), "summed": np.asarray(summed)}
    )


def _simulated(context: Context, repetitions: int) -> pl.DataFrame:
    world = Environment(RATES, VISITORS, name="appendix segments")
    cases = [Case(world, Dynamic(budget)) for budget in SIMULATED]
    return context.simulate(cases, repetitions).summary("regret")


def _rounds() -> pl.DataFrame:
    rows = []
    for arms, visitors, budget in ROUNDS:
        clocks = np.arange(1, visitors + 1)
        schedule = np.asarray(dynamic_exploration(arms, clocks))
        explored = np.maximum(schedule, float(exploration_from_risk(arms, budget)))
        total = float(np.minimum(np.asarray(per_round_regret(arms, clocks, explored)), 1).sum())
        rows.append(
            {
                "arms": arms,
                "visitors": visitors,
                "budget": budget,
                "sum_of_rounds": total,
                "appendix": float(dynamic_regret(arms, visitors, budget)),
                "summed": float(dynamic_regret(arms, visitors, budget, form="summed")),
            }
        )
    return pl.DataFrame(rows)


def _chart(bounds: pl.DataFrame) -> alt.TopLevelMixin:
    tidy = bounds.unpivot(index="budget", variable_name="form", value_name="bound").to_dicts()
    chart = (
        alt.Chart(values(tidy), width=460, height=260)
        .mark_line()
        .encode(
            x=alt.X("budget:Q", title="privacy budget"),
            y=alt.Y("bound:Q", title="clicks lost, at most", axis=alt.Axis(format="~s")),
            color=alt.Color("form:N", title=None),
        )
    )
    drawn: alt.TopLevelMixin = themed(chart)
    return drawn


def _constant_segments() -> Claim:
    ratios = [
        float(constant_regret(k, t, g, j)) / float(constant_regret(k, t, g, j, form="summed"))
        for k in (2, 5, 20)
        for t in (10_000, 1_000_000)
        for g in (0.5, 1.0, 3.0)
        for j in (2, 5, 20)
    ]
    return Claim(
        "With J segments the constant bound is T e + B sqrt(K J T log T / e)",
        "upper bound",
        f"{min(ratios):.2f} to {max(ratios):.2f} times the sum of the segments' bounds",
        judged(min(ratios) >= 1),
        "Segments of equal size; it counts log T where a segment has log (T / J).",
    )


def _dynamic_segments(bounds: pl.DataFrame, simulated: pl.DataFrame) -> Claim:
    at = dict(bounds.select("budget", "appendix").iter_rows())
    low, high = (at[budget] for budget in SIMULATED)
    rises = bool((np.diff(bounds["appendix"].to_numpy()) > 0).any())
    first, second = simulated.to_dicts()
    change = second["mean"] - first["mean"]
    noise = math.hypot(first["high"] - first["mean"], second["high"] - second["mean"])
    moved = "falls" if change < -noise else "rises" if change > noise else "stays the same"
    return Claim(
        "The dynamic bound extends to J segments",
        "the appendix's formula",
        f"bound at {SIMULATED[0]:g} and {SIMULATED[1]:g}: {low:,.0f} and {high:,.0f}; simulated "
        f"regret {first['mean']:,.0f} and {second['mean']:,.0f}",
        judged(not rises, partly=True),
        f"It is an upper bound, but it is not monotone: regret {moved} between these budgets while the "
        "bound rises. It counts visitors twice and relaxes sqrt T - sqrt t to sqrt (T - t). The sum of "
        "the segments' bounds has no such hump.",
        settled=True,
    )


def _one_segment_is_nested() -> Claim:
    budgets = np.array((0.5, 1.0, 2.0, 3.0))
    general = np.asarray(dynamic_regret_terms_any_segments(2, 100_000, budgets, 1).total)
    sharp = np.asarray(dynamic_regret(2, 100_000, budgets))
    ratio = general / sharp
    return Claim(
        "With one segment the appendix's bound is the main text's",
        "nested",
        f"{ratio.min():.2f} to {ratio.max():.2f} times it, two arms, 100,000 visitors",
        judged(bool(np.allclose(ratio, 1)), partly=bool((ratio >= 1).all())),
        "It is looser: sqrt (T - t) is larger than sqrt T - sqrt t. Here the main text's form is used "
        "for one segment.",
        settled=True,
    )


def _parallel() -> Claim:
    budget = 1.0
    clocks = np.unique(np.geomspace(1, 1_000_000, 61).astype(np.int64))
    schedule = np.asarray(dynamic_exploration(ARMS, clocks))
    explored = np.maximum(schedule, float(exploration_from_risk(ARMS, budget)))
    greedy, other = 1 - explored + explored / ARMS, explored / ARMS
    risks = np.log(greedy / other)
    composed = parallel([nano_up(float(risk)) for risk in risks]) / 1e9
    late = int(exhaustion_clock(ARMS, budget))
    return Claim(
        "Parallel composition: an experiment's risk is the largest of its visitors' risks",
        "max over t of xi_t",
        f"{composed:.6f} over visitors 1 to 1e6 at a budget of {budget:g}",
        judged(abs(composed - budget) < 1e-6 and bool((risks <= budget + 1e-12).all())),
        f"Every visitor's row was compared: the largest log ratio is reached from visitor {late:,} on.",
    )


def _second_draw() -> Claim:
    shown = RandomizedResponse(ARMS, 1.0).matrix
    twice = np.log(np.max(shown[0] ** 2) / np.min(shown[0] ** 2))
    return Claim(
        "Parallel composition needs one draw for each visitor",
        "assumed",
        f"two draws for one visitor at a risk of 1: {twice:.3f}",
        judged(math.isclose(float(twice), 2.0)),
        "A second independent draw is a second spend. The service therefore stores the first arm and "
        "shows it again.",
    )


def _finite_rounds(rounds: pl.DataFrame) -> Claim:
    printed = (rounds["sum_of_rounds"] / rounds["appendix"]).to_list()
    whole = (rounds["sum_of_rounds"] / rounds["summed"]).to_list()
    return Claim(
        "The dynamic bound is the sum of the visitors' bounds over finitely many rounds",
        "sum over t",
        "sum over printed bound: " + ", ".join(f"{ratio:.3f}" for ratio in printed),
        judged(max(printed) <= 1, partly=max(whole) <= 1),
        "Each visitor's bound counts as 1 at most. The printed learning term leaves out a factor of "
        f"3/2; with it the sums are {min(whole):.3f} to {max(whole):.3f} times the bound.",
        settled=True,
    )
