"""Index policies: show the arm with the highest index until another's is higher.

While one arm leads, the others do not change, so a block of m visitors is m shows of the leader. An
index rises with clicks and falls with failures: if the leader's is still the highest after all the
block's failures first, no order of the visitors can have changed the leader.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.gittins_table import GittinsTable, look_up
from deniable.simulation.kernels.leader import stays_above
from deniable.simulation.kernels.random_numbers import (
    binomial,
    hypergeometric,
    split_multinomial,
    uniform,
)
from deniable.simulation.kernels.run import Record, Setting, enter_phase, note, record_of
from deniable.simulation.kernels.state import DEPTH, FloatArray, IntArray, WordArray

_LEAF = 8  # parts of this size are walked through
_SHORT_BLOCK = 8  # below this length, single visitors are cheaper


class IndexArms(NamedTuple):
    """The arms of one segment.

    Attributes:
        rates: click rates, (K,).
        shows: counts so far, (K,).
        clicks: counts so far, (K,).
        indices: the current index of each arm, (K,).
        state: the generator.
    """

    rates: FloatArray
    shows: IntArray
    clicks: IntArray
    indices: FloatArray
    state: WordArray


def run_index(leap: bool, table: GittinsTable, setting: Setting) -> tuple[IntArray, IntArray]:
    """Run the Gittins index policy. Segments learn separately, so each is run on its own."""
    record = record_of(setting)
    n_segments, n_arms = setting.rates.shape
    arrivals = np.empty(n_segments, np.int64)
    indices, stack = np.empty(n_arms), np.empty((DEPTH, 2), np.int64)
    _run_index(leap, table, setting, arrivals, indices, stack, record)
    return record.all_shows, record.all_clicks


@compiled
def _run_index(
    leap: bool,
    table: GittinsTable,
    setting: Setting,
    arrivals: IntArray,
    indices: FloatArray,
    stack: IntArray,
    record: Record,
) -> None:
    done = 0
    for i in range(setting.checkpoints.size):
        split_multinomial(setting.checkpoints[i] - done, setting.arrival, arrivals, setting.state)
        done = setting.checkpoints[i]
        enter_phase(setting, i)
        for j in range(arrivals.size):
            arms = IndexArms(
                setting.rates[j], record.shows[j], record.clicks[j], indices, setting.state
            )
            for arm in range(indices.size):
                indices[arm] = look_up(arms.clicks[arm], arms.shows[arm], table)
            if leap:
                _leap_index(arrivals[j], table, stack, arms)
            else:
                _step_index(arrivals[j], table, arms)
        note(record, i)


@compiled
def _step_index(visitors: int, table: GittinsTable, arms: IndexArms) -> None:
    """Process visitors one by one: show the highest index, then update it."""
    for _ in range(visitors):
        arm, _tied = _lead(arms.indices, arms.state)
        _show(arm, table, arms)


@compiled
def _show(arm: int, table: GittinsTable, arms: IndexArms) -> None:
    arms.shows[arm] += 1
    if uniform(arms.state) < arms.rates[arm]:
        arms.clicks[arm] += 1
    arms.indices[arm] = look_up(arms.clicks[arm], arms.shows[arm], table)


@compiled
def _leap_index(visitors: int, table: GittinsTable, stack: IntArray, arms: IndexArms) -> None:
    """Process visitors in blocks, with the same distribution."""
    rates, shows, clicks = arms.rates, arms.shows, arms.clicks
    indices, state = arms.indices, arms.state
    table_end = table.small.shape[0]
    while visitors > 0:
        arm, tied = _lead(indices, state)
        rival = _runner_up(indices, arm)
        size = 1
        if tied == 1:
            size = _quiet_length(
                clicks[arm], shows[arm], rates[arm], indices[arm] - rival, visitors
            )
        if shows[arm] < table_end:
            # The two parts of the table meet with a tiny step, so a block stays within one of them.
            size = min(size, table_end - 1 - shows[arm])
        if size < _SHORT_BLOCK:
            _show(arm, table, arms)
            visitors -= 1
            continue
        stack[0, 0] = size
        stack[0, 1] = binomial(size, rates[arm], state)
        depth = 1
        leading = True
        while depth > 0 and leading:
            top = depth - 1
            here, won = stack[top, 0], stack[top, 1]
            if _holds(clicks[arm], shows[arm], won, here, rival, table):
                shows[arm] += here
                clicks[arm] += won
                visitors -= here
                depth -= 1
            elif here <= _LEAF:
                while here > 0 and leading:
                    clicked = uniform(state) * here < won
                    here -= 1
                    visitors -= 1
                    shows[arm] += 1
                    if clicked:
                        won -= 1
                        clicks[arm] += 1
                    leading = look_up(clicks[arm], shows[arm], table) > rival
                depth -= 1
            else:
                first = here // 2
                early = hypergeometric(won, here - won, first, state)
                stack[top, 0], stack[top, 1] = here - first, won - early
                stack[depth, 0], stack[depth, 1] = first, early
                depth += 1
        indices[arm] = look_up(clicks[arm], shows[arm], table)


@compiled
def _lead(indices: FloatArray, state: WordArray) -> tuple[int, int]:
    """Return an arm with the highest index, drawn among equals, and their number."""
    best, tied = 0, 1
    for arm in range(1, indices.size):
        if indices[arm] > indices[best]:
            best, tied = arm, 1
        elif indices[arm] == indices[best]:
            # Reservoir sampling: keep the n-th equal with probability 1/n, without counting first.
            tied += 1
            if uniform(state) * tied < 1.0:
                best = arm
    return best, tied


@compiled
def _runner_up(indices: FloatArray, leader: int) -> float:
    highest = -1.0
    for arm in range(indices.size):
        if arm != leader and indices[arm] > highest:
            highest = indices[arm]
    return highest


@compiled
def _quiet_length(clicks: int, shows: int, rate: float, gap: float, visitors: int) -> int:
    """Return about .7 of the shows whose expected failures would close the gap."""
    mean = (clicks + 1.0) / (shows + 2.0)
    fall = (1.0 - rate) * mean / (shows + 2.0)
    if fall * visitors <= 0.7 * gap:
        return visitors
    certain = 0.7 * gap / fall
    swing = gap * (shows + 2.0) / (6.0 * math.sqrt(rate * (1.0 - rate) + 1e-300))
    likely = min(0.8 * swing * swing, shows + 0.0)
    return int(min(float(visitors), max(certain, likely)))


@compiled
def _holds(
    clicks: int, shows: int, won: int, shown: int, rival: float, table: GittinsTable
) -> bool:
    """Whether the leader's index stays above the rival's throughout a block."""
    if look_up(clicks, shows + shown - won, table) > rival:
        return True
    # An index is above the posterior mean, so it suffices that the mean stays above the rival.
    return (
        shown >= 64 and 0.0 < rival < 1.0 and stays_above(clicks + 1, shows + 2, won, shown, rival)
    )
