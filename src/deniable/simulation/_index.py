"""Index policies: the arm with the highest index is shown, alone, until another's is higher.

While one arm leads, the others stand still, so a block of m visitors is m shows of the leader. An index
rises with clicks and falls with failures: if the leader's is still the highest after all the block's
failures first, no order of the visitors can have changed the leader.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.policies.gittins_index import look_up
from deniable.simulation._generator import uniform
from deniable.simulation._holding import stays_above
from deniable.simulation._samplers import binomial, hypergeometric

_DEPTH = 64
_LEAF = 8
_SHORT_BLOCK = 8


@compiled
def _lead(indices: Any, state: Any) -> Any:
    """An arm with the highest index, drawn among equals, and how many those are."""
    best, tied = 0, 1
    for arm in range(1, indices.size):
        if indices[arm] > indices[best]:
            best, tied = arm, 1
        elif indices[arm] == indices[best]:
            tied += 1
            if uniform(state) * tied < 1.0:
                best = arm
    return best, tied


@compiled
def _runner_up(indices: Any, leader: Any) -> Any:
    highest = -1.0
    for arm in range(indices.size):
        if arm != leader and indices[arm] > highest:
            highest = indices[arm]
    return highest


@compiled
def step_index(
    small: Any,
    bonus: Any,
    grid: Any,
    rates: Any,
    visitors: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """Visitor by visitor: show the highest index, update it.

    Args:
        small: the table's indices by shows and clicks.
        bonus: the table's bonus.
        grid: the table's grid.
        rates: click rates of one segment, (K,).
        visitors: how many.
        shows: counts so far, (K,).
        clicks: counts so far, (K,).
        state: the generator.
    """
    indices = np.empty(rates.size)
    for arm in range(rates.size):
        indices[arm] = look_up(clicks[arm], shows[arm], small, bonus, grid)
    for _ in range(visitors):
        arm, _tied = _lead(indices, state)
        shows[arm] += 1
        if uniform(state) < rates[arm]:
            clicks[arm] += 1
        indices[arm] = look_up(clicks[arm], shows[arm], small, bonus, grid)


@compiled
def leap_index(
    small: Any,
    bonus: Any,
    grid: Any,
    rates: Any,
    visitors: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """The same law in blocks; arguments as in `step_index`."""
    indices = np.empty(rates.size)
    for arm in range(rates.size):
        indices[arm] = look_up(clicks[arm], shows[arm], small, bonus, grid)
    sizes = np.empty(_DEPTH, np.int64)
    wins = np.empty(_DEPTH, np.int64)
    while visitors > 0:
        arm, tied = _lead(indices, state)
        rival = _runner_up(indices, arm)
        size = 1
        if tied == 1:
            size = _quiet_length(
                clicks[arm], shows[arm], rates[arm], indices[arm] - rival, visitors
            )
        if shows[arm] < small.shape[0]:
            # The table's two halves meet with a tiny step: a block stays within one of them.
            size = min(size, small.shape[0] - 1 - shows[arm])
        if size < _SHORT_BLOCK:
            shows[arm] += 1
            if uniform(state) < rates[arm]:
                clicks[arm] += 1
            visitors -= 1
            indices[arm] = look_up(clicks[arm], shows[arm], small, bonus, grid)
            continue
        sizes[0] = size
        wins[0] = binomial(size, rates[arm], state)
        depth = 1
        leading = True
        while depth > 0 and leading:
            top = depth - 1
            here, won = sizes[top], wins[top]
            if _holds(clicks[arm], shows[arm], won, here, rival, small, bonus, grid):
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
                    leading = look_up(clicks[arm], shows[arm], small, bonus, grid) > rival
                depth -= 1
            else:
                first = here // 2
                early = hypergeometric(won, here - won, first, state)
                sizes[top], wins[top] = here - first, won - early
                sizes[depth], wins[depth] = first, early
                depth += 1
        indices[arm] = look_up(clicks[arm], shows[arm], small, bonus, grid)


@compiled
def _quiet_length(clicks: Any, shows: Any, rate: Any, gap: Any, visitors: Any) -> Any:
    """About .7 of the shows whose expected failures would close the gap."""
    mean = (clicks + 1.0) / (shows + 2.0)
    fall = (1.0 - rate) * mean / (shows + 2.0)
    if fall * visitors <= 0.7 * gap:
        return visitors
    certain = 0.7 * gap / fall
    swing = gap * (shows + 2.0) / (6.0 * math.sqrt(rate * (1.0 - rate) + 1e-300))
    likely = min(0.8 * swing * swing, shows + 0.0)
    return np.int64(min(np.float64(visitors), max(certain, likely)))


@compiled
def _holds(
    clicks: Any, shows: Any, won: Any, shown: Any, rival: Any, small: Any, bonus: Any, grid: Any
) -> Any:
    """Whether the leader's index stays above the rival's all through a block."""
    if look_up(clicks, shows + shown - won, small, bonus, grid) > rival:
        return True
    # An index is above the posterior mean: it is enough that the mean stays above the rival.
    return (
        shown >= 64 and 0.0 < rival < 1.0 and stays_above(clicks + 1, shows + 2, won, shown, rival)
    )
