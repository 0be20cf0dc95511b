"""Total clicks: directions and sizes, and that the verdicts would notice the opposite."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deniable import Environment
from deniable.datasets import RECOMMENDATION_COUNTS, RECOMMENDATION_RATES
from research import recommendations, website
from research.clicks import best_budget, clicks_table, difference, row_of
from research.study import BUDGETS, Context

FEW, MANY = 60, 800
"""Repetitions: many where a direction is tested, so that chance fails it once in thousands."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The website's six worlds."""
    context = Context(kept=tmp_path_factory.mktemp("kept"), seed=1)
    tables = []
    for name, rates in website.RATES.items():
        for visitors in website.VISITORS:
            world = Environment(rates, visitors, name=f"website {name} {visitors}")
            tested = (name, visitors) == (".0324/.0295", 1_000_000)
            repetitions = MANY if tested else FEW
            tables.append(clicks_table(context, {world: {"rates": name}}, BUDGETS, repetitions))
    return pl.concat(tables)


def part(table: pl.DataFrame, visitors: int, rates: str = ".0324/.0295") -> pl.DataFrame:
    return table.filter((pl.col("visitors") == visitors) & (pl.col("rates") == rates))


def swapped(table: pl.DataFrame) -> pl.DataFrame:
    """The fault to be found: each strategy's clicks under the other's name."""
    other = {"constant": "dynamic", "dynamic": "constant"}
    return table.with_columns(policy=pl.col("policy").replace(other))


def test_all_policies_lie_between_random_and_perfect(table: pl.DataFrame) -> None:
    for name in website.RATES:
        for visitors in website.VISITORS:
            rows = part(table, visitors, name)
            random, perfect = row_of(rows, "random"), row_of(rows, "perfect")
            for row in rows.iter_rows(named=True):
                assert row["mean"] > random["mean"] - 4 * (random["error"] + row["error"]), row
                assert row["mean"] < perfect["mean"] + 4 * (perfect["error"] + row["error"]), row


def test_random_and_perfect_are_what_arithmetic_says(table: pl.DataFrame) -> None:
    for name, rates in website.RATES.items():
        for visitors in website.VISITORS:
            rows = part(table, visitors, name)
            for policy, rate in (("random", sum(rates) / 2), ("perfect", max(rates))):
                row = row_of(rows, policy)
                assert abs(row["mean"] - rate * visitors) < 5 * row["error"]


def test_constant_peaks_inside_and_dynamic_saturates(table: pl.DataFrame) -> None:
    large = part(table, 1_000_000)
    assert best_budget(large, "constant") == 3.0
    three, five = (row_of(large, "constant", budget) for budget in (3.0, 5.0))
    assert three["mean"] - five["mean"] > 2 * (three["error"] ** 2 + five["error"] ** 2) ** 0.5
    free, capped = row_of(large, "epsilon-greedy"), row_of(large, "dynamic", 5.0)
    assert (
        abs(free["mean"] - capped["mean"]) < 4 * (free["error"] ** 2 + capped["error"] ** 2) ** 0.5
    )
    assert capped["share"] > 0.85
    gap, errors = difference(large, 5.0)
    assert gap > 100
    assert errors > 3


def test_with_the_texts_rates_a_million_visitors_do_not_need_the_exploration(
    table: pl.DataFrame,
) -> None:
    large = part(table, 1_000_000, ".324/.295")
    assert best_budget(large, "constant") == 5.0
    assert row_of(large, "constant", 5.0)["share"] > 0.94


def test_verdicts_follow_the_numbers(table: pl.DataFrame) -> None:
    """Peak and ceiling hold on the table, and no longer once the strategies change places."""
    good = part(table, 1_000_000)
    three_sizes = pl.concat(
        [good.with_columns(visitors=pl.lit(visitors, pl.Int64)) for visitors in website.VISITORS]
    )
    assert website._peak(three_sizes, ".0324/.0295").verdict == "holds"
    assert website._peak(swapped(three_sizes), ".0324/.0295").verdict == "does not hold"
    assert website._saturates(three_sizes, ".0324/.0295").verdict == "holds"
    assert website._saturates(swapped(three_sizes), ".0324/.0295").verdict != "holds"
    assert website._advantage(swapped(table), ".0324/.0295").verdict != "holds"


def test_eight_items_shift_the_peak_to_larger_budgets(tmp_path: Path) -> None:
    world = Environment(RECOMMENDATION_RATES, 1_000_000, name="eight items")
    table = clicks_table(Context(kept=tmp_path), {world: {"arms": "8 items"}}, (3.0, 5.0), 40)
    for policy in ("constant", "dynamic"):
        three, five = (row_of(table, policy, budget) for budget in (3.0, 5.0))
        assert five["mean"] - three["mean"] > 4 * (three["error"] + five["error"])


def test_the_eight_items_are_the_first_not_the_best(tmp_path: Path) -> None:
    without_file = recommendations._items(Context(kept=tmp_path))
    assert len(without_file) == 1
    assert without_file[0].settled
    assert "built-in counts" in without_file[0].ours
    folder = tmp_path / "open_bandit"
    folder.mkdir()
    counts = [*RECOMMENDATION_COUNTS, (999, 1000)]
    lines = [f"{item},{c},{n},all" for item, (c, n) in enumerate(counts)]
    text = "item_id,clicks,impressions,campaign\n" + "\n".join(lines)
    (folder / "item_ctr_random_policy.csv").write_text(text)
    claim, visitors = recommendations._items(Context(kept=tmp_path, data=tmp_path))
    assert "7 of the 8 are among the best 8 of 9" in claim.ours
    assert claim.verdict == "holds in part"
    assert visitors.verdict == "does not hold"  # not 1,374,327
