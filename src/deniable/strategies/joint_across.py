"""The joint strategy across time: one row for everybody at first, then tables inside one band for life.

The joint strategy keeps its budget given the time of the first visit; a retired arm tells that somebody
came before it was retired. Across time every table lies in one band, ``l_a <= P(a|s) <= e^g l_a``, from
the switch on. Before it everybody has the same row, so that segments cannot leak at all, and all arms
that the joint strategy would use are learned about.

The switch is made when waiting costs more than it teaches. Per visitor, by draws from the posterior, a
band fixed now gains ``gain`` over the common row, and is ``loss`` short of the best private table.
Waiting for an epoch costs its part of ``gain``; what it teaches makes ``loss`` smaller for all who come
later, about as one over the square root of the visitors. So the switch is made once
``gain >= PATIENCE loss (T - t) / t``. Both are functions of published counts.
"""

from __future__ import annotations

import numpy as np

from deniable._compile import compiled_with_arrays
from deniable._validation import FloatArray
from deniable.strategies.joint_kernel import (
    PERTURBATION,
    Counts,
    Setup,
    ahead,
    draw_scale,
    mix_floor,
    write_draws,
)
from deniable.strategies.joint_lp import solve
from deniable.strategies.joint_model import draw_values, posterior_of

PATIENCE = 0.5
_SAMPLES = 16
_NEVER_SHOWN = 2.0**-32  # an arm below this in all segments is 0 in all


@compiled_with_arrays
def write_lottery(counts: Counts, setup: Setup, table: FloatArray) -> None:
    """Before the switch: the mean row of the joint strategy's table, for everybody."""
    posterior = posterior_of(counts.shows, counts.clicks, counts.noise)
    write_draws(posterior, setup, setup.tuning.samples, 0, table)
    _same_for_all(posterior.shares, table)
    mix_floor(posterior.visitors, table.shape[1], setup.tuning, table)


@compiled_with_arrays
def floors_now(counts: Counts, setup: Setup, floors: FloatArray) -> bool:
    """Whether to switch now; writes the floors l_a that hold from then on, (K,)."""
    posterior = posterior_of(counts.shows, counts.clicks, counts.noise)
    shape = posterior.variance.shape
    table, row = np.empty(shape), np.empty(shape)
    write_draws(posterior, setup, setup.tuning.samples, 0, table)
    row[:] = table
    _same_for_all(posterior.shares, row)
    for a in range(shape[0]):
        floors[a], most = 1.0, 0.0
        for s in range(shape[1]):
            floors[a] = min(floors[a], table[a, s])
            most = max(most, table[a, s])
        if most < _NEVER_SHOWN:
            floors[a] = 0.0
    values, best, inside = np.empty(shape), np.empty(shape), np.empty(shape)
    normals = np.empty((shape[0], shape[1] + 1))
    gain, loss = 0.0, 0.0
    for k in range(_SAMPLES):
        draw_values(posterior, k, _SAMPLES, 1.0, 1.0, normals, values, 0)
        solve(values, setup.weakest, PERTURBATION, k > 0, setup.space, best)
        fill_band(values, floors, setup.weakest, inside)
        for a in range(shape[0]):
            for s in range(shape[1]):
                gain += values[a, s] * (inside[a, s] - row[a, s])
                loss += values[a, s] * (best[a, s] - inside[a, s])
    left = ahead(posterior.visitors, setup.horizon) - 1.0
    return gain > 0.0 and gain >= PATIENCE * loss * left


@compiled_with_arrays
def write_inside(counts: Counts, setup: Setup, floors: FloatArray, table: FloatArray) -> None:
    """After the switch: the mean of the best tables inside the band, over the same draws."""
    posterior = posterior_of(counts.shows, counts.clicks, counts.noise)
    n_arms, n_segments = table.shape
    tuning = setup.tuning
    scale = draw_scale(posterior, setup)
    values, best = np.empty(table.shape), np.empty(table.shape)
    normals = np.empty((n_arms, n_segments + 1))
    samples = 2 * max(1, int(tuning.samples / 2))
    table[:] = 0.0
    for k in range(samples):
        draw_values(posterior, k, samples, scale, tuning.own_curiosity, normals, values, 0)
        fill_band(values, floors, setup.weakest, best)
        for a in range(n_arms):
            for s in range(n_segments):
                table[a, s] += best[a, s] / samples


@compiled_with_arrays
def fill_band(
    values: FloatArray, floors: FloatArray, weakest: FloatArray, table: FloatArray
) -> None:
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
def _same_for_all(shares: FloatArray, table: FloatArray) -> None:
    """Every column becomes the mean over the segments, by share."""
    for a in range(table.shape[0]):
        mean = 0.0
        for s in range(table.shape[1]):
            mean += shares[s] * table[a, s]
        for s in range(table.shape[1]):
            table[a, s] = mean
