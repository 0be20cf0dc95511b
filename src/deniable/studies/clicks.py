"""Total clicks of both strategies over budgets, beside four benchmarks: what two studies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from deniable import (
    Case,
    ConstantPolicy,
    DynamicPolicy,
    Environment,
    EpsilonGreedyPolicy,
    GittinsPolicy,
    PerfectPolicy,
    RandomPolicy,
)
from deniable.studies.context import Context

Policy = (
    ConstantPolicy
    | DynamicPolicy
    | EpsilonGreedyPolicy
    | GittinsPolicy
    | PerfectPolicy
    | RandomPolicy
)
BENCHMARKS = (EpsilonGreedyPolicy(), GittinsPolicy(), PerfectPolicy(), RandomPolicy())


def clicks_table(
    context: Context,
    worlds: Mapping[Environment, Mapping[str, str | float]],
    budgets: Sequence[float],
    repetitions: int,
) -> pl.DataFrame:
    """Mean clicks with 95% intervals: one row a world, policy and budget.

    Args:
        context: how to run.
        worlds: environments, each with what to call it in the table's further columns.
        budgets: of the constant and the dynamic strategy.
        repetitions: of each.

    Returns:
        Columns of the worlds, visitors, policy, budget (null for benchmarks), mean, low, high,
        error (the standard error of the mean), share (of the way from random to perfect).
    """
    policies: list[Policy] = [
        *(ConstantPolicy(budget) for budget in budgets),
        *(DynamicPolicy(budget) for budget in budgets),
        *BENCHMARKS,
    ]
    batches = [[Case(world, policy) for policy in policies] for world in worlds]
    results = context.simulate_each(batches, repetitions)
    tables = []
    for names, result in zip(worlds.values(), results, strict=True):
        kinds = pl.DataFrame(
            {
                "label": [policy.label for policy in policies],
                "kind": [policy.name for policy in policies],
                "budget": [getattr(policy, "budget", None) for policy in policies],
            }
        )
        mean = {row["policy"]: row["mean"] for row in result.summary().to_dicts()}
        random, perfect = mean[RandomPolicy().label], mean[PerfectPolicy().label]
        tables.append(
            result.summary()
            .join(kinds, left_on="policy", right_on="label", maintain_order="left")
            .select(
                *(pl.lit(value).alias(column) for column, value in names.items()),
                "visitors",
                pl.col("kind").alias("policy"),
                "budget",
                "repetitions",
                "mean",
                "low",
                "high",
                error=(pl.col("high") - pl.col("low")) / (2 * 1.959963984540054),
                share=(pl.col("mean") - random) / (perfect - random),
            )
        )
    return pl.concat(tables)


def best_budget(table: pl.DataFrame, policy: str) -> float:
    """The budget with the most clicks."""
    rows = table.filter(pl.col("policy") == policy)
    return float(rows.sort("mean", descending=True)["budget"][0])


def difference(table: pl.DataFrame, budget: float) -> tuple[float, float]:
    """Dynamic minus constant clicks at a budget, and how many standard errors that is."""
    rows = {
        row["policy"]: row for row in table.filter(pl.col("budget") == budget).iter_rows(named=True)
    }
    gap = rows["dynamic"]["mean"] - rows["constant"]["mean"]
    error = (rows["dynamic"]["error"] ** 2 + rows["constant"]["error"] ** 2) ** 0.5
    return float(gap), float(gap / error) if error > 0 else 0.0


def row_of(table: pl.DataFrame, policy: str, budget: float | None = None) -> dict[str, float]:
    """The one row of a policy, at its budget if it has one."""
    chosen = table.filter(pl.col("policy") == policy)
    if budget is not None:
        chosen = chosen.filter(pl.col("budget") == budget)
    return dict(chosen.row(0, named=True))
