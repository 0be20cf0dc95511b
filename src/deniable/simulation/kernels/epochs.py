"""Exact simulation of policies that publish one table per epoch, with a few multinomial draws each.

Within an epoch every visitor is drawn independently from the same table, so the counts of the epoch
are multinomial by segment, then by arm, then binomial in clicks. A run needs as many draws as there
are epochs, that is, log T. The step kernel draws visitor by visitor from the same tables. The
tables are made by the same functions as in the service.

The loop over epochs is Python: compiling it together with everything that it calls would take a
minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from deniable.privacy.epochs import Epochs, due_at
from deniable.simulation.kernels.run import Setting, enter_phase, record_of, serve
from deniable.simulation.kernels.state import FloatArray, IntArray
from deniable.simulation.kernels.trace import REWARD, enter_counts, noise_variance

NextTable = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Makes a table from shows, clicks and the variance that noise adds to click rates, (K, J) each."""


class Publishing(NamedTuple):
    """When tables are published, and from what.

    Attributes:
        epochs: distance from table to table; in the first epoch all arms are equally likely.
        trace_budget: noise on the counts for tables; 0 for none.
    """

    epochs: Epochs
    trace_budget: float


def run_epochs(
    leap: bool, publishing: Publishing, next_table: NextTable, setting: Setting
) -> tuple[IntArray, IntArray]:
    """Run one repetition, like the entry points of `run.py`."""
    shape = setting.rates.shape
    record = record_of(setting)
    parts = np.empty(sum(shape), np.int64)
    entered = np.zeros((2, *shape), np.int64)  # shows and clicks already included in the sums
    sums = np.zeros((2, *shape), np.int64)  # shows and rewards from which tables are made
    rows = np.cumsum(np.full(shape, 1 / shape[1]), axis=1)
    exact = np.zeros(shape[::-1])
    done, due, published = 0, due_at(0, publishing.epochs), 0
    for i, point in enumerate(setting.checkpoints.tolist()):
        enter_phase(setting, i)
        while done < point:
            if done == due:
                published += 1
                if publishing.trace_budget:
                    new = np.stack([record.shows, record.clicks]) - entered
                    entered += new
                    enter_counts(
                        new[0], new[1], publishing.trace_budget, setting.state, sums[0], sums[1]
                    )
                    counts = _noisy_counts(sums, published, publishing.trace_budget)
                else:
                    counts = _by_arm(record.shows), _by_arm(record.clicks), exact
                np.cumsum(next_table(*counts).T, axis=1, out=rows)
                due = due_at(done, publishing.epochs)
            visitors = min(due, point) - done
            serve(leap, visitors, rows, setting, parts, record)
            done += visitors
        record.all_shows[i] = record.shows
        record.all_clicks[i] = record.clicks
    return record.all_shows, record.all_clicks


def _by_arm(counts: IntArray) -> FloatArray:
    """Convert counts by segment and arm to floats by arm and segment."""
    return np.ascontiguousarray(counts.T, np.float64)


def _noisy_counts(
    sums: IntArray, published: int, trace_budget: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return shows, clicks and the variance that noise adds to click rates, (K, J) each.

    Noisy sums are clipped where they are used, not where they are stored.
    """
    shows = np.maximum(sums[0].T, 0).astype(float, order="C")
    clicks = np.clip(sums[1].T / REWARD, 0, shows).astype(float, order="C")
    seen = np.maximum(shows, 1)
    variance = [
        noise_variance(published, trace_budget, n, c / n)
        for n, c in zip(seen.ravel(), clicks.ravel(), strict=True)
    ]
    return shows, clicks, np.reshape(variance, shows.shape)
