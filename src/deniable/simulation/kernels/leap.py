"""The leap kernel: whole blocks of visitors at once, with the same distribution as one by one.

While no segment's greedy arm changes, visitors are independent draws from one known distribution.
So we draw a block's totals, and if they prove that no greedy arm can have changed (see
`leader.py`), accept the block as a whole. Otherwise we split it in two by hypergeometric draws
given the totals, and check again; small parts are drawn visitor by visitor without replacement. If
a greedy arm changes, the rest of the block is dropped, which is valid because it is independent of
the past.

How long a block may be is a guess from the past (`_quiet_length`). Any guess that depends on the past
alone gives the exact distribution: a long one is split more often, a short one leaps less far. Near a
tie no block is long, and single visitors are cheaper: they are left to the step kernel.

A decaying schedule is thinned: what all clocks of the block have in common is drawn in bulk, and
the few visitors left undecided get their own clock and their own draw.
"""

from __future__ import annotations

import math

from deniable._compile import compiled
from deniable.simulation.kernels.block import decide, draw_totals, settle_block, take_block
from deniable.simulation.kernels.exploration import explore, total
from deniable.simulation.kernels.leader import look_for_leaders
from deniable.simulation.kernels.random_numbers import (
    failures_before_success,
    uniform,
    wait_scale,
)
from deniable.simulation.kernels.state import (
    FIXED,
    UNDECIDED,
    FloatArray,
    IntArray,
    Leaders,
    LeapSpace,
    Rule,
    World,
)
from deniable.simulation.kernels.step import step_visitors

_SHORT_BLOCK = 48  # below this length, single visitors are cheaper
_SINGLE_RUN = 64  # single visitors to process before trying a block again
_WANTED = 12.0  # expected undecided visitors per block
_CERTAIN = 0.7  # share of the length at which the expected worst order closes the gap
_SWING = 5.2  # standard deviations that an accepted path must keep away, plus a margin
_LIKELY = 0.65
_LONG = 200.0  # from this many visitors, fluctuations are smaller than worst orders


@compiled
def leap_visitors(rule: Rule, visitors: int, space: LeapSpace, world: World) -> None:
    """Advance by this many visitors, in place.

    Args:
        rule: any rule.
        visitors: number of visitors.
        space: scratch space.
        world: segments that share a clock.
    """
    clocks, leaders = world.clocks, space.leaders
    sure = space.exploring[0]
    end = clocks[0] + visitors
    while clocks[0] < end:
        clock = clocks[0]
        look_for_leaders(world, leaders)
        # The first visitor of the block has the next clock.
        bonus = explore(rule, clock + 1, sure)
        settled = rule.kind == FIXED or clock + 1 >= rule.turns[-1]
        size = end - clock
        if not settled:
            size = _until_next_turn(rule.turns, clock, size)
            size = min(size, int(_schedule_length(clock, 1.0 - bonus)))
        # Without a bonus now or later, all visitors see random arms, whichever arm leads.
        matters = bonus > 0.0 or not settled
        if matters:
            size = _quiet_length(leaders, sure, bonus, world, size)
        if size < _SHORT_BLOCK:
            # Several at once, because to look for the leaders again takes as long as some of them.
            run = min(_SINGLE_RUN, end - clock)
            step_visitors(rule, run, leaders, space.step, world)
        else:
            n_undecided = 0
            if not settled:
                size, n_undecided, matters = _draw_undecided(rule, size, bonus, space, world)
            blocks = space.blocks
            draw_totals(
                size - n_undecided, sure, bonus, leaders, world, blocks.shown[0], blocks.won[0]
            )
            if matters:
                settle_block(size, n_undecided, blocks, leaders, world)
            else:
                take_block(size, n_undecided, blocks, world)


@compiled
def _draw_undecided(
    rule: Rule, size: int, bonus: float, space: LeapSpace, world: World
) -> tuple[int, int, bool]:
    """Draw the visitors of a block whose own clocks matter, if exploration falls with every visitor.

    Each arm is explored with at least its smallest probability in the block, and the greedy arm has
    at least the first clock's bonus. That part is drawn in bulk. Few visitors fall into the
    remainder; each of them is decided here, at its own clock.

    Returns:
        The block's size, the number of undecided visitors, and whether the greedy arm matters.
    """
    sure, last, spread = space.exploring[0], space.exploring[1], space.exploring[2]
    blocks, leaders, clock = space.blocks, space.leaders, world.clocks[0]
    # Between two turns each probability is monotone, so its minimum is at one of the ends.
    last_bonus = explore(rule, clock + size, last)
    for arm in range(sure.size):
        sure[arm] = min(sure[arm], last[arm])
    loose = max(0.0, 1.0 - bonus - total(sure))
    scale = wait_scale(loose)
    n_undecided = 0
    place = failures_before_success(scale, world.state)
    while place < size:
        blocks.places[n_undecided] = place
        # The first `greedy` of the remainder goes to the greedy arm, the rest is explored.
        u = uniform(world.state) * loose
        greedy = explore(rule, clock + 1 + place, last) - bonus
        for arm in range(sure.size):
            spread[arm] = last[arm] - sure[arm]
        decide(u, greedy, spread, leaders, world, blocks.undecided[n_undecided])
        n_undecided += 1
        if n_undecided == UNDECIDED:
            size = place + 1  # no space for more: end the block here, which is still exact
        place += 1 + failures_before_success(scale, world.state)
    return size, n_undecided, last_bonus > 0.0


@compiled
def _until_next_turn(turns: FloatArray, clock: int, size: int) -> int:
    """Return the visitors before the next arm's budget binds; until then probabilities are monotone."""
    for turn in turns:
        if turn > clock + 1:
            # As floats, because a turn may be infinite.
            return int(min(float(size), turn - 1.0 - clock))
    return size


@compiled
def _quiet_length(
    leaders: Leaders, exploring: FloatArray, bonus: float, world: World, size: int
) -> int:
    """Return the smallest of the segments' block lengths, in visitors of all of them."""
    length = float(size)
    before = 0.0
    for j in range(leaders.arms.size):
        share = world.arrival[j] - before
        before = world.arrival[j]
        if share <= 0.0:
            continue  # no visitors
        shows, clicks, leader = world.shows[j], world.clicks[j], leaders.arms[j]
        if leaders.ties[j] == 1:
            own = _single_leader_length(
                shows, clicks, leader, exploring, bonus, world.rates[j], length * share
            )
        else:
            own = _tied_length(
                shows, clicks, leader, leaders.ties[j], exploring, bonus, world.rates[j]
            )
        length = min(length, own / share)
    return int(length)


@compiled
def _single_leader_length(
    shows: IntArray,
    clicks: IntArray,
    leader: int,
    exploring: FloatArray,
    bonus: float,
    rates: FloatArray,
    longest: float,
) -> float:
    """Return how many of the segment's visitors to leap while one arm leads, at most `longest`.

    In the worst order, m visitors close the gap between the leader's rate and a challenger's by the
    leader's expected failures, m f Q / n, and the challenger's expected clicks, m s (1 - Q') / n'.
    """
    n, c = shows[leader], clicks[leader]
    own = exploring[leader] + bonus
    q = c / n
    fall = own * (1.0 - rates[leader]) * q / n
    sway = _SWING * math.sqrt(own * rates[leader] * (1.0 - rates[leader])) / n
    length = longest
    for arm in range(shows.size):
        if arm == leader:
            continue
        k = max(shows[arm], 1)
        other = clicks[arm] / k
        gap = q - other
        hits = exploring[arm] * rates[arm]
        rise = hits * (1.0 - other) / k
        closing = fall + rise
        # Most challengers are far behind, so this takes one comparison and no division.
        if closing <= 0.0 or gap > closing * length / _CERTAIN:
            continue
        reach = _CERTAIN * gap / closing
        # Over many visitors, clicks and failures mix, and the worst order is far too pessimistic.
        if reach > _LONG:
            arm_sway = _SWING * math.sqrt(hits * (1.0 - rates[arm])) / k
            reach = max(reach, _swinging_length(gap, rise, sway, arm_sway, n + k))
        length = min(length, reach)
    return length


@compiled
def _swinging_length(gap: float, rise: float, sway: float, arm_sway: float, seen: int) -> float:
    """Return the visitors after which fluctuations of the leader, or of both, may close the gap."""
    # leader fluctuates, challenger at its worst: rise m + sway sqrt m = gap
    root = 2.0 * gap / (sway + math.sqrt(sway * sway + 4.0 * rise * gap))
    mixed = _LIKELY * root * root
    both = gap / (sway + arm_sway)
    return max(mixed, min(_LIKELY * both * both, float(seen)))


@compiled
def _tied_length(
    shows: IntArray,
    clicks: IntArray,
    leader: int,
    tied: int,
    exploring: FloatArray,
    bonus: float,
    rates: FloatArray,
) -> float:
    """Return the segment's visitors until the tie is expected to break, times .7; infinite if never."""
    breaking = 0.0
    at_zero = clicks[leader] == 0
    at_one = clicks[leader] == shows[leader] and not at_zero
    for arm in range(shows.size):
        if at_zero:
            # There are no clicks yet: the first click of any arm breaks the tie.
            breaking += (exploring[arm] + bonus / tied) * rates[arm]
        elif at_one and clicks[arm] == shows[arm] and clicks[arm] > 0:
            breaking += (exploring[arm] + bonus / tied) * (1.0 - rates[arm])
        elif at_one and shows[arm] == 0:
            breaking += exploring[arm] * rates[arm]
        elif not at_one:
            # Rates strictly between 0 and 1 move with every show: no block is safe.
            return 0.0
    return _CERTAIN / breaking if breaking > 0.0 else math.inf


@compiled
def _schedule_length(clock: int, exploration: float) -> float:
    """Return the visitors in which a decaying schedule leaves about `_WANTED` of them undecided.

    Exploration falls like n^(-1/3), so over m visitors it falls by about m / (3 n) of itself. Each of
    the m visitors is undecided with that probability, times the exploration.
    """
    return math.sqrt(3.0 * _WANTED * (clock + 1.0) / max(exploration, 1e-300))
