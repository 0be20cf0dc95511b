"""Three arms and more, one segment, near a tie: 64 visitors at once, as in `_pair`.

One word of bits says who is shown another arm than the leader, one for each arm who sees it and who
clicks. Where little is explored, the few visitors who see another arm are drawn one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._block_length import single_leader_length
from deniable.simulation._exploring import FIXED, scheduled
from deniable.simulation._generator import uniform
from deniable.simulation._greedy import PRODUCT_SAFE, find_leaders, tied_arm
from deniable.simulation._pair import LONG, WORD, coins, ones, threshold
from deniable.simulation._samplers import failures_before_success, wait_scale

_FULL, _ZERO, _U1 = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0), np.uint64(1)
_SHORT = 7.0
_RUN = 8
_FEW = 3  # other shows for each arm of which tossing one by one is cheaper than 64 at once
_NEVER = np.int64(2**62)


@compiled
def word_visitors(
    kind: Any,
    fixed: Any,
    floor: Any,
    settles_at: Any,
    clocks: Any,
    rates: Any,
    visitors: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """Advance the arms of one segment, at most by `visitors`, until the leader is well ahead.

    Arguments as in `_pair.pair_visitors`, for K arms.
    """
    n_arms = rates.size
    start = clocks[0]
    clock = start
    end = clock + min(visitors, PRODUCT_SAFE - shows.max())
    explored = fixed[:n_arms].copy()
    bonus = fixed[n_arms]
    epoch_end = _NEVER if kind == FIXED else clock
    rare_at = _NEVER
    loose, scale = 0.0, 0.0
    limits = np.empty(n_arms, np.uint64)
    for arm in range(n_arms):
        limits[arm] = threshold(rates[arm])
    seen = np.empty(n_arms, np.uint64)
    hits = np.empty(n_arms, np.uint64)
    won = np.empty(n_arms, np.int64)
    while clock < end:
        if clock >= epoch_end:
            first = max(floor, scheduled(n_arms, clock + 1))
            settled = clock + 1 >= settles_at
            epoch_end = _NEVER if settled else clock + 64 + clock // 128
            rate = first if settled else max(floor, scheduled(n_arms, epoch_end))
            loose = first - rate
            scale = wait_scale(loose)
            rare_at = clock + failures_before_success(scale, state)
            explored[:] = rate / n_arms / (1.0 - loose)
            bonus = (1.0 - first) / (1.0 - loose)
        leader, tied = find_leaders(shows, clicks)
        if clock == rare_at:
            now = max(floor, scheduled(n_arms, clock + 1))
            last = explored[0] * n_arms * (1.0 - loose)
            wanders = uniform(state) * loose < now - last
            _visit(wanders, leader, tied, rates, shows, clicks, state)
            clock += 1
            rare_at = clock + failures_before_success(scale, state)
            continue
        room = min(end, epoch_end, rare_at) - clock
        if tied > 1:
            _single(explored, bonus, leader, tied, rates, shows, clicks, state)
            clock += 1
            continue
        length = single_leader_length(shows, clicks, leader, explored, bonus, rates, 2.0 * LONG)
        if length > LONG and clock > start:
            break
        if length < _SHORT:
            run = min(_RUN, room)
            while run > 0 and tied == 1:
                _single(explored, bonus, leader, tied, rates, shows, clicks, state)
                clock += 1
                run -= 1
                before = leader
                leader, tied = find_leaders(shows, clicks)
                if leader != before:
                    break
        else:
            clock += _take_word(
                min(WORD, room),
                explored,
                leader,
                rates,
                limits,
                shows,
                clicks,
                seen,
                hits,
                won,
                state,
            )
    clocks[0] = clock


@compiled
def _visit(
    wanders: Any, leader: Any, tied: Any, rates: Any, shows: Any, clicks: Any, state: Any
) -> None:
    """One visitor who is shown any arm with the same chance, or a greedy one."""
    arm = leader
    if wanders:
        arm = np.int64(uniform(state) * rates.size)
    elif tied > 1:
        arm = tied_arm(shows, clicks, leader, np.int64(uniform(state) * tied))
    shows[arm] += 1
    if uniform(state) < rates[arm]:
        clicks[arm] += 1


@compiled
def _single(
    explored: Any,
    bonus: Any,
    leader: Any,
    tied: Any,
    rates: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """One visitor by the rule's present exploration."""
    u = uniform(state)
    arm = leader
    if u < bonus:
        if tied > 1:
            arm = tied_arm(shows, clicks, leader, np.int64(uniform(state) * tied))
    else:
        u -= bonus
        arm = 0
        while arm < explored.size - 1 and u >= explored[arm]:
            u -= explored[arm]
            arm += 1
    shows[arm] += 1
    if uniform(state) < rates[arm]:
        clicks[arm] += 1


@compiled
def _take_word(
    visitors: Any,
    explored: Any,
    leader: Any,
    rates: Any,
    limits: Any,
    shows: Any,
    clicks: Any,
    seen: Any,
    hits: Any,
    won: Any,
    state: Any,
) -> Any:
    """Up to 64 visitors at once, until the lead is lost; returns how many.

    Args:
        visitors: how many at most.
        explored: exploration by arm.
        leader: the one arm that leads.
        rates: click rates by arm.
        limits: the same as binary digits.
        shows: counts so far, (K,).
        clicks: counts so far, (K,).
        seen: receives the visitors who see each arm, as bits, (K,).
        hits: receives those who click on it, (K,).
        won: room for the clicks by arm, (K,).
        state: the generator.
    """
    n_arms = rates.size
    mask = _FULL if visitors == WORD else (_U1 << np.uint64(visitors)) - _U1
    share = explored.sum() - explored[leader]
    others = coins(threshold(share), state) & mask
    seen[leader] = mask & ~others
    hits[leader] = coins(limits[leader], state) & seen[leader]
    _show_others(others, share, explored, leader, rates, limits, seen, hits, state)
    for arm in range(n_arms):
        won[arm] = ones(hits[arm])
    lowest = shows[leader] + ones(seen[leader]) - won[leader]
    if _stays(leader, lowest, clicks[leader], shows, clicks, won):
        for arm in range(n_arms):
            shows[arm] += ones(seen[arm])
            clicks[arm] += won[arm]
        return visitors
    for lane in range(visitors):
        bit = _U1 << np.uint64(lane)
        arm = leader
        if others & bit != _ZERO:
            arm = 0
            while arm == leader or seen[arm] & bit == _ZERO:
                arm += 1
        shows[arm] += 1
        hit = hits[arm] & bit != _ZERO
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
    others: Any,
    share: Any,
    explored: Any,
    leader: Any,
    rates: Any,
    limits: Any,
    seen: Any,
    hits: Any,
    state: Any,
) -> None:
    """Which other arm each of these visitors sees, and who clicks."""
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
def _tossed(bits: Any, probability: Any, state: Any) -> Any:
    """Each of the bits kept with this probability, one by one."""
    kept = _ZERO
    while bits != _ZERO:
        lowest = bits & (~bits + _U1)
        bits ^= lowest
        if uniform(state) < probability:
            kept |= lowest
    return kept


@compiled
def _stays(leader: Any, lowest: Any, own: Any, shows: Any, clicks: Any, won: Any) -> Any:
    """Whether the leader after all its failures is above each arm after all its clicks."""
    for arm in range(shows.size):
        if arm != leader:
            highest = clicks[arm] + won[arm]
            if own * max(shows[arm] + won[arm], 1) <= highest * lowest:
                return False
    return True


@compiled
def _leads(leader: Any, shows: Any, clicks: Any) -> Any:
    """Whether the leader is still above each other arm."""
    for arm in range(shows.size):
        if arm != leader and clicks[leader] * max(shows[arm], 1) <= clicks[arm] * shows[leader]:
            return False
    return True
