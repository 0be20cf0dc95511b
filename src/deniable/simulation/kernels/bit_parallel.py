"""Three or more arms, one segment, near a tie: 64 visitors at once, as in `two_arms.py`.

One word of bits marks the visitors who are shown another arm than the leader; two more per arm mark
who sees it and who clicks. If exploration is low, the few visitors who see another arm are drawn
one by one.
"""

from __future__ import annotations

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.block_length import single_leader_length
from deniable.simulation.kernels.exploration import scheduled, total
from deniable.simulation.kernels.leader import PRODUCT_SAFE, find_leaders, tied_arm
from deniable.simulation.kernels.random_numbers import (
    FULL_WORD,
    ZERO_WORD,
    coins,
    failures_before_success,
    ones,
    threshold,
    uniform,
    wait_scale,
)
from deniable.simulation.kernels.state import (
    FIXED,
    NEVER,
    Arms,
    FloatArray,
    IntArray,
    LeapSpace,
    Rule,
    WordArray,
)
from deniable.simulation.kernels.two_arms import LONG, WORD, show

_U1 = np.uint64(1)
_SHORT = 7.0  # blocks shorter than this are processed one visitor at a time
_RUN = 8
_FEW = 3  # up to this many other shows per arm, tossing one by one is cheaper than 64 at once


@compiled
def advance_words(
    rule: Rule, visitors: int, space: LeapSpace, words: WordArray, arms: Arms
) -> None:
    """Advance the arms of one segment, by at most `visitors`, until the leader is well ahead.

    Args:
        rule: FIXED or DYNAMIC.
        visitors: maximum number of visitors.
        space: scratch space.
        words: scratch space by arm: thresholds of the rates, who sees the arm, who clicks, (3, K).
        arms: with shows below `PRODUCT_SAFE`.
    """
    rates, shows, clicks, state = arms.rates, arms.shows, arms.clicks, arms.state
    n_arms, floor = rates.size, rule.floor
    start = arms.clocks[0]
    clock = start
    most = 0
    for shown in shows:
        most = max(most, shown)
    # Keep counts below PRODUCT_SAFE, so that products of two of them fit into 63 bits.
    end = clock + min(visitors, PRODUCT_SAFE - most)
    explored = space.exploring[0]
    for arm in range(n_arms):
        explored[arm] = rule.fixed[arm]
        words[0, arm] = threshold(rates[arm])
    bonus = rule.fixed[n_arms]
    epoch_end = NEVER if rule.kind == FIXED else clock
    rare_at = NEVER
    loose, scale = 0.0, 0.0
    while clock < end:
        if clock >= epoch_end:
            first = max(floor, scheduled(n_arms, clock + 1))
            settled = clock + 1 >= rule.turns[-1]
            epoch_end = NEVER if settled else clock + 64 + clock // 128
            rate = first if settled else max(floor, scheduled(n_arms, epoch_end))
            # All visitors of the epoch share the exploration at its end and the bonus at its start.
            # With the remaining probability, `loose`, a visitor is rare and its own clock decides. The
            # probabilities below are conditional on not being rare.
            loose = first - rate
            scale = wait_scale(loose)
            rare_at = clock + failures_before_success(scale, state)
            for arm in range(n_arms):
                explored[arm] = rate / n_arms / (1.0 - loose)
            bonus = (1.0 - first) / (1.0 - loose)
        leader, tied = find_leaders(shows, clicks)
        if clock == rare_at:
            now = max(floor, scheduled(n_arms, clock + 1))
            last = explored[0] * n_arms * (1.0 - loose)
            # A rare visitor explores if its draw is below the schedule at its own clock.
            wanders = uniform(state) * loose < now - last
            _visit(wanders, leader, tied, arms)
            clock += 1
            rare_at = clock + failures_before_success(scale, state)
            continue
        room = min(end, epoch_end, rare_at) - clock
        if tied > 1:
            _single(explored, bonus, leader, tied, arms)
            clock += 1
            continue
        length = single_leader_length(shows, clicks, leader, explored, bonus, rates, 2.0 * LONG)
        # Far ahead, blocks are cheaper. Advance at least one visitor first, or the caller would
        # loop.
        if length > LONG and clock > start:
            break
        if length < _SHORT:
            run = min(_RUN, room)
            while run > 0 and tied == 1:
                _single(explored, bonus, leader, tied, arms)
                clock += 1
                run -= 1
                before = leader
                leader, tied = find_leaders(shows, clicks)
                if leader != before:
                    break
        else:
            clock += _take_word(min(WORD, room), leader, space, words, arms)
    arms.clocks[0] = clock


@compiled
def _visit(wanders: bool, leader: int, tied: int, arms: Arms) -> None:
    """Process one visitor who is shown a uniformly random arm, or a greedy one."""
    arm = leader
    if wanders:
        arm = int(uniform(arms.state) * arms.rates.size)
    elif tied > 1:
        arm = tied_arm(arms.shows, arms.clicks, leader, int(uniform(arms.state) * tied))
    show(arm, arms)


@compiled
def _single(explored: FloatArray, bonus: float, leader: int, tied: int, arms: Arms) -> None:
    """Process one visitor with the rule's current exploration."""
    u = uniform(arms.state)
    arm = leader
    if u < bonus:
        if tied > 1:
            arm = tied_arm(arms.shows, arms.clicks, leader, int(uniform(arms.state) * tied))
    else:
        u -= bonus
        arm = 0
        while arm < explored.size - 1 and u >= explored[arm]:
            u -= explored[arm]
            arm += 1
    show(arm, arms)


@compiled
def _take_word(visitors: int, leader: int, space: LeapSpace, words: WordArray, arms: Arms) -> int:
    """Process up to 64 visitors at once, until the single leader loses the lead; return how many."""
    shows, clicks, state = arms.shows, arms.clicks, arms.state
    explored, won = space.exploring[0], space.counts[1]
    limits, seen, hits = words[0], words[1], words[2]
    n_arms = arms.rates.size
    mask = FULL_WORD if visitors == WORD else (_U1 << np.uint64(visitors)) - _U1
    share = total(explored) - explored[leader]
    others = coins(threshold(share), state) & mask
    seen[leader] = mask & ~others
    hits[leader] = coins(limits[leader], state) & seen[leader]
    _show_others(others, share, explored, leader, words, arms)
    for arm in range(n_arms):
        won[arm] = ones(hits[arm])
    lowest = shows[leader] + ones(seen[leader]) - won[leader]
    if _stays(leader, lowest, clicks[leader], shows, clicks, won):
        for arm in range(n_arms):
            shows[arm] += ones(seen[arm])
            clicks[arm] += won[arm]
        return visitors
    # The totals do not decide it: find the visitor at whom the lead is lost.
    for lane in range(visitors):
        bit = _U1 << np.uint64(lane)
        arm = leader
        if others & bit != ZERO_WORD:
            arm = 0
            while arm == leader or seen[arm] & bit == ZERO_WORD:
                arm += 1
        shows[arm] += 1
        hit = hits[arm] & bit != ZERO_WORD
        if hit:
            clicks[arm] += 1
        # Only the leader's failure or another arm's click can end the lead.
        if arm != leader:
            if hit and clicks[leader] * shows[arm] <= clicks[arm] * shows[leader]:
                return lane + 1
        elif not hit and not _leads(leader, shows, clicks):
            return lane + 1
    return visitors


@compiled
def _show_others(
    others: np.uint64,
    share: float,
    explored: FloatArray,
    leader: int,
    words: WordArray,
    arms: Arms,
) -> None:
    """Draw which other arm each of these visitors sees, and who clicks."""
    rates, state = arms.rates, arms.state
    limits, seen, hits = words[0], words[1], words[2]
    n_arms = rates.size
    last = n_arms - 1 if leader != n_arms - 1 else n_arms - 2
    many = ones(others) > _FEW * n_arms
    left, chance = others, share
    for arm in range(n_arms):
        if arm == leader:
            continue
        if arm == last:
            seen[arm] = left
        elif many:
            seen[arm] = left & coins(threshold(min(1.0, explored[arm] / chance)), state)
        else:
            seen[arm] = _tossed(left, explored[arm] / chance, state)
        left &= ~seen[arm]
        chance -= explored[arm]
        if many:
            hits[arm] = seen[arm] & coins(limits[arm], state)
        else:
            hits[arm] = _tossed(seen[arm], rates[arm], state)


@compiled
def _tossed(bits: np.uint64, probability: float, state: WordArray) -> np.uint64:
    """Keep each of the bits with this probability, one by one."""
    kept = ZERO_WORD
    while bits != ZERO_WORD:
        lowest = bits & (~bits + _U1)
        bits ^= lowest
        if uniform(state) < probability:
            kept |= lowest
    return kept


@compiled
def _stays(
    leader: int, lowest: int, own: int, shows: IntArray, clicks: IntArray, won: IntArray
) -> bool:
    """Whether the leader, after all its failures, is above each arm after all its clicks."""
    for arm in range(shows.size):
        if arm != leader:
            highest = clicks[arm] + won[arm]
            if own * max(shows[arm] + won[arm], 1) <= highest * lowest:
                return False
    return True


@compiled
def _leads(leader: int, shows: IntArray, clicks: IntArray) -> bool:
    """Whether the leader is still above each other arm."""
    for arm in range(shows.size):
        if arm != leader and clicks[leader] * max(shows[arm], 1) <= clicks[arm] * shows[leader]:
            return False
    return True
