"""From counts to the joint strategy's next table, as a compiled function without randomness of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable._compile import compiled_with_arrays
from deniable.strategies.joint_lp import solve
from deniable.strategies.joint_model import (
    ARM_SPREADS,
    OWN_SPREADS,
    arrivals,
    fit,
    gain_in_deviations,
    moments,
    spread_weights,
)

_PERTURBATION = 1e-10


@compiled_with_arrays
def write_joint(
    shows: Any,
    clicks: Any,
    noise: Any,
    horizon: Any,
    weakest: Any,
    floors: Any,
    settings: Any,
    space: Any,
    table: Any,
) -> None:
    """Write the next table; arguments as in `joint_table`, `weakest` as in `joint_lp`.

    Args:
        shows: (K, J), floats.
        clicks: (K, J), floats.
        noise: (K, J).
        horizon: T, or 0.
        weakest: e^-budget, (K,).
        floors: (K,), or of size 0 for none.
        settings: what `tuning` returns.
        space: a `workspace`.
        table: (K, J), overwritten.
    """
    n_arms, n_segments = shows.shape
    visitors, shares = arrivals(shows)
    relative = np.empty((n_arms, n_segments))
    variance = np.empty((n_arms, n_segments))
    base = fit(shows, clicks, noise, relative, variance)
    weights = spread_weights(relative, variance)
    running = np.cumsum(weights)
    mean, shared_deviation, own_variance = moments(relative, variance, weights)
    scale = _scale(visitors, horizon, settings[1])
    values = np.empty((n_arms, n_segments))
    best = np.empty((n_arms, n_segments))
    # Of a large problem fewer draws are solved: its tables are means over many segments already.
    samples = 2 * max(1, int(min(settings[0], 4e6 / (n_segments * n_segments * n_arms)) / 2))
    seed = np.uint64(visitors)
    table[:] = 0.0
    for k in range(samples):
        place = running[-1] * (k + 0.5) / samples
        which = 0
        while which < running.size - 1 and place >= running[which]:
            which += 1
        own = OWN_SPREADS[which // ARM_SPREADS.size] ** 2
        common = ARM_SPREADS[which % ARM_SPREADS.size] ** 2
        # Draws come in pairs of opposite sign, which takes the linear part of the noise out.
        step = scale if k % 2 == 0 else -scale
        index = np.uint64((k // 2) * n_arms * (n_segments + 1))
        for a in range(n_arms):
            precision = 1.0 / common
            for s in range(n_segments):
                precision += 1.0 / (variance[a, s] + own)
            shared = step * normal(seed, index) / math.sqrt(precision)
            index += np.uint64(1)
            for s in range(n_segments):
                kept = own / (own + variance[a, s])
                alone = settings[2] * step * normal(seed, index) * math.sqrt(kept * variance[a, s])
                index += np.uint64(1)
                drawn = 1.0 + mean[a, s] + (1.0 - kept) * shared + alone
                values[a, s] = shares[s] * base[s] * max(drawn, 0.02)
        if floors.size:
            fill_band(values, floors, weakest, best)
        else:
            solve(values, weakest, _PERTURBATION, k > 0, space, best)
        for a in range(n_arms):
            for s in range(n_segments):
                table[a, s] += best[a, s] / samples
    if not floors.size:
        if n_segments > 1 and weakest[0] < 1.0:
            dynamic = dynamic_table(shows, clicks, visitors, weakest[0])
            z = math.sqrt(settings[4] * math.log(_ahead(visitors, horizon)) + settings[5])
            for a in range(n_arms):
                for s in range(n_segments):
                    values[a, s] = shares[s] * base[s] * (table[a, s] - dynamic[a, s])
            if gain_in_deviations(values, mean, shared_deviation, own_variance) < z:
                table[:] = dynamic
        mix_floor(visitors, n_segments, settings[3], table)


@compiled_with_arrays
def fill_band(values: Any, floors: Any, weakest: Any, table: Any) -> None:
    """The best table with entries in [l_a, e^g l_a]: floors first, then the best arms filled up."""
    n_arms, n_segments = values.shape
    for s in range(n_segments):
        order = np.argsort(-values[:, s])
        left = 1.0
        for a in range(n_arms):
            table[a, s] = floors[a]
            left -= floors[a]
        for a in order:
            room = floors[a] / weakest[a] - floors[a] if weakest[a] > 0.0 else left
            more = max(min(room, left), 0.0) if floors[a] > 0.0 else 0.0
            table[a, s] += more
            left -= more


@compiled_with_arrays
def write_pooled(
    shows: Any, clicks: Any, noise: Any, horizon: Any, settings: Any, table: Any
) -> None:
    """The joint rule for all segments merged into one."""
    n_arms, n_segments = shows.shape
    seen = np.zeros((n_arms, 1))
    clicked = np.zeros((n_arms, 1))
    extra = np.zeros((n_arms, 1))
    for a in range(n_arms):
        for s in range(n_segments):
            seen[a, 0] += shows[a, s]
            clicked[a, 0] += clicks[a, s]
            extra[a, 0] += noise[a, s] * shows[a, s] ** 2
        extra[a, 0] /= max(seen[a, 0], 1.0) ** 2
    space = (
        np.zeros(1, np.int64),
        np.zeros((1, 1), np.bool_),
        np.zeros((1, 1)),
        np.zeros(1),
        np.zeros(1),
        np.zeros((2, 1)),
    )
    row = np.empty((n_arms, 1))
    none = np.zeros(0)
    write_joint(seen, clicked, extra, horizon, np.ones(n_arms), none, settings, space, row)
    for a in range(n_arms):
        for s in range(n_segments):
            table[a, s] = row[a, 0]


@compiled_with_arrays
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


@compiled_with_arrays
def _scale(visitors: Any, horizon: Any, curiosity: Any) -> Any:
    """How far draws deviate from the posterior mean, in standard deviations."""
    return min(1.0, curiosity * math.sqrt(math.log(_ahead(visitors, horizon))))


@compiled_with_arrays
def _ahead(visitors: Any, horizon: Any) -> Any:
    """T / t; open-ended, as if nine times as many were still to come."""
    ahead = horizon / max(visitors, 1.0)
    return ahead if ahead > 1.0 else 10.0


@compiled_with_arrays
def mix_floor(visitors: Any, n_segments: Any, keep: Any, table: Any) -> None:
    """Mix with uniform: `keep` times the dynamic strategy's exploration at the mean clock."""
    n_arms = table.shape[0]
    clock = max(visitors / n_segments, 3.0)
    floor = keep * min(1.0, (n_arms * math.log(clock) / clock) ** (1 / 3))
    for a in range(n_arms):
        for s in range(table.shape[1]):
            table[a, s] = (1.0 - floor) * table[a, s] + floor / n_arms


@compiled_with_arrays
def normal(seed: Any, index: Any) -> Any:
    """A standard normal number that is a function of its arguments (Box and Muller)."""
    first = _word(seed, np.uint64(2) * index)
    second = _word(seed, np.uint64(2) * index + np.uint64(1))
    radius = math.sqrt(-2.0 * math.log((np.float64(first >> np.uint64(11)) + 1.0) * 2.0**-53))
    return radius * math.cos(2.0 * math.pi * np.float64(second >> np.uint64(11)) * 2.0**-53)


@compiled_with_arrays
def _word(seed: Any, index: Any) -> Any:
    """64 bits from two counters: SplitMix64 (Steele, Lea and Flood 2014), twice."""
    word = seed
    for _ in range(2):
        word = word + np.uint64(0x9E3779B97F4A7C15) * (index + np.uint64(1))
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    return word
