"""Blocks of visitors between changes of the greedy arm: drawn, checked, split, walked through.

A block is represented by its totals: shows and clicks by segment and arm. Every order of its
visitors is equally likely. If the totals prove that no greedy arm can have changed, the block is
accepted as a whole. Otherwise it is split in two, and each part is checked again; small parts are
drawn visitor by visitor. If a greedy arm changes, the rest of the block is dropped, which is valid
because it is independent of the past.
"""

from __future__ import annotations

from deniable._compile import compiled
from deniable.simulation.kernels.exploration import total
from deniable.simulation.kernels.leader import find_leaders, keeps_leader, keeps_tie, tied_arm
from deniable.simulation.kernels.random_numbers import binomial, hypergeometric, uniform
from deniable.simulation.kernels.state import (
    DEPTH,
    Blocks,
    FloatArray,
    IntArray,
    Leaders,
    WordArray,
    World,
)

_LEAF = 16  # sub-blocks of this size are walked through


@compiled
def decide(
    u: float, greedy: float, spread: FloatArray, leaders: Leaders, world: World, out: IntArray
) -> None:
    """Draw segment, arm and click of an undecided visitor, from the probability left open at its clock.

    `u` is uniform on that remainder: the first `greedy` of it goes to the greedy arm, the rest to
    the arms in proportion to `spread`.
    """
    j = pick(world.arrival, world.state) if leaders.arms.size > 1 else 0
    if u < greedy:
        arm = leaders.arms[j]
        if leaders.ties[j] > 1:
            rank = int(uniform(world.state) * leaders.ties[j])
            arm = tied_arm(world.shows, world.clicks, j, arm, rank)
    else:
        u -= greedy
        arm = 0
        while arm < spread.size - 1 and u >= spread[arm]:
            u -= spread[arm]
            arm += 1
    out[0] = j
    out[1] = arm
    out[2] = 1 if uniform(world.state) < world.rates[j, arm] else 0


@compiled
def pick(cumulative: FloatArray, state: WordArray) -> int:
    """Draw an index from cumulative probabilities."""
    place = uniform(state)
    index = 0
    # The last one needs no comparison: rounding could leave it below 1.
    while index < cumulative.size - 1 and place >= cumulative[index]:
        index += 1
    return index


@compiled
def draw_totals(
    size: int,
    exploring: FloatArray,
    bonus: float,
    leaders: Leaders,
    world: World,
    shown: IntArray,
    won: IntArray,
) -> None:
    """Draw shows and clicks of `size` independent visitors, by segment and arm."""
    n_segments, n_arms = world.rates.shape
    state = world.state
    all_exploring = total(exploring)
    before = 0.0
    for j in range(n_segments):
        rest = 1.0 - before
        # The remaining visitors belong to the last segment, whatever rounding has left of the
        # shares.
        last = j == n_segments - 1 or rest <= 0.0
        visitors = size if last else binomial(size, (world.arrival[j] - before) / rest, state)
        size -= visitors
        before = world.arrival[j]
        for arm in range(n_arms):
            shown[j, arm] = 0
        # Draw the greedy choice first, because it takes most of the visitors.
        leader = leaders.arms[j]
        ties = leaders.ties[j]
        skipped = leader if ties == 1 else -1
        if ties == 1:
            explored = all_exploring - exploring[leader]
            others = binomial(visitors, explored / (all_exploring + bonus), state)
            shown[j, leader] = visitors - others
            _explore_arms(others, exploring, explored, skipped, shown[j], state)
        else:
            greedy = binomial(visitors, bonus / (all_exploring + bonus), state)
            _explore_arms(visitors - greedy, exploring, all_exploring, skipped, shown[j], state)
            # Greedy visitors are spread evenly over the tied arms, one arm after the other.
            for rank in range(ties):
                part = binomial(greedy, 1.0 / (ties - rank), state)
                shown[j, tied_arm(world.shows, world.clicks, j, leader, rank)] += part
                greedy -= part
        for arm in range(n_arms):
            won[j, arm] = binomial(shown[j, arm], world.rates[j, arm], state)


@compiled
def _explore_arms(
    visitors: int,
    exploring: FloatArray,
    total: float,
    skipped: int,
    shown: IntArray,
    state: WordArray,
) -> None:
    """Spread visitors over all arms except one, in proportion to their exploration."""
    last = exploring.size - 1 if skipped != exploring.size - 1 else exploring.size - 2
    for arm in range(last):
        if visitors == 0:
            return
        if arm != skipped:
            # `total` loses precision as it is counted down, so the ratio may be slightly above 1.
            part = binomial(visitors, min(1.0, exploring[arm] / total), state)
            shown[arm] += part
            visitors -= part
            total -= exploring[arm]
    shown[last] += visitors


@compiled
def settle_block(
    size: int, n_undecided: int, blocks: Blocks, leaders: Leaders, world: World
) -> bool:
    """Advance through one block; return False if a greedy arm changed and the rest was dropped.

    Args:
        size: number of visitors in the block.
        n_undecided: how many of them have a fixed position; the others come in any order.
        blocks: shows and clicks of the other visitors in `shown[0]` and `won[0]`; positions and
            outcomes of the undecided ones; the rest is scratch space for parts.
        leaders: the greedy arms.
        world: advanced in place.
    """
    sizes, shown, won = blocks.sizes, blocks.shown, blocks.won
    clock = world.clocks[0]
    # Stack of sub-blocks, with the earliest on top.
    sizes[0] = size
    depth = 1
    seen = 0  # undecided visitors processed so far
    while depth > 0:
        top = depth - 1
        here = sizes[top]
        passed = world.clocks[0] - clock
        reach = seen
        while reach < n_undecided and blocks.places[reach] < passed + here:
            reach += 1
        # The last slot holds the part including its undecided visitors, which may be accepted as a
        # whole.
        _sum_part(blocks, top, seen, reach)
        if _holds(world, leaders, shown[DEPTH], won[DEPTH]):
            _take_part(world, shown[DEPTH], won[DEPTH])
            world.clocks[0] += here
            seen = reach
            depth -= 1
        elif here <= _LEAF:
            if not _walk_block(here, clock, top, seen, reach, blocks, leaders, world):
                return False
            seen = reach
            depth -= 1
        else:
            first = here // 2
            inside = 0
            while seen + inside < reach and blocks.places[seen + inside] < passed + first:
                inside += 1
            _split_block(
                first - inside, shown[top], won[top], shown[depth], won[depth], world.state
            )
            sizes[top] = here - first
            sizes[depth] = first
            depth += 1
    return True


@compiled
def take_block(size: int, n_undecided: int, blocks: Blocks, world: World) -> None:
    """Advance through a block in which no greedy arm is shown, so that nothing can change."""
    _take_part(world, blocks.shown[0], blocks.won[0])
    for i in range(n_undecided):
        j, arm = blocks.undecided[i, 0], blocks.undecided[i, 1]
        world.shows[j, arm] += 1
        world.clicks[j, arm] += blocks.undecided[i, 2]
    world.clocks[0] += size


@compiled
def _sum_part(blocks: Blocks, part: int, first: int, stop: int) -> None:
    """Write a part's totals plus the undecided visitors `first` to `stop` to the last slot."""
    shown, won, undecided = blocks.shown, blocks.won, blocks.undecided
    for j in range(shown.shape[1]):
        for arm in range(shown.shape[2]):
            shown[DEPTH, j, arm] = shown[part, j, arm]
            won[DEPTH, j, arm] = won[part, j, arm]
    for i in range(first, stop):
        shown[DEPTH, undecided[i, 0], undecided[i, 1]] += 1
        won[DEPTH, undecided[i, 0], undecided[i, 1]] += undecided[i, 2]


@compiled
def _take_part(world: World, shown: IntArray, won: IntArray) -> None:
    for j in range(shown.shape[0]):
        for arm in range(shown.shape[1]):
            world.shows[j, arm] += shown[j, arm]
            world.clicks[j, arm] += won[j, arm]


@compiled
def _holds(world: World, leaders: Leaders, shown: IntArray, won: IntArray) -> bool:
    """Whether no segment's greedy arms can have changed inside a block with these totals."""
    for j in range(leaders.arms.size):
        shows, clicks, leader = world.shows[j], world.clicks[j], leaders.arms[j]
        if leaders.ties[j] == 1:
            if not keeps_leader(shows, clicks, leader, shown[j], won[j]):
                return False
        elif not keeps_tie(shows, clicks, leader, shown[j], won[j]):
            return False
    return True


@compiled
def _split_block(
    size: int,
    shown: IntArray,
    won: IntArray,
    early_shown: IntArray,
    early_won: IntArray,
    state: WordArray,
) -> None:
    """Move the first `size` visitors of a block into an earlier block, given the totals."""
    n_segments, n_arms = shown.shape
    left = _visitors_of(shown)
    for j in range(n_segments):
        for arm in range(n_arms):
            # Given the totals, the first visitors are a draw without replacement: hypergeometric.
            here = shown[j, arm]
            taken = hypergeometric(here, left - here, size, state)
            hits = hypergeometric(won[j, arm], here - won[j, arm], taken, state)
            left -= here
            size -= taken
            early_shown[j, arm] = taken
            early_won[j, arm] = hits
            shown[j, arm] -= taken
            won[j, arm] -= hits


@compiled
def _visitors_of(shown: IntArray) -> int:
    found = 0
    for j in range(shown.shape[0]):
        for arm in range(shown.shape[1]):
            found += shown[j, arm]
    return found


@compiled
def _walk_block(
    size: int,
    clock: int,
    part: int,
    seen: int,
    reach: int,
    blocks: Blocks,
    leaders: Leaders,
    world: World,
) -> bool:
    """Process a small block visitor by visitor; return False if a greedy arm changed.

    Args:
        size: number of visitors in the part.
        clock: visitors before the whole block, from which positions count.
        part: index of the part in `blocks`; it is consumed.
        seen: the first undecided visitor of the part.
        reach: the first one after the part.
        blocks: the block.
        leaders: the greedy arms.
        world: advanced in place.
    """
    shown, won, undecided, state = (
        blocks.shown[part],
        blocks.won[part],
        blocks.undecided,
        world.state,
    )
    n_arms = shown.shape[1]
    left = _visitors_of(shown)
    for _ in range(size):
        j, arm = 0, 0
        if seen < reach and blocks.places[seen] == world.clocks[0] - clock:
            j, arm = undecided[seen, 0], undecided[seen, 1]
            clicked = undecided[seen, 2] == 1
            seen += 1
        else:
            choice = int(uniform(state) * left)
            while choice >= shown[j, arm]:
                choice -= shown[j, arm]
                arm += 1
                if arm == n_arms:
                    j, arm = j + 1, 0
            clicked = uniform(state) * shown[j, arm] < won[j, arm]
            shown[j, arm] -= 1
            left -= 1
            if clicked:
                won[j, arm] -= 1
        world.shows[j, arm] += 1
        if clicked:
            world.clicks[j, arm] += 1
        world.clocks[0] += 1
        # Showing a tied arm changes the set of tied arms, unless its rate stays the same.
        leader, tied = find_leaders(world.shows, world.clicks, j)
        if leader != leaders.arms[j] or tied != leaders.ties[j]:
            return False
    return True
