"""A falling schedule, one segment, one leader: long blocks made of short steps.

Only how many visitors see another arm than the leader depends on the clock; which arm it is and who
clicks does not. So a block is cut into steps in which the exploration hardly falls. In each step the
visitors who wander off the leader are counted: in bulk at the exploration of the step's end, which all
have in common, and a few candidates, found by geometric waits, who are compared with the schedule at
their own clock. Then all steps together get their arms and clicks, and are checked as one block: the
order in which an arm's own visitors click is uniform whatever the clocks do, and the check (see
`_holding`) asks for no more. Only if it fails are the totals dealt out to the steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._block import spread_others
from deniable.simulation._block_length import schedule_length
from deniable.simulation._exploring import scheduled
from deniable.simulation._generator import uniform
from deniable.simulation._holding import keeps_leader
from deniable.simulation._samplers import (
    binomial,
    failures_before_success,
    hypergeometric,
    wait_scale,
)
from deniable.simulation._settle import settle_block

STEPS = 64  # of a block at most
ROOM = 32  # candidates that a step can hold; it ends at the last that fits
_CANDIDATES = 4.0  # to expect in a step
_CONVEX = 32  # from here on the schedule is a convex function of the clock


@compiled
def falling_visitors(
    floor: Any,
    clocks: Any,
    rates: Any,
    visitors: Any,
    leaders: Any,
    ties: Any,
    shown: Any,
    won: Any,
    book: Any,
    candidates: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """Advance by one block of at most this many visitors, while the schedule is above its floor.

    Args:
        floor: the rule's least exploration.
        clocks: visitors so far, (1,).
        rates: click rates, (1, K).
        visitors: how many at most.
        leaders: the arm that leads alone, (1,).
        ties: 1, (1,).
        shown: room for `settle_block`, (DEPTH, 1, K).
        won: likewise.
        book: room for each step's length, candidates and wanderers, (STEPS, 3).
        candidates: room for the candidates, (STEPS, ROOM).
        shows: counts so far, (1, K).
        clicks: counts so far, (1, K).
        state: the generator.
    """
    n_arms = rates.shape[1]
    leader = leaders[0]
    size, steps, wandering = 0, 0, 0
    share = 1.0 - 1.0 / n_arms  # of those who explore that see another arm
    high = share * max(floor, scheduled(n_arms, clocks[0] + 1))
    while size < visitors and steps < STEPS:
        clock = clocks[0] + size
        wanted = min(visitors - size, 1 + np.int64(schedule_length(clock, high, _CANDIDATES)))
        last, slope = _schedule_and_slope(n_arms, floor, clock + wanted)
        low = share * last
        convex = clock >= _CONVEX and high < share
        length, found, wanderers = _wander(
            n_arms,
            floor,
            clock,
            wanted,
            high,
            low,
            share * slope if convex else -1.0,
            candidates[steps],
            state,
        )
        book[steps, 0], book[steps, 1], book[steps, 2] = length, found, wanderers
        wandering += wanderers
        size += length
        steps += 1
        # The next step starts at most as high as this one ends.
        high = low if length == wanted else share * max(floor, scheduled(n_arms, clock + length))
    block_shown = np.zeros(n_arms, np.int64)
    block_won = np.empty(n_arms, np.int64)
    spread_others(wandering, leader, block_shown, state)
    block_shown[leader] = size - wandering
    for arm in range(n_arms):
        block_won[arm] = binomial(block_shown[arm], rates[0, arm], state)
    if keeps_leader(shows[0], clicks[0], leader, block_shown, block_won):
        shows[0] += block_shown
        clicks[0] += block_won
        clocks[0] += size
        return
    undecided = np.zeros((ROOM, 3), np.int64)
    for i in range(steps):
        length, found, wanderers = book[i, 0], book[i, 1], book[i, 2]
        _deal(
            length - wanderers,
            wanderers,
            leader,
            block_shown,
            block_won,
            shown[0, 0],
            won[0, 0],
            state,
        )
        _seat(candidates[i, :found], leader, shown[0, 0], won[0, 0], undecided, state)
        if not settle_block(
            length,
            found,
            True,
            candidates[i] >> 1,
            undecided,
            leaders,
            ties,
            shown,
            won,
            clocks,
            shows,
            clicks,
            state,
        ):
            return


@compiled
def _schedule_and_slope(n_arms: Any, floor: Any, clock: Any) -> Any:
    """The exploration, and minus its derivative: exploration (1 - 1 / log n) / (3 n)."""
    if clock < _CONVEX:
        return max(floor, scheduled(n_arms, clock)), 0.0
    log_clock = math.log(clock)
    rate = min(1.0, np.cbrt(n_arms * log_clock / clock))
    return max(floor, rate), rate * (1.0 - 1.0 / log_clock) / (3.0 * clock)


@compiled
def _wander(
    n_arms: Any,
    floor: Any,
    clock: Any,
    length: Any,
    high: Any,
    low: Any,
    slope: Any,
    candidates: Any,
    state: Any,
) -> Any:
    """One step: its length, its candidates, and how many see another arm than the leader.

    Each visitor wanders with `low`, is a candidate with `high` - `low`, and else sees the leader.

    Args:
        n_arms: K.
        floor: the rule's least exploration.
        clock: visitors before the step.
        length: the step's length, at most.
        high: at least the chance to wander at the step's first clock.
        low: the chance at the last.
        slope: minus the derivative of the chance at the last clock; below 0 if not convex before.
        candidates: receives for each twice its place in the step, and 1 more if it wanders.
        state: the generator.
    """
    share = 1.0 - 1.0 / n_arms
    loose = max(0.0, high - low)
    scale = wait_scale(loose)
    chord = loose / length
    found, wanderers = 0, 0
    place = failures_before_success(scale, state)
    while place < length:
        # A convex schedule lies between its tangent at the end and its chord.
        height = uniform(state) * loose
        left = length - place
        if slope >= 0.0 and height >= chord * left:
            wanders = False
        elif height < slope * (left - 1):
            wanders = True
        else:
            wanders = height < share * max(floor, scheduled(n_arms, clock + 1 + place)) - low
        candidates[found] = 2 * place + (1 if wanders else 0)
        wanderers += 1 if wanders else 0
        found += 1
        if found == ROOM:
            length = place + 1
        place += 1 + failures_before_success(scale, state)
    wanderers += binomial(length - found, low / (1.0 - loose), state)
    return length, found, wanderers


@compiled
def _deal(
    greedy: Any,
    wanderers: Any,
    leader: Any,
    left_shown: Any,
    left_won: Any,
    shown: Any,
    won: Any,
    state: Any,
) -> None:
    """Move the visitors of one step out of a block's totals, given how many of them wander."""
    wandering = left_shown.sum() - left_shown[leader]
    for arm in range(left_shown.size):
        taken = greedy
        if arm != leader:
            here = left_shown[arm]
            taken = hypergeometric(here, wandering - here, wanderers, state)
            wandering -= here
            wanderers -= taken
        hits = hypergeometric(left_won[arm], left_shown[arm] - left_won[arm], taken, state)
        shown[arm], won[arm] = taken, hits
        left_shown[arm] -= taken
        left_won[arm] -= hits


@compiled
def _seat(candidates: Any, leader: Any, shown: Any, won: Any, undecided: Any, state: Any) -> None:
    """Give each candidate an arm and a click out of a step's totals."""
    for i in range(candidates.size):
        arm = leader
        if candidates[i] & 1:
            pick = np.int64(uniform(state) * (shown.sum() - shown[leader]))
            arm = 0
            while arm == leader or pick >= shown[arm]:
                if arm != leader:
                    pick -= shown[arm]
                arm += 1
        hit = uniform(state) * shown[arm] < won[arm]
        shown[arm] -= 1
        if hit:
            won[arm] -= 1
        undecided[i, 1] = arm
        undecided[i, 2] = 1 if hit else 0
