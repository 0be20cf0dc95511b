"""From counts to the joint strategy's next table: compiled, and a function of its arguments alone.

The rule draws rates from the posterior with counted pseudo-random numbers, finds the best private table
for each draw, and serves their mean. Draws are pulled towards the posterior mean as the horizon comes
nearer, so it is Thompson sampling, cooled down. It is mixed with a wary table, which explores what tells
worlds apart: the paper's dynamic table, which explores all arms of all segments, and with many arms
mostly further draws that assume that segments differ. The weight of the new table is its gain over the
wary one, in posterior standard deviations, divided by z, and at most 1: weak evidence does not end
exploring. A mean of tables that keep the budget keeps it too.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable.strategies.joint_lp import solve
from deniable.strategies.joint_model import (
    Posterior,
    draw_values,
    gain_in_deviations,
    posterior_of,
    wary_posterior,
)

PERTURBATION = 1e-10
"""Of the linear programme's right side, against cycling."""


class Tuning(NamedTuple):
    """The rule's constants.

    Attributes:
        samples: draws from the posterior.
        curiosity: draws deviate by curiosity sqrt(log(T / t)) posterior standard deviations.
        own_curiosity: what draws of a segment's own part are multiplied with besides.
        keep: the floor's part of the dynamic strategy's exploration.
        doubt_rising, doubt: z^2 = doubt_rising log(T / t) + doubt.
        wary_draws: draws for the wary table.
        dynamic_part: of the wary table, the rest is from draws.
        lean: 1 for no more floor than is missing, 0 for always all of it.
        whole_clock: 1 for a floor that vanishes with all visitors t, 0 with t / J, those of a segment.
    """

    samples: float
    curiosity: float
    own_curiosity: float
    keep: float
    doubt_rising: float
    doubt: float
    wary_draws: float
    dynamic_part: float
    lean: float
    whole_clock: float


class Counts(NamedTuple):
    """What was published so far, as contiguous floats, (K, J) each.

    Attributes:
        shows: visitors by shown arm and segment.
        clicks: clicks among them.
    """

    shows: Any
    clicks: Any


class Setup(NamedTuple):
    """What stays the same from table to table.

    Attributes:
        horizon: T, or 0 for an open end.
        weakest: e^-budget, (K,).
        tuning: the rule's constants.
        space: a `workspace` of the linear programme.
    """

    horizon: float
    weakest: Any
    tuning: Tuning
    space: Any


@compiled
def write_joint(counts: Counts, setup: Setup, table: Any) -> None:
    """Write the next table, (K, J)."""
    shows, weakest, tuning = counts.shows, setup.weakest, setup.tuning
    posterior = posterior_of(shows, counts.clicks)
    n_segments = shows.shape[1]
    write_draws(posterior, setup, tuning.samples, 0.0, table)
    if n_segments > 1 and weakest[0] < 1.0:
        wary = dynamic_table(shows, counts.clicks, posterior.visitors, weakest[0])
        if tuning.dynamic_part < 1.0:
            drawn = np.empty(table.shape)
            write_draws(wary_posterior(posterior), setup, tuning.wary_draws, tuning.samples, drawn)
            mix(tuning.dynamic_part, wary, drawn, wary)
        left = math.log(ahead(posterior.visitors, setup.horizon))
        z = math.sqrt(tuning.doubt_rising * left + tuning.doubt)
        weight = min(1.0, max(0.0, deviations_ahead(table, wary, posterior) / z))
        mix(weight, table, wary, table)
    mix_floor(posterior.visitors, n_segments, tuning, table)


@compiled
def mix(weight: Any, first: Any, second: Any, table: Any) -> None:
    """Write a mix of two tables, which may be one of them."""
    for a in range(table.shape[0]):
        for s in range(table.shape[1]):
            table[a, s] = weight * first[a, s] + (1.0 - weight) * second[a, s]


@compiled
def write_draws(posterior: Posterior, setup: Setup, draws: Any, before: Any, table: Any) -> None:
    """The mean of the best tables over draws from the posterior; `before` as in `draw_values`."""
    n_arms, n_segments = table.shape
    tuning = setup.tuning
    scale = draw_scale(posterior, setup)
    values, best = np.empty(table.shape), np.empty(table.shape)
    normals = np.empty((n_arms, n_segments + 1))
    # Of a large problem fewer draws are solved: its tables are means over many segments already.
    samples = 2 * max(1, int(min(draws, 4e6 / (n_segments * n_segments * n_arms)) / 2))
    table[:] = 0.0
    for k in range(samples):
        draw_values(
            posterior, k, samples, scale, tuning.own_curiosity, normals, values, int(before)
        )
        solve(values, setup.weakest, PERTURBATION, k > 0, setup.space, best)
        for a in range(n_arms):
            for s in range(n_segments):
                table[a, s] += best[a, s] / samples


@compiled
def draw_scale(posterior: Posterior, setup: Setup) -> Any:
    """How far draws deviate, in posterior standard deviations: less as the horizon comes nearer."""
    left = math.log(ahead(posterior.visitors, setup.horizon))
    return min(1.0, setup.tuning.curiosity * math.sqrt(left))


@compiled
def deviations_ahead(table: Any, other: Any, posterior: Posterior) -> Any:
    """How far one table's clicks are above another's, in posterior standard deviations."""
    change = np.empty(table.shape)
    for a in range(table.shape[0]):
        for s in range(table.shape[1]):
            worth = posterior.shares[s] * posterior.base[s]
            change[a, s] = worth * (table[a, s] - other[a, s])
    return gain_in_deviations(change, posterior.mean, posterior.shared, posterior.alone)


@compiled
def dynamic_table(shows: Any, clicks: Any, visitors: Any, weakest: Any) -> Any:
    """The paper's dynamic table at the mean clock: randomized response of each segment's best arm."""
    n_arms, n_segments = shows.shape
    clock = max(visitors / n_segments, 3.0)
    exploration = min(1.0, (n_arms * math.log(clock) / clock) ** (1 / 3))
    exploration = max(exploration, n_arms * weakest / ((n_arms - 1) * weakest + 1.0))
    table = np.full((n_arms, n_segments), exploration / n_arms)
    clicked, seen = 1.0, 2.0
    for a in range(n_arms):
        for s in range(n_segments):
            clicked += clicks[a, s]
            seen += shows[a, s]
    prior = seen / clicked
    for s in range(n_segments):
        best, ties = -1.0, 0
        for a in range(n_arms):
            rate = (clicks[a, s] + 1.0) / (shows[a, s] + prior)
            ties = 1 if rate > best else ties + (rate == best)
            best = max(best, rate)
        for a in range(n_arms):
            if (clicks[a, s] + 1.0) / (shows[a, s] + prior) == best:
                table[a, s] += (1.0 - exploration) / ties
    return table


@compiled
def ahead(visitors: Any, horizon: Any) -> Any:
    """T / t; open-ended, as if nine times as many were still to come."""
    left = horizon / max(visitors, 1.0)
    return left if left > 1.0 else 10.0


@compiled
def mix_floor(visitors: Any, n_segments: Any, tuning: Tuning, table: Any) -> None:
    """Mix with uniform: `keep` times the dynamic strategy's exploration at the floor's clock.

    A lean floor is only as much as every entry needs to be as likely as that.
    """
    n_arms = table.shape[0]
    clock = max(visitors if tuning.whole_clock > 0.0 else visitors / n_segments, 3.0)
    floor = tuning.keep * min(1.0, (n_arms * math.log(clock) / clock) ** (1 / 3))
    if tuning.lean > 0.0:
        there = n_arms * table.min()
        floor = (floor - there) / (1.0 - there) if there < floor else 0.0
    for a in range(n_arms):
        for s in range(table.shape[1]):
            table[a, s] = (1.0 - floor) * table[a, s] + floor / n_arms
