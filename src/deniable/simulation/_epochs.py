"""Policies that publish one table per epoch, simulated exactly: an epoch is a few multinomial draws.

Within an epoch every visitor is drawn independently from the same table, so the counts of the epoch are
multinomial by segment, then by arm, then binomial in clicks. A run costs as many draws as there are
epochs, that is, log T.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable._compile import compiled_with_arrays
from deniable.simulation.kernels.random_numbers import binomial, split_multinomial
from deniable.strategies.joint_kernel import write_joint, write_pooled

JOINT, ACROSS, POOLED, GIVEN = 0, 1, 2, 3
"""The joint rule, the same across time, one bandit for everybody, a table that never changes."""


@compiled_with_arrays
def run_epochs(
    kind: Any,
    budget: Any,
    settings: Any,
    growth: Any,
    lottery: Any,
    given: Any,
    rates: Any,
    shares: Any,
    horizon: Any,
    state: Any,
    space: Any,
    shows: Any,
    clicks: Any,
) -> Any:
    """One repetition; adds to the counts and returns the expected clicks of all tables served.

    Args:
        kind: JOINT, ACROSS, POOLED or GIVEN.
        budget: g.
        settings: the joint rule's `tuning`.
        growth: an epoch as a part of the visitors before it.
        lottery: across time, the part of the horizon in which all segments have the same row.
        given: the table of a GIVEN policy, (K, J).
        rates: click rates, (K, J).
        shares: (J,).
        horizon: T.
        state: the generator.
        space: a `workspace` of the linear programme.
        shows: (K, J) floats, zeros at the start.
        clicks: (K, J) floats, zeros at the start.
    """
    n_arms, n_segments = rates.shape
    table = np.full((n_arms, n_segments), 1.0 / n_arms)
    weakest = np.full(n_arms, math.exp(-budget))
    noise = np.zeros((n_arms, n_segments))
    floors = np.zeros(0)
    no_keep = settings.copy()
    no_keep[3] = 0.0
    expected = 0.0
    done = 0
    while done < horizon:
        visitors = max(2 * n_arms * n_segments, 16)
        if kind == GIVEN:
            table[:] = given
            visitors = horizon
        elif done > 0:
            visitors = math.ceil(done * growth)
            if kind == POOLED or (kind == ACROSS and done < lottery * horizon):
                write_pooled(shows, clicks, noise, horizon, settings, table)
            else:
                own = no_keep if kind == ACROSS else settings
                write_joint(shows, clicks, noise, horizon, weakest, floors, own, space, table)
            if kind == ACROSS and done >= lottery * horizon and not floors.size:
                floors = np.empty(n_arms)
                for a in range(n_arms):
                    floors[a] = table[a].min() if table[a].max() >= 2.0**-32 else 0.0
        visitors = min(visitors, horizon - done)
        expected += visitors * value_of(table, rates, shares)
        serve(visitors, table, rates, shares, state, shows, clicks)
        done += visitors
    return expected


@compiled_with_arrays
def value_of(table: Any, rates: Any, shares: Any) -> Any:
    """Clicks per visitor of a table."""
    value = 0.0
    for a in range(rates.shape[0]):
        for s in range(rates.shape[1]):
            value += shares[s] * rates[a, s] * table[a, s]
    return value


@compiled_with_arrays
def serve(
    visitors: Any, table: Any, rates: Any, shares: Any, state: Any, shows: Any, clicks: Any
) -> None:
    """Draw the counts of one epoch and add them."""
    n_arms, n_segments = rates.shape
    coming = np.empty(n_segments, np.int64)
    shown = np.empty(n_arms, np.int64)
    split_multinomial(visitors, np.cumsum(shares), coming, state)
    for s in range(n_segments):
        split_multinomial(coming[s], np.cumsum(table[:, s]), shown, state)
        for a in range(n_arms):
            shows[a, s] += shown[a]
            clicks[a, s] += binomial(shown[a], rates[a, s], state)
