"""Total clicks of both strategies over budgets, next to four benchmarks; shared by two studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from deniable import Case, Constant, Dynamic, Environment, EpsilonGreedy, Gittins, Perfect, Random
from research.study import Context

Simulated = Constant | Dynamic | EpsilonGreedy | Gittins | Perfect | Random
BENCHMARKS = (EpsilonGreedy(), Gittins(), Perfect(), Random())


def clicks_table(
    context: Context,
    worlds: Mapping[Environment, Mapping[str, str | float]],
    budgets: Sequence[float],
    repetitions: int,
) -> pl.DataFrame:
    """Return mean clicks with 95% intervals: one row per world, policy and budget.

    Args:
        context: the context.
        worlds: environments, each with its values in the table's additional columns.
        budgets: budgets of the constant and the dynamic strategy.
        repetitions: repetitions of each.

    Returns:
        Columns of the worlds, visitors, policy, budget (null for benchmarks), mean, low, high,
        error (the standard error of the mean), share (of the way from random to perfect), regret
        (mean pseudo-regret: expected clicks lost) and regret_error.
    """
    policies: list[Simulated] = [
        *(Constant(budget) for budget in budgets),
        *(Dynamic(budget) for budget in budgets),
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
        regret = result.summary("regret").select(
            "policy", regret="mean", regret_error=_error(pl.col("low"), pl.col("high"))
        )
        mean = {row["policy"]: row["mean"] for row in result.summary().to_dicts()}
        random, perfect = mean[Random().label], mean[Perfect().label]
        tables.append(
            result.summary()
            .join(kinds, left_on="policy", right_on="label", maintain_order="left")
            .join(regret, on="policy", maintain_order="left")
            .select(
                *(pl.lit(value).alias(column) for column, value in names.items()),
                "visitors",
                pl.col("kind").alias("policy"),
                "budget",
                "repetitions",
                "mean",
                "low",
                "high",
                "regret",
                "regret_error",
                error=_error(pl.col("low"), pl.col("high")),
                share=(pl.col("mean") - random) / (perfect - random),
            )
        )
    return pl.concat(tables)


def _error(low: pl.Expr, high: pl.Expr) -> pl.Expr:
    """Return the standard error of a mean, from its 95% interval."""
    return (high - low) / (2 * 1.959963984540054)


def best_budget(table: pl.DataFrame, policy: str) -> float:
    """Return the budget with the most expected clicks."""
    rows = table.filter(pl.col("policy") == policy)
    return float(rows.sort("regret")["budget"][0])


def difference(table: pl.DataFrame, budget: float) -> tuple[float, float]:
    """Return dynamic minus constant expected clicks at a budget, also in standard errors."""
    return ahead_by(row_of(table, "dynamic", budget), row_of(table, "constant", budget))


def ahead_by(one: Mapping[str, float], other: Mapping[str, float]) -> tuple[float, float]:
    """Return how many expected clicks one policy is ahead of another, also in standard errors.

    Uses pseudo-regret, which excludes the randomness of clicks and is therefore less noisy.
    """
    gap = other["regret"] - one["regret"]
    error = (one["regret_error"] ** 2 + other["regret_error"] ** 2) ** 0.5
    return float(gap), float(gap / error) if error > 0 else 0.0


def row_of(table: pl.DataFrame, policy: str, budget: float | None = None) -> dict[str, float]:
    """Return the only row of a policy, at its budget if it has one."""
    chosen = table.filter(pl.col("policy") == policy)
    if budget is not None:
        chosen = chosen.filter(pl.col("budget") == budget)
    return dict(chosen.row(0, named=True))
