"""Recommendations: total clicks with 2, 4 and 8 fashion items."""

from __future__ import annotations

import polars as pl

from deniable import Environment
from deniable.datasets import RECOMMENDATION_COUNTS, RECOMMENDATION_RATES, open_bandit
from deniable.privacy import exploration_from_risk
from research.charts import total_clicks
from research.clicks import ahead_by, best_budget, clicks_table, difference, row_of
from research.study import BUDGETS, Claim, Context, Figure, StudyResult, judged

ARMS = (2, 4, 8)
VISITORS = (100_000, 1_000_000)
SIGNIFICANT = 3.0
"""Standard errors beyond which a difference is significant; strict, because many are tested."""


def run(context: Context) -> StudyResult:
    """Study three numbers of items and two sizes, with 1,000 repetitions of each policy."""
    worlds = {
        Environment(
            RECOMMENDATION_RATES[:arms], visitors, name=f"recommendations {arms} {visitors}"
        ): {"arms": f"{arms} items", "size": f"{visitors:,} visitors"}
        for arms in ARMS
        for visitors in VISITORS
    }
    table = clicks_table(context, worlds, BUDGETS, context.scale(1000, 150))
    figure = Figure(
        "recommendations",
        f"Total clicks with 2, 4 and 8 items: means over {table['repetitions'][0]:,} repetitions with "
        "95% intervals. Dashed: random and perfect information.",
        total_clicks(table, BUDGETS, columns="size", rows="arms", width=300, height=170),
        table,
    )
    return StudyResult(
        headline="With more items a budget buys less: what 3 does for two items takes 5 for eight.",
        paragraphs=(
            "Fashion items with click rates between .0011 and .0053, from a field experiment that "
            "showed them at random. With more items the same budget means more random arms, so the "
            "constant strategy can use a larger budget before it becomes too greedy.",
        ),
        figures=(figure,),
        claims=(
            *_items(context),
            _exploration(),
            _constant(table),
            _dynamic(table),
            _limits(table),
        ),
    )


def _of(table: pl.DataFrame, arms: int, visitors: int) -> pl.DataFrame:
    return table.filter((pl.col("arms") == f"{arms} items") & (pl.col("visitors") == visitors))


def _items(context: Context) -> list[Claim]:
    low, high = min(RECOMMENDATION_RATES), max(RECOMMENDATION_RATES)
    file = context.data_file("open_bandit")
    if file is None:
        known, rank = "built-in counts; the file was not given", ""
        rows = None
    else:
        counts = open_bandit("all", file)
        rates = sorted((clicks / shown for clicks, shown in counts), reverse=True)
        rows = sum(shown for _, shown in counts)
        eighth = rates[7]
        above = sum(rate >= eighth for rate in RECOMMENDATION_RATES)
        known = (
            f"{above} of the 8 are among the best 8 of {len(counts)} (rates from {eighth:.4f} on)"
        )
        rank = (
            f" The file has {len(counts)} items with rates from {rates[-1]:.4f} to {rates[0]:.4f}."
        )
        assert counts[:8] == list(RECOMMENDATION_COUNTS)
    claims = [
        Claim(
            "The eight highest-performing items are used, with rates from .0012 to .0053",
            ".0012 to .0053",
            f"items 0 to 7: {low:.4f} to {high:.4f}; {known}",
            judged(False, partly=True),
            "The published rates are those of the first eight items of the log, in order, not of the "
            f"best eight. The first K of them are used here.{rank}",
            settled=True,
        )
    ]
    if rows is not None:
        claims.append(
            Claim(
                "1,374,327 visitors over 80 items were recorded",
                "1,374,327",
                f"{rows:,}",
                judged(rows == 1_374_327),
                "Impressions of all items in the file.",
            )
        )
    return claims


def _exploration() -> Claim:
    two, eight = (float(exploration_from_risk(arms, 3)) for arms in (2, 8))
    return Claim(
        "At a budget of 3, going from 2 to 8 arms raises exploration from 10% to 30%",
        "10%, 30%",
        f"{two:.1%}, {eight:.1%}",
        judged(abs(two - 0.1) < 0.01 and abs(eight - 0.3) < 0.01),
        "K / (K - 1 + e^3), rounded in the paper.",
    )


def _constant(table: pl.DataFrame) -> Claim:
    best = {
        (arms, visitors): best_budget(_of(table, arms, visitors), "constant")
        for arms in ARMS
        for visitors in VISITORS
    }
    two = [best[2, visitors] for visitors in VISITORS]
    eight = [best[8, visitors] for visitors in VISITORS]
    told = ", ".join(
        f"K={arms}: {best[arms, VISITORS[0]]:g} and {best[arms, VISITORS[1]]:g}" for arms in ARMS
    )
    later = all(b >= a for a, b in zip(two, eight, strict=True))
    rising = [
        ahead_by(
            row_of(_of(table, arms, visitors), "constant", 5.0),
            row_of(_of(table, arms, visitors), "constant", 3.0),
        )[1]
        > -SIGNIFICANT
        for arms in (4, 8)
        for visitors in VISITORS
    ]
    return Claim(
        "With 4 and 8 items, clicks of the constant strategy generally grow with the budget",
        "peak less pronounced than with 2",
        f"best of the five budgets at 1e5 and 1e6: {told}",
        judged(later and all(rising), partly=later or any(rising)),
        f"From budget 3 to 5 clicks grow or stay in {sum(rising)} of 4 panels with 4 and 8 items.",
    )


def _dynamic(table: pl.DataFrame) -> Claim:
    shares = []
    for arms in ARMS:
        for visitors in VISITORS:
            part = _of(table, arms, visitors)
            most, free = row_of(part, "dynamic", 5.0), row_of(part, "epsilon-greedy")
            shares.append(ahead_by(most, free)[1])
    ahead = sum(
        difference(_of(table, arms, visitors), budget)[1] > SIGNIFICANT
        for arms in ARMS
        for visitors in VISITORS
        for budget in (3.0, 5.0)
    )
    return Claim(
        "The dynamic strategy rises with the budget to the performance without privacy",
        "plateau at the benchmark",
        "budget 5 minus epsilon-greedy in standard errors: "
        + ", ".join(f"{value:+.1f}" for value in shares),
        judged(
            all(value > -SIGNIFICANT for value in shares),
            partly=any(value > -SIGNIFICANT for value in shares),
        ),
        "Two, four, eight items at 1e5 and 1e6 visitors. At budgets 3 and 5 it is ahead of the constant "
        f"strategy beyond chance in {ahead} of 12 cases.",
    )


def _limits(table: pl.DataFrame) -> Claim:
    parts = [_of(table, arms, visitors) for arms in ARMS for visitors in VISITORS]
    inside = all(
        row_of(part, "random")["mean"] - 3 * (row["error"] + row_of(part, "random")["error"])
        <= row["mean"]
        <= row_of(part, "perfect")["mean"] + 3 * (row["error"] + row_of(part, "perfect")["error"])
        for part in parts
        for row in part.iter_rows(named=True)
    )
    best = max(row_of(_of(table, 2, 100_000), "dynamic", budget)["share"] for budget in BUDGETS)
    return Claim(
        "Random and perfect information are the lower and upper bounds of performance",
        "bounds",
        "all policies between them" if inside else "not all between them",
        judged(inside),
        f"Within three standard errors. With 2 items and 1e5 visitors the best is {best:.0%} of the "
        "way from random to perfect: rates this low need more visitors.",
    )
