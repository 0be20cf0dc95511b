"""Exact simulation of the joint strategy's optimistic variant, for which its bound is proved.

Upper bounds ``U = X/N + sqrt(log T / N)`` of all click rates, at most 1, replace the rates in the
linear programme. An epoch ends before any shown pair of arm and segment can have grown by more than
the factor rho, and before all visitors have; shares are refreshed at visitors ``rho^i``. This
variant exists for the proof and learns far more slowly than the strategy that is served.
"""

from __future__ import annotations

import math

import numpy as np

from deniable._validation import FloatArray
from deniable.strategies.joint_lp import best_table
from deniable.theory.joint import GROWTH


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
    n_segments = rates.shape[1]
    shows, clicks = np.zeros(rates.shape), np.zeros(rates.shape)
    gaps = rates.max(axis=0) - rates
    share = np.full(n_segments, 1 / n_segments)
    refresh, done, lost = 1.0, 0, 0.0
    width = math.log(horizon)
    while done < horizon:
        while done >= refresh:
            share = shows.sum(axis=0) / done
            refresh *= growth
        seen = np.maximum(shows, 1)
        upper = np.where(shows > 0, np.minimum(1, clicks / seen + np.sqrt(width / seen)), 1.0)
        table = best_table(upper, share, budget).table
        table = np.where(table > 1e-12, table, 0)
        table /= table.sum(axis=0)
        served = table > 0
        length = math.floor(((growth - 1) * seen[served] / table[served]).min())
        length = max(1, min(length, math.ceil((growth - 1) * done) or 1, horizon - done))
        coming = rng.multinomial(length, shares)
        shown = np.array([rng.multinomial(n, p) for n, p in zip(coming, table.T, strict=True)]).T
        lost += length * float((shares * gaps * table).sum())
        shows += shown
        clicks += rng.binomial(shown, rates)
        done += length
    return lost
