"""The leap kernel: whole blocks of visitors at once, with the same distribution as one by one.

While no segment's greedy arm changes, visitors are independent draws from one known distribution.
So we draw a block's totals, and if they prove that no greedy arm can have changed (see
`leader.py`), accept the block as a whole. Otherwise we split it in two by hypergeometric draws
given the totals, and check again; small parts are drawn visitor by visitor without replacement. If
a greedy arm changes, the rest of the block is dropped, which is valid because it is independent of
the past.

A decaying schedule is thinned: what all clocks of the block have in common is drawn in bulk, and
the few visitors left undecided get their own clock and their own draw.
"""

from __future__ import annotations

from deniable._compile import compiled
from deniable.simulation.kernels.bit_parallel import advance_words
from deniable.simulation.kernels.block import decide, draw_totals, settle_block, take_block
from deniable.simulation.kernels.block_length import (
    schedule_length,
    single_leader_length,
    tied_length,
)
from deniable.simulation.kernels.decaying_exploration import advance_decaying
from deniable.simulation.kernels.exploration import explore, total
from deniable.simulation.kernels.lead import lead_length
from deniable.simulation.kernels.leader import PRODUCT_SAFE, look_for_leaders
from deniable.simulation.kernels.random_numbers import (
    failures_before_success,
    uniform,
    wait_scale,
)
from deniable.simulation.kernels.state import (
    ARM_DYNAMIC,
    DYNAMIC,
    FIXED,
    UNDECIDED,
    Arms,
    FloatArray,
    IntArray,
    Leaders,
    LeapSpace,
    Rule,
    WordArray,
    World,
)
from deniable.simulation.kernels.step import step_visitors
from deniable.simulation.kernels.two_arms import LONG, WORD, advance_two_arms

_SHORT_BLOCK = 24  # below this length, single visitors are cheaper
_SINGLE_RUN = 16  # single visitors to process before trying a block again
_WANTED = 12.0  # expected undecided visitors per block


@compiled
def leap_visitors(
    rule: Rule, visitors: int, space: LeapSpace, words: WordArray | None, world: World
) -> None:
    """Advance by this many visitors, in place.

    Args:
        rule: any rule.
        visitors: number of visitors.
        space: scratch space.
        words: for three or more arms, a word of 64 visitors by arm, (3, K); else None. Numba then
            omits the branch for the other case, which halves the compilation time.
        world: segments that share a clock.
    """
    clocks, leaders = world.clocks, space.leaders
    n_segments, n_arms = world.rates.shape
    sure = space.exploring[0]
    end = clocks[0] + visitors
    while clocks[0] < end:
        clock = clocks[0]
        look_for_leaders(world, leaders)
        bonus = explore(rule, clock + 1, sure)
        settled = rule.kind == FIXED or clock + 1 >= rule.turns[-1]
        size = end - clock
        if not settled:
            size = _until_next_turn(rule.turns, clock, size)
        alone = n_segments == 1 and leaders.ties[0] == 1 and bonus > 0.0
        decaying = alone and not settled and rule.kind == DYNAMIC
        if not settled and not decaying:
            size = min(size, int(schedule_length(clock, 1.0 - bonus, _WANTED)))
        # Without a bonus now or later, all visitors see random arms, whichever arm leads.
        matters = bonus > 0.0 or not settled
        longest = size
        pair = 0
        if decaying and words is None:
            pair = _pair_length(leaders.arms[0], sure, world, longest)
        if LONG < pair < clock >> 3:
            size = pair
        elif matters:
            size = max(pair, _quiet_length(leaders, sure, bonus, world, size))
        steady = alone and settled and n_arms == 2
        near = size < LONG and end - clock >= WORD
        if (
            n_segments == 1
            and rule.kind != ARM_DYNAMIC
            and (near or steady)
            and _most_shown(world.shows) < PRODUCT_SAFE
        ):
            arms = Arms(world.rates[0], world.shows[0], world.clicks[0], clocks, world.state)
            if words is None:
                advance_two_arms(rule, end - clock, space.stack, arms)
            else:
                advance_words(rule, end - clock, space, words, arms)
        elif size < _SHORT_BLOCK:
            run = min(_SINGLE_RUN, end - clock)
            step_visitors(rule, run, leaders, space.step, world)
        elif decaying:
            advance_decaying(rule.floor, size, space, world)
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
def _most_shown(shows: IntArray) -> int:
    most = 0
    for j in range(shows.shape[0]):
        for arm in range(shows.shape[1]):
            most = max(most, shows[j, arm])
    return most


@compiled
def _until_next_turn(turns: FloatArray, clock: int, size: int) -> int:
    """Return the visitors before the next arm's budget binds; until then probabilities are monotone."""
    for turn in turns:
        if turn > clock + 1:
            # As floats, because a turn may be infinite.
            return int(min(float(size), turn - 1.0 - clock))
    return size


@compiled
def _pair_length(leader: int, exploring: FloatArray, world: World, longest: int) -> int:
    """Return the block length if two arms are taken together."""
    shows, clicks, rates = world.shows[0], world.clicks[0], world.rates[0]
    other = 1 - leader
    return int(
        lead_length(
            shows[leader],
            clicks[leader],
            shows[other],
            clicks[other],
            exploring[other],
            rates[leader],
            rates[other],
            float(longest),
        )
    )


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
            own = single_leader_length(
                shows, clicks, leader, exploring, bonus, world.rates[j], length * share
            )
        else:
            own = tied_length(
                shows, clicks, leader, leaders.ties[j], exploring, bonus, world.rates[j]
            )
        length = min(length, own / share)
    return int(length)
