"""What the joint strategy loses when it is given a wrong number of visitors, or none."""

from __future__ import annotations

import math

import polars as pl

from deniable import Case, Environment
from deniable.policies.tables import JointPolicy
from deniable.studies.context import Context
from deniable.studies.contract import Claim, judged

BUDGET = 1.0
TOLD: dict[str, float] = {
    "the truth": 1.0,
    "a tenth": 0.1,
    "ten times as many": 10.0,
    "nothing": 0.0,
}
"""The number given to the strategy, relative to the actual visitors; 0 if unknown."""

_ENOUGH = 0.05


def horizon_table(
    context: Context, places: dict[str, Environment], repetitions: int
) -> pl.DataFrame:
    """Return the share of perfect information with its 95% interval, by world and given horizon."""
    batches = [
        [Case(world, JointPolicy(BUDGET, round(part * world.horizon))) for part in TOLD.values()]
        for world in places.values()
    ]
    rows = []
    for (title, world), result in zip(
        places.items(), context.simulate_each(batches, repetitions), strict=True
    ):
        best = world.rates.max(axis=0) - world.rates.mean(axis=0)
        gain = float(world.horizon * (world.shares * best).sum())
        found = result.summary("regret").iter_rows(named=True)
        for (told, part), row in zip(TOLD.items(), found, strict=True):
            rows.append(
                {
                    "world": title,
                    "told": told,
                    "told_visitors": round(part * world.horizon),
                    "share": 1 - row["mean"] / gain,
                    "low": 1 - row["high"] / gain,
                    "high": 1 - row["low"] / gain,
                    "repetitions": repetitions,
                }
            )
    return pl.DataFrame(rows)


def horizon_claim(table: pl.DataFrame) -> Claim:
    """Check whether a wrong horizon costs less than five points anywhere."""
    told = []
    worst = -math.inf
    for name in list(TOLD)[1:]:
        lost: dict[str, float] = {}
        for (world,), part in table.group_by("world", maintain_order=True):
            shares = dict(zip(part["told"], part["share"], strict=True))
            lost[str(world)] = shares["the truth"] - shares[name]
        where = max(lost, key=lost.__getitem__)
        worst = max(worst, lost[where])
        told.append(
            f"told {name}: {100 * sum(lost.values()) / len(lost):.1f} on average, "
            f"{100 * lost[where]:.1f} at most ({where})"
        )
    return Claim(
        f"A wrong or unknown number of visitors costs joint less than {100 * _ENOUGH:.0f} points",
        "not studied",
        "points lost at budget 1: " + "; ".join(told),
        judged(worst < _ENOUGH, partly=worst < 2 * _ENOUGH),
        "The number decides how long it pays to explore. The promise does not depend on it.",
    )
