"""Exact simulation of policies that publish tables: within an epoch, all draws are independent.

An epoch's counts are multinomial by segment, then by arm, then binomial in clicks. At its end the
next table is made as in the service, from the counts so far; the arms with the highest click rate share
the bonus.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.exploration import scheduled
from deniable.simulation.kernels.leader import sign_of_difference
from deniable.simulation.kernels.run import (
    Record,
    Setting,
    enter_phase,
    note,
    record_of,
    serve,
)
from deniable.simulation.kernels.state import FloatArray, IntArray


class Publishing(NamedTuple):
    """When tables are published, and how rows are made.

    Attributes:
        weights: probabilities without the bonus, (K,), sum 1.
        bonus: the greedy arm's largest bonus.
        scheduled: whether the bonus follows the schedule up to that, using the segment's clock.
        growth: growth of all visitors from table to table.
        least_new: minimum number of visitors per epoch.
    """

    weights: FloatArray
    bonus: float
    scheduled: bool
    growth: float
    least_new: int


def run_tables(leap: bool, publishing: Publishing, setting: Setting) -> tuple[IntArray, IntArray]:
    """Run one repetition, like the entry points of `run.py`."""
    record = record_of(setting)
    shape = setting.rates.shape
    parts, rows = np.empty(sum(shape), np.int64), np.empty(shape)
    _run_tables(leap, publishing, setting, parts, rows, record)
    return record.all_shows, record.all_clicks


@compiled
def _run_tables(
    leap: bool,
    publishing: Publishing,
    setting: Setting,
    parts: IntArray,
    rows: FloatArray,
    record: Record,
) -> None:
    """`parts`, (J + K,), and the cumulative `rows`, (J, K), are scratch space."""
    done = 0
    write_rows(publishing, record, rows)
    due = publishing.least_new
    for i in range(setting.checkpoints.size):
        enter_phase(setting, i)
        while done < setting.checkpoints[i]:
            if done == due:
                write_rows(publishing, record, rows)
                due = max(done + publishing.least_new, int(done * publishing.growth))
            visitors = min(due, setting.checkpoints[i]) - done
            serve(leap, visitors, rows, setting, parts, record)
            done += visitors
        note(record, i)


@compiled
def write_rows(publishing: Publishing, record: Record, rows: FloatArray) -> None:
    """Write the table for the counts so far, with cumulative rows."""
    n_segments, n_arms = rows.shape
    for j in range(n_segments):
        # The clock is that of the segment's next visitor.
        clock, leader, tied = 1, 0, 1
        for arm in range(n_arms):
            clock += record.shows[j, arm]
            if arm > 0:
                sign = _compared(record, j, arm, leader)
                if sign > 0:
                    leader, tied = arm, 1
                elif sign == 0:
                    tied += 1
        bonus = publishing.bonus
        if publishing.scheduled:
            bonus = min(bonus, 1.0 - scheduled(n_arms, clock))
        running = 0.0
        for arm in range(n_arms):
            running += (1.0 - bonus) * publishing.weights[arm]
            if _compared(record, j, arm, leader) == 0:
                running += bonus / tied
            rows[j, arm] = min(running, 1.0)
        # Exactly 1 despite rounding, so that every draw finds an arm.
        rows[j, n_arms - 1] = 1.0


@compiled
def _compared(record: Record, segment: int, arm: int, other: int) -> int:
    """Compare an arm's click rate with another's: -1, 0 or 1."""
    return sign_of_difference(
        record.clicks[segment, arm],
        record.shows[segment, arm],
        record.clicks[segment, other],
        record.shows[segment, other],
    )
