"""Policies that publish one table per epoch, simulated exactly: an epoch is a few multinomial draws.

Within an epoch every visitor is drawn independently from the same table, so the counts of the epoch are
multinomial by segment, then by arm, then binomial in clicks. A run costs as many draws as there are
epochs, that is, log T. The step kernel draws visitor by visitor from the same tables. The tables are
made by the very functions that serve.

The loop over epochs is Python: compiled as one piece with all that it calls it would take a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.block import pick
from deniable.simulation.kernels.random_numbers import (
    binomial,
    failures_before_success,
    split_multinomial,
    uniform,
)
from deniable.simulation.kernels.run import Record, Setting, record_of
from deniable.simulation.kernels.state import FloatArray, IntArray, WordArray

NextTable = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""From shows, clicks and the variance that noise adds to click rates, (K, J) each, to a table."""

_SENSITIVITY = 4.0  # replacing one visitor changes two cells, each by one show and one click


class Publishing(NamedTuple):
    """When tables are published, and from what.

    Attributes:
        first: visitors of the first epoch, in which all arms are equally likely.
        growth: every further epoch as a part of the visitors before it.
        trace_budget: noise on the counts that tables are made of; 0 for none.
    """

    first: int
    growth: float
    trace_budget: float


def run_epochs(
    leap: bool, publishing: Publishing, next_table: NextTable, setting: Setting
) -> tuple[IntArray, IntArray]:
    """One repetition; as the entry points of `run.py`."""
    shape = setting.rates.shape
    record = record_of(setting)
    parts = np.empty(sum(shape), np.int64)
    noise = np.zeros((2, *shape))  # on all published shows and clicks so far
    rows = np.cumsum(np.full(shape, 1 / shape[1]), axis=1)
    done, due, published = 0, publishing.first, 0
    for i, point in enumerate(setting.checkpoints.tolist()):
        while done < point:
            if done == due:
                published += 1
                if publishing.trace_budget:
                    add_noise(_SENSITIVITY / publishing.trace_budget, setting.state, noise)
                counts = _published_counts(record, noise, published, publishing.trace_budget)
                np.cumsum(next_table(*counts).T, axis=1, out=rows)
                due = done + math.ceil(done * publishing.growth)
            visitors = min(due, point) - done
            _serve_table(leap, visitors, rows, setting, parts, record)
            done += visitors
        record.all_shows[i] = record.shows
        record.all_clicks[i] = record.clicks
    return record.all_shows, record.all_clicks


def _published_counts(
    record: Record, noise: FloatArray, published: int, trace_budget: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shows, clicks and the variance that noise adds to click rates, (K, J) each.

    Noisy sums are clipped where they are used, not where they are kept.
    """
    shows = np.array(record.shows.T, float, order="C")
    clicks = np.array(record.clicks.T, float, order="C")
    if not trace_budget:
        return shows, clicks, np.zeros(shows.shape)
    shows = np.maximum(shows + noise[0].T, 0)
    clicks = np.clip(clicks + noise[1].T, 0, shows)
    seen = np.maximum(shows, 1)
    added = 2 * published * (_SENSITIVITY / trace_budget) ** 2
    variance = added * (1 + (clicks / seen) ** 2) / seen**2
    return np.ascontiguousarray(shows), np.ascontiguousarray(clicks), np.ascontiguousarray(variance)


@compiled
def _serve_table(
    leap: bool, visitors: int, rows: FloatArray, setting: Setting, parts: IntArray, record: Record
) -> None:
    """Draw arms for that many visitors from rows that are cumulated, (J, K)."""
    rates, state = setting.rates, setting.state
    n_segments, n_arms = rates.shape
    coming, shown = parts[:n_segments], parts[n_segments:]
    if leap:
        split_multinomial(visitors, setting.arrival, coming, state)
        for j in range(n_segments):
            split_multinomial(coming[j], rows[j], shown, state)
            for arm in range(n_arms):
                record.shows[j, arm] += shown[arm]
                record.clicks[j, arm] += binomial(shown[arm], rates[j, arm], state)
        return
    for _ in range(visitors):
        j = pick(setting.arrival, state)
        arm = pick(rows[j], state)
        record.shows[j, arm] += 1
        if uniform(state) < rates[j, arm]:
            record.clicks[j, arm] += 1


@compiled
def add_noise(scale: float, state: WordArray, noise: FloatArray) -> None:
    """Add discrete Laplace noise to every cell: the difference of two geometric waiting times."""
    for kind in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            for arm in range(noise.shape[2]):
                up = failures_before_success(-scale, state)
                noise[kind, j, arm] += up - failures_before_success(-scale, state)
