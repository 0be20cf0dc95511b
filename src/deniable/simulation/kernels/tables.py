"""Exact simulation of policies that publish tables: within an epoch, all draws are independent.

An epoch's counts are multinomial by segment, then by arm, then binomial in clicks. At its end the
next table is made as in the service: from counts, which are noisy if there is a trace budget and
clipped where they are used; the arms with the highest click rate share the bonus.
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
from deniable.simulation.kernels.trace import REWARD, enter_counts


class Publishing(NamedTuple):
    """When tables are published, and how rows are made.

    Attributes:
        weights: probabilities without the bonus, (K,), sum 1.
        bonus: the greedy arm's largest bonus.
        scheduled: whether the bonus follows the schedule up to that, using the segment's clock.
        growth: growth of all visitors from table to table.
        least_new: minimum number of visitors per epoch.
        trace_budget: 0 for none.
    """

    weights: FloatArray
    bonus: float
    scheduled: bool
    growth: float
    least_new: int
    trace_budget: float


class Space(NamedTuple):
    """Scratch space.

    Parts of visitors, (J + K,); cumulative rows; and by cell what was included before, the sums
    from which tables are made, and what is new, (J, K) each.
    """

    parts: IntArray
    rows: FloatArray
    entered_shows: IntArray
    entered_clicks: IntArray
    shows: IntArray
    rewards: IntArray
    new_shows: IntArray
    new_clicks: IntArray


def run_tables(leap: bool, publishing: Publishing, setting: Setting) -> tuple[IntArray, IntArray]:
    """Run one repetition, like the entry points of `run.py`."""
    record = record_of(setting)
    shape = setting.rates.shape
    counts = [np.zeros(shape, np.int64) for _ in range(6)]
    space = Space(np.empty(sum(shape), np.int64), np.empty(shape), *counts)
    _run_tables(leap, publishing, setting, space, record)
    return record.all_shows, record.all_clicks


@compiled
def _run_tables(
    leap: bool, publishing: Publishing, setting: Setting, space: Space, record: Record
) -> None:
    done = 0
    write_rows(publishing, space)
    due = publishing.least_new
    for i in range(setting.checkpoints.size):
        enter_phase(setting, i)
        while done < setting.checkpoints[i]:
            if done == due:
                publish(publishing, setting, space, record)
                due = max(done + publishing.least_new, int(done * publishing.growth))
            visitors = min(due, setting.checkpoints[i]) - done
            serve(leap, visitors, space.rows, setting, space.parts, record)
            done += visitors
        note(record, i)


@compiled
def publish(publishing: Publishing, setting: Setting, space: Space, record: Record) -> None:
    """Publish the next table, including decisions that were in no earlier one."""
    for j in range(record.shows.shape[0]):
        for arm in range(record.shows.shape[1]):
            space.new_shows[j, arm] = record.shows[j, arm] - space.entered_shows[j, arm]
            space.new_clicks[j, arm] = record.clicks[j, arm] - space.entered_clicks[j, arm]
            space.entered_shows[j, arm] = record.shows[j, arm]
            space.entered_clicks[j, arm] = record.clicks[j, arm]
    enter_counts(
        space.new_shows,
        space.new_clicks,
        publishing.trace_budget,
        setting.state,
        space.shows,
        space.rewards,
    )
    write_rows(publishing, space)


@compiled
def write_rows(publishing: Publishing, space: Space) -> None:
    """Write the table for the current sums, with cumulative rows."""
    n_segments, n_arms = space.rows.shape
    for j in range(n_segments):
        # The clock is that of the segment's next visitor.
        clock, leader, tied = 1, 0, 1
        for arm in range(n_arms):
            shown = max(space.shows[j, arm], 0)
            clock += shown
            if arm > 0:
                sign = _compared(space, j, arm, leader)
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
            if _compared(space, j, arm, leader) == 0:
                running += bonus / tied
            space.rows[j, arm] = min(running, 1.0)
        # Exactly 1 despite rounding, so that every draw finds an arm.
        space.rows[j, n_arms - 1] = 1.0


@compiled
def _compared(space: Space, segment: int, arm: int, other: int) -> int:
    """Compare an arm's click rate with another's, both from clipped sums: -1, 0 or 1."""
    shown = max(space.shows[segment, arm], 0)
    seen = max(space.shows[segment, other], 0)
    return sign_of_difference(
        min(max(space.rewards[segment, arm], 0), REWARD * shown),
        shown,
        min(max(space.rewards[segment, other], 0), REWARD * seen),
        seen,
    )
