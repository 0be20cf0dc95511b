"""Two side questions of the study of the joint strategy: its proven variant, and a wrong horizon.

The bound is proved for an optimistic variant, which is simulated exactly. Upper bounds ``U = X/N +
sqrt(log T / N)`` of all click rates, at most 1, replace the rates in the linear programme. An epoch
ends before any shown pair of arm and segment can have grown by more than the factor rho, and before
all visitors have; shares are refreshed at visitors ``rho^i``. This variant exists for the proof and
learns far more slowly than the strategy that is served.

The other question is what the strategy loses when it is given a wrong number of visitors, or none.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from deniable import Case, Environment
from deniable._validation import FloatArray
from deniable.strategies.joint import Joint
from deniable.strategies.joint_lp import proved_table
from deniable.theory.joint import GROWTH
from research.study import Claim, Context, judged


def optimistic_regret(
    rates: FloatArray,
    shares: FloatArray,
    horizon: int,
    budget: float,
    rng: np.random.Generator,
    growth: float = GROWTH,
) -> float:
    """Return the pseudo-regret of one run against each segment's best arm.

    >>> rates = np.array([[0.3, 0.1], [0.1, 0.3]])
    >>> regret = optimistic_regret(rates, np.array([0.5, 0.5]), 100, 1.0, np.random.default_rng(1))
    >>> 0 < regret < 20
    True
    """
    n_segments = len(rates)
    shows, clicks = np.zeros(rates.shape), np.zeros(rates.shape)
    gaps = rates.max(axis=1, keepdims=True) - rates
    share = np.full(n_segments, 1 / n_segments)
    refresh, done, lost = 1.0, 0, 0.0
    width = math.log(horizon)
    while done < horizon:
        while done >= refresh:
            share = shows.sum(axis=1) / done
            refresh *= growth
        seen = np.maximum(shows, 1)
        upper = np.where(shows > 0, np.minimum(1, clicks / seen + np.sqrt(width / seen)), 1.0)
        table = proved_table(upper, share, budget).table
        table = np.where(table > 1e-12, table, 0)
        table /= table.sum(axis=1, keepdims=True)
        served = table > 0
        length = math.floor(((growth - 1) * seen[served] / table[served]).min())
        length = max(1, min(length, math.ceil((growth - 1) * done) or 1, horizon - done))
        coming = rng.multinomial(length, shares)
        shown = np.array([rng.multinomial(n, p) for n, p in zip(coming, table, strict=True)])
        lost += length * float((shares[:, None] * gaps * table).sum())
        shows += shown
        clicks += rng.binomial(shown, rates)
        done += length
    return lost


# -- a wrong number of visitors --------------------------------------------------------------------

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
        [Case(world, Joint(BUDGET, round(part * world.horizon))) for part in TOLD.values()]
        for world in places.values()
    ]
    rows = []
    for (title, world), result in zip(
        places.items(), context.simulate_each(batches, repetitions), strict=True
    ):
        best = world.rates.max(axis=1) - world.rates.mean(axis=1)
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
