"""The input of tables: counts, with discrete Laplace noise if there is a trace budget.

This is the only place in the simulator where decisions enter a publication. A decision enters once,
with its click, and every cell gets noise on its new shows (scale 4 / trace budget) and on its new
rewards (the same in millionths, as the service counts them), whether or not anything entered it.
"""

from __future__ import annotations

import math

from deniable._compile import compiled
from deniable.simulation.kernels.random_numbers import failures_before_success
from deniable.simulation.kernels.state import IntArray, WordArray

REWARD = 1_000_000
"""A click in millionths, the unit of rewards."""

SENSITIVITY = 4.0
"""Replacing one visitor changes two cells, each by one show and at most one reward."""


@compiled
def discrete_laplace(scale: float, state: WordArray) -> int:
    """Draw P(X = x) proportional to e^(-|x| / scale), as the difference of two geometric variables."""
    return failures_before_success(-scale, state) - failures_before_success(-scale, state)


@compiled
def enter_counts(
    new_shows: IntArray,
    new_clicks: IntArray,
    trace_budget: float,
    state: WordArray,
    shows: IntArray,
    rewards: IntArray,
) -> None:
    """Add what is new since the last publication to the sums from which tables are made.

    All arrays have the same two axes, segments and arms in any order. The sums may become negative,
    and rewards may exceed shows: clip where they are used, not here.

    Args:
        new_shows: decisions that were in no earlier publication, by cell.
        new_clicks: their clicks.
        trace_budget: 0 for no noise.
        state: the generator.
        shows: the sums so far, updated in place.
        rewards: the sums so far, in millionths, updated in place.
    """
    for i in range(shows.shape[0]):
        for j in range(shows.shape[1]):
            shows[i, j] += new_shows[i, j]
            rewards[i, j] += REWARD * new_clicks[i, j]
            if trace_budget > 0.0:
                scale = SENSITIVITY / trace_budget
                shows[i, j] += discrete_laplace(scale, state)
                rewards[i, j] += discrete_laplace(REWARD * scale, state)


@compiled
def noise_variance(publications: int, trace_budget: float, shows: float, rate: float) -> float:
    """Return the variance that the noise of this many publications adds to a cell's click rate.

    2 m (4 / trace budget)^2 (1 + rate^2) / shows^2.
    """
    if trace_budget <= 0.0:
        return 0.0
    scale = SENSITIVITY / trace_budget
    return float(2.0 * publications * scale * scale * (1.0 + rate * rate) / math.pow(shows, 2.0))
