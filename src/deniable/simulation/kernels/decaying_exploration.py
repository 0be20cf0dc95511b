"""Decaying exploration with one segment and one leader: long blocks made of short steps.

Only the number of visitors who see another arm than the leader depends on the clock; which arm they
see and who clicks does not. So a block is divided into steps in which the exploration hardly falls.
In each step we count the visitors who see another arm: in bulk with the exploration at the step's
end, which all of them have at least, plus a few candidates, found by geometric waiting times, who
are compared with the schedule at their own clock. Then all steps together get their arms and
clicks, and are checked as one block: the order in which an arm's own visitors click is uniform
whatever the clocks do, and the check (see `leader.py`) needs no more. The totals are distributed to
the steps only if it fails.
"""

from __future__ import annotations

import math

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.block import settle_block
from deniable.simulation.kernels.block_length import schedule_length
from deniable.simulation.kernels.exploration import scheduled, total
from deniable.simulation.kernels.lead import keeps_lead
from deniable.simulation.kernels.leader import keeps_leader
from deniable.simulation.kernels.random_numbers import (
    binomial,
    failures_before_success,
    hypergeometric,
    uniform,
    wait_scale,
)
from deniable.simulation.kernels.state import (
    CANDIDATES,
    STEPS,
    Blocks,
    IntArray,
    LeapSpace,
    WordArray,
    World,
)

_WANTED = 4.0  # expected candidates per step
_CONVEX = 32  # from this clock on, the schedule is a convex function of the clock


@compiled
def advance_decaying(floor: float, visitors: int, space: LeapSpace, world: World) -> None:
    """Advance by one block of at most this many visitors, while the schedule is above its floor.

    Args:
        floor: the rule's minimum exploration.
        visitors: maximum number of visitors.
        space: scratch space, with an arm that leads alone and the exploration of the first visitor.
        world: a world with one segment.
    """
    n_arms = world.rates.shape[1]
    state = world.state
    leader = space.leaders.arms[0]
    size, steps, wandering = 0, 0, 0
    share = 1.0 - 1.0 / n_arms  # share of exploring visitors who see another arm
    high = share * total(space.exploring[0])
    first, last_low = high, high
    while size < visitors and steps < STEPS:
        clock = world.clocks[0] + size
        wanted = min(visitors - size, 1 + int(schedule_length(clock, high, _WANTED)))
        last, slope = _schedule_and_slope(n_arms, floor, clock + wanted)
        low = share * last
        convex = clock >= _CONVEX and high < share
        length, found, wanderers = _count_wanderers(
            n_arms,
            floor,
            clock,
            wanted,
            high,
            low,
            share * slope if convex else -1.0,
            space.candidates[steps],
            state,
        )
        space.steps[steps, 0], space.steps[steps, 1] = length, found
        space.steps[steps, 2] = wanderers
        wandering += wanderers
        last_low = low
        size += length
        steps += 1
        # The next step starts at most as high as this one ends.
        high = low if length == wanted else share * max(floor, scheduled(n_arms, clock + length))
    block_shown, block_won = space.counts[0], space.counts[1]
    for arm in range(n_arms):
        block_shown[arm] = 0
    _spread_evenly(wandering, leader, block_shown, state)
    block_shown[leader] = size - wandering
    for arm in range(n_arms):
        block_won[arm] = binomial(block_shown[arm], world.rates[0, arm], state)
    if _keeps_pair(last_low, first, size, leader, space, world) or keeps_leader(
        world.shows[0], world.clicks[0], leader, block_shown, block_won
    ):
        for arm in range(n_arms):
            world.shows[0, arm] += block_shown[arm]
            world.clicks[0, arm] += block_won[arm]
        world.clocks[0] += size
        return
    # The leader may have changed: go through the steps, each with its own visitors.
    for i in range(steps):
        length, found, wanderers = space.steps[i, 0], space.steps[i, 1], space.steps[i, 2]
        _deal(length - wanderers, wanderers, leader, space, state)
        _seat(space.candidates[i, :found], leader, space.blocks, state)
        if not settle_block(length, found, space.blocks, space.leaders, world):
            return


@compiled
def _keeps_pair(
    least: float, wander: float, size: int, leader: int, space: LeapSpace, world: World
) -> bool:
    """Whether the leader of two arms keeps its lead, while exploration falls from one to the other."""
    shows, clicks, rates = world.shows[0], world.clicks[0], world.rates[0]
    other = 1 - leader
    if shows.size != 2 or shows[other] == 0:
        return False
    return keeps_lead(
        shows[leader],
        clicks[leader],
        shows[other],
        clicks[other],
        least,
        wander,
        rates[leader],
        rates[other],
        size,
        space.counts[0, other],
        space.counts[1, leader],
        space.counts[1, other],
    )


@compiled
def _schedule_and_slope(n_arms: int, floor: float, clock: int) -> tuple[float, float]:
    """Return the exploration, and minus its derivative: exploration (1 - 1 / log n) / (3 n)."""
    if clock < _CONVEX:
        return max(floor, scheduled(n_arms, clock)), 0.0
    log_clock = math.log(clock)
    rate = min(1.0, np.cbrt(n_arms * log_clock / clock))
    return max(floor, rate), rate * (1.0 - 1.0 / log_clock) / (3.0 * clock)


@compiled
def _count_wanderers(
    n_arms: int,
    floor: float,
    clock: int,
    length: int,
    high: float,
    low: float,
    slope: float,
    candidates: IntArray,
    state: WordArray,
) -> tuple[int, int, int]:
    """Return a step's length, its candidates, and how many visitors see another arm than the leader.

    Each visitor sees another arm with probability `low`, is a candidate with `high` - `low`, and
    otherwise sees the leader.

    Args:
        n_arms: K.
        floor: the rule's minimum exploration.
        clock: visitors before the step.
        length: the maximum length of the step.
        high: at least the probability of another arm at the step's first clock.
        low: the probability at the last clock.
        slope: minus the derivative of the probability at the last clock; negative if it is not
            convex before.
        candidates: receives twice the position in the step for each, plus 1 if it sees another arm.
        state: the generator.
    """
    share = 1.0 - 1.0 / n_arms
    loose = max(0.0, high - low)
    scale = wait_scale(loose)
    chord = loose / length
    found, wanderers = 0, 0
    place = failures_before_success(scale, state)
    while place < length:
        # A convex schedule lies between its tangent at the end and its chord. These two lines
        # decide most candidates without a logarithm and a cube root.
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
        if found == CANDIDATES:
            length = place + 1  # no space for more: end the step here, which is still exact
        place += 1 + failures_before_success(scale, state)
    wanderers += binomial(length - found, low / (1.0 - loose), state)
    return length, found, wanderers


@compiled
def _spread_evenly(visitors: int, leader: int, shown: IntArray, state: WordArray) -> None:
    """Spread visitors evenly over all arms except the leader."""
    arms = shown.size - 1
    for arm in range(shown.size):
        if arm != leader:
            part = binomial(visitors, 1.0 / arms, state)
            shown[arm] += part
            visitors -= part
            arms -= 1


@compiled
def _deal(greedy: int, wanderers: int, leader: int, space: LeapSpace, state: WordArray) -> None:
    """Move the visitors of one step out of the block's totals, given how many see another arm."""
    left_shown, left_won = space.counts[0], space.counts[1]
    shown, won = space.blocks.shown[0, 0], space.blocks.won[0, 0]
    wandering = -left_shown[leader]
    for arm in range(left_shown.size):
        wandering += left_shown[arm]
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
def _seat(candidates: IntArray, leader: int, blocks: Blocks, state: WordArray) -> None:
    """Assign each candidate a position, an arm and a click from a step's totals."""
    shown, won = blocks.shown[0, 0], blocks.won[0, 0]
    for i in range(candidates.size):
        arm = leader
        if candidates[i] & 1:
            wandering = -shown[leader]
            for one in shown:
                wandering += one
            choice = int(uniform(state) * wandering)
            arm = 0
            while arm == leader or choice >= shown[arm]:
                if arm != leader:
                    choice -= shown[arm]
                arm += 1
        hit = uniform(state) * shown[arm] < won[arm]
        shown[arm] -= 1
        if hit:
            won[arm] -= 1
        blocks.places[i] = candidates[i] >> 1
        blocks.undecided[i, 0] = 0
        blocks.undecided[i, 1] = arm
        blocks.undecided[i, 2] = 1 if hit else 0
