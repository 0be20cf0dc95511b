"""Website design: total clicks of two pages by strategy, budget and firm size."""

from __future__ import annotations

import math
from itertools import pairwise

import polars as pl

from deniable import Environment
from deniable.datasets import WEBSITE_RATES, WEBSITE_RATES_AS_PLOTTED
from research.charts import total_clicks
from research.clicks import ahead_by, best_budget, clicks_table, difference, row_of
from research.study import BUDGETS, Claim, Context, Figure, StudyResult, judged

RATES = {".324/.295": WEBSITE_RATES, ".0324/.0295": WEBSITE_RATES_AS_PLOTTED}
VISITORS = (10_000, 100_000, 1_000_000)
SIGNIFICANT = 3.0
"""Standard errors beyond which a difference is significant; strict, because many are tested."""


def run(context: Context) -> StudyResult:
    """Study three firm sizes and two readings of the click rates, with 1,000 repetitions each."""
    worlds = {
        Environment(rates, visitors, name=f"website {name} {visitors}"): {
            "rates": name,
            "size": f"{visitors:,} visitors",
        }
        for name, rates in RATES.items()
        for visitors in VISITORS
    }
    table = clicks_table(context, worlds, BUDGETS, context.scale(1000, 150))
    figures = tuple(
        Figure(
            f"website_{rates[0]:g}".replace("0.", ""),
            f"Total clicks, click rates {name}: means over {table['repetitions'][0]:,} repetitions "
            "with 95% intervals. Dashed: random and perfect information.",
            total_clicks(table.filter(pl.col("rates") == name), BUDGETS, columns="size"),
            table.filter(pl.col("rates") == name),
        )
        for name, rates in RATES.items()
    )
    return StudyResult(
        headline=_headline(table),
        paragraphs=(
            "Two versions of a business school's website compete for clicks. A small budget makes both "
            "strategies nearly random. More budget helps both, until the constant strategy becomes too "
            "greedy: it may settle early on the worse page. The dynamic strategy explores first and "
            "does not lose from a larger budget.",
            "The paper's text gives click rates of .324 and .295, its axes read as .0324 and .0295. "
            "Both are run. With the larger rates a million visitors are enough to find the better page "
            "even with few random arms, and the constant strategy gains up to the largest budget.",
        ),
        figures=figures,
        claims=(
            _axes(table),
            _order(table),
            _near_random(table),
            *(_peak(table, name) for name in RATES),
            *(_saturates(table, name) for name in RATES),
            *(_advantage(table, name) for name in RATES),
        ),
    )


def _of(table: pl.DataFrame, name: str, visitors: int) -> pl.DataFrame:
    return table.filter((pl.col("rates") == name) & (pl.col("visitors") == visitors))


def _headline(table: pl.DataFrame) -> str:
    part = _of(table, ".0324/.0295", 1_000_000)
    dynamic = row_of(part, "dynamic", 3.0)["share"]
    constant = row_of(part, "constant", 5.0)["share"]
    return (
        f"A budget of 3 with the dynamic strategy keeps {dynamic:.0%} of what perfect information would "
        f"gain; a constant 5 is too greedy and keeps {constant:.0%}."
    )


def _axes(table: pl.DataFrame) -> Claim:
    text, axes = (row_of(_of(table, name, 1_000_000), "perfect")["mean"] for name in RATES)
    return Claim(
        "The click rates are .324 and .295",
        "text .324/.295, axes .0324/.0295",
        f"perfect information, 1e6 visitors: {text:,.0f} or {axes:,.0f} clicks",
        "holds in part",
        "Text and axes differ by a factor of ten. Both are run; the patterns of the paper's figure are "
        "those of the smaller rates.",
        settled=True,
    )


def _order(table: pl.DataFrame) -> Claim:
    """Check that perfect is above all and random below all, within the errors of the means."""
    parts = [_of(table, name, visitors) for name in RATES for visitors in VISITORS]
    top = all(
        row["mean"] <= best["mean"] + 3 * (row["error"] + best["error"])
        for part in parts
        for best in [row_of(part, "perfect")]
        for row in part.iter_rows(named=True)
    )
    bottom = all(
        row["mean"] >= worst["mean"] - 3 * (row["error"] + worst["error"])
        for part in parts
        for worst in [row_of(part, "random")]
        for row in part.iter_rows(named=True)
    )
    small = _of(table, ".0324/.0295", 1_000_000)
    gittins, greedy = (row_of(small, name)["share"] for name in ("gittins", "epsilon-greedy"))
    followed = all(
        min(row_of(part, name)["share"] for name in ("gittins", "epsilon-greedy"))
        >= max(part.filter(pl.col("budget").is_not_null())["share"]) - 0.02
        for part in parts
    )
    return Claim(
        "Perfect information has most clicks, then epsilon-greedy and Gittins; random has fewest",
        "order",
        f"of the way from random to perfect, 1e6 visitors at .0324: epsilon-greedy {greedy:.0%}, "
        f"Gittins {gittins:.0%}",
        judged(top and bottom and followed, partly=top and bottom),
        "First and last place hold. The places between change with size: the Gittins index is optimal "
        "for a discounted future (its discount here is at most .9999) and stops learning too early for "
        "a million visitors with small rates.",
    )


def _near_random(table: pl.DataFrame) -> Claim:
    shares = table.filter(pl.col("budget") == 0.05)["share"].to_list()
    average = sum(shares) / len(shares)
    return Claim(
        "With a budget of .05 both strategies behave close to random",
        "close",
        f"{abs(average):.1%} of the way from random to perfect",
        judged(abs(average) < 0.1),
        "On average over strategies, sizes and rates. 97.5% of arms are random.",
    )


def _peak(table: pl.DataFrame, name: str) -> Claim:
    best = {visitors: best_budget(_of(table, name, visitors), "constant") for visitors in VISITORS}
    falls = {}
    for visitors in VISITORS:
        part = _of(table, name, visitors)
        peak, end = (row_of(part, "constant", budget) for budget in (best[visitors], BUDGETS[-1]))
        falls[visitors] = ahead_by(peak, end)[1]
    inside = [visitors for visitors in VISITORS if falls[visitors] > SIGNIFICANT]
    return Claim(
        f"The constant strategy peaks at an intermediate budget ({name})",
        "inside the range",
        "; ".join(f"T={visitors:.0e}: {budget:g}" for visitors, budget in best.items()).replace(
            "e+0", "e"
        ),
        judged(len(inside) == len(VISITORS), partly=bool(inside)),
        f"The fall from the peak to budget 5 is beyond chance for {_sizes(inside)}. With many clicks "
        "to learn from, few random arms are enough and the peak moves beyond 5; with too few, nothing "
        "can be told.",
    )


def _saturates(table: pl.DataFrame, name: str) -> Claim:
    gaps, drops = [], []
    for visitors in VISITORS:
        part = _of(table, name, visitors)
        most, free = row_of(part, "dynamic", BUDGETS[-1]), row_of(part, "epsilon-greedy")
        gaps.append(ahead_by(most, free)[1])
        rows = [row_of(part, "dynamic", budget) for budget in BUDGETS]
        drops += [ahead_by(a, b)[1] for a, b in pairwise(rows)]
    level = all(abs(gap) < SIGNIFICANT for gap in gaps)
    return Claim(
        f"The dynamic strategy improves with the budget and reaches a ceiling ({name})",
        "ceiling at epsilon-greedy",
        "budget 5 minus epsilon-greedy in standard errors: "
        + ", ".join(f"{gap:+.1f}" for gap in gaps),
        judged(level and max(drops) < SIGNIFICANT, partly=level),
        "With two arms a budget of 5 does not bind within a million visitors: both are the same policy.",
    )


def _advantage(table: pl.DataFrame, name: str) -> Claim:
    found = {
        (visitors, budget): difference(_of(table, name, visitors), budget)
        for visitors in VISITORS
        for budget in BUDGETS
    }
    large = [found[visitors, budget][1] for visitors in VISITORS[1:] for budget in (3.0, 5.0)]
    ahead = sum(z > SIGNIFICANT for z in large)
    behind = sum(z < -SIGNIFICANT for z in large)
    told = ", ".join(
        f"{found[visitors, 5.0][0]:+,.0f} ({found[visitors, 5.0][1]:+.1f} se)"
        for visitors in VISITORS
    )
    grows = all(_larger(found[b, 5.0], found[a, 5.0]) for a, b in pairwise(VISITORS))
    return Claim(
        f"Dynamic beats constant, more so with more visitors; significant from 1e5 on ({name})",
        "significant at 1e5 and 1e6",
        f"budget 5, T = 1e4, 1e5, 1e6: {told}",
        judged(ahead == len(large) and grows, partly=ahead > 0),
        f"At budgets 3 and 5 with 1e5 and 1e6 visitors: dynamic ahead beyond chance in {ahead} of 4, "
        f"behind in {behind}. At budgets up to 1 the two hardly differ, because the cap binds after "
        "fewer than 60 visitors.",
    )


def _larger(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether one difference significantly exceeds another; each with its standard errors."""
    errors = [gap / z if z else 0.0 for gap, z in (one, other)]
    return one[0] - other[0] > SIGNIFICANT * math.hypot(*errors)


def _sizes(inside: list[int]) -> str:
    return " and ".join(f"{visitors:,}" for visitors in inside) or "no size"
