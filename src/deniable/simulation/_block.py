"""Blocks of visitors between changes of the greedy arm: drawn, checked, split, walked through.

A block is its totals: shows and clicks by segment and arm. Every order of its visitors is equally
likely.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._generator import uniform
from deniable.simulation._greedy import find_leaders, tied_arm
from deniable.simulation._holding import keeps_leader, keeps_tie
from deniable.simulation._samplers import binomial, hypergeometric


@compiled
def decide(
    u: Any,
    greedy: Any,
    spread: Any,
    leaders: Any,
    ties: Any,
    shows: Any,
    clicks: Any,
    rates: Any,
    arrival: Any,
    out: Any,
    state: Any,
) -> None:
    """Segment, arm and click of an undecided visitor, from what its own clock leaves open.

    `u` is uniform on what is left open: the first `greedy` of it is the greedy arm's, the rest
    the arms' in parts of sizes `spread`.
    """
    j = 0
    if leaders.size > 1:
        place = uniform(state)
        while j < leaders.size - 1 and place >= arrival[j]:
            j += 1
    if u < greedy:
        arm = leaders[j]
        if ties[j] > 1:
            arm = tied_arm(shows[j], clicks[j], arm, np.int64(uniform(state) * ties[j]))
    else:
        u -= greedy
        arm = 0
        while arm < spread.size - 1 and u >= spread[arm]:
            u -= spread[arm]
            arm += 1
    out[0] = j
    out[1] = arm
    out[2] = 1 if uniform(state) < rates[j, arm] else 0


@compiled
def draw_totals(
    size: Any,
    exploring: Any,
    bonus: Any,
    leaders: Any,
    ties: Any,
    shows: Any,
    clicks: Any,
    rates: Any,
    arrival: Any,
    shown: Any,
    won: Any,
    state: Any,
) -> None:
    """Shows and clicks of `size` independent visitors, by segment and arm."""
    n_segments, n_arms = rates.shape
    all_exploring = exploring.sum()
    before = 0.0
    for j in range(n_segments):
        rest = 1.0 - before
        last = j == n_segments - 1 or rest <= 0.0
        visitors = size if last else binomial(size, (arrival[j] - before) / rest, state)
        size -= visitors
        before = arrival[j]
        for arm in range(n_arms):
            shown[j, arm] = 0
        # The greedy choice first: it takes most of the visitors.
        leader = leaders[j]
        if ties[j] == 1:
            explored = all_exploring - exploring[leader]
            others = binomial(visitors, explored / (all_exploring + bonus), state)
            shown[j, leader] = visitors - others
            _explore_arms(others, exploring, explored, leader, shown[j], state)
        else:
            greedy = binomial(visitors, bonus / (all_exploring + bonus), state)
            _explore_arms(visitors - greedy, exploring, all_exploring, -1, shown[j], state)
            for rank in range(ties[j]):
                part = binomial(greedy, 1.0 / (ties[j] - rank), state)
                shown[j, tied_arm(shows[j], clicks[j], leader, rank)] += part
                greedy -= part
        for arm in range(n_arms):
            won[j, arm] = binomial(shown[j, arm], rates[j, arm], state)


@compiled
def _explore_arms(
    visitors: Any, exploring: Any, total: Any, skipped: Any, shown: Any, state: Any
) -> None:
    """Spread visitors over the arms, but for one, in proportion to their exploration."""
    last = exploring.size - 1 if skipped != exploring.size - 1 else exploring.size - 2
    for arm in range(last):
        if visitors == 0:
            return
        if arm != skipped:
            part = binomial(visitors, min(1.0, exploring[arm] / total), state)
            shown[arm] += part
            visitors -= part
            total -= exploring[arm]
    shown[last] += visitors


@compiled
def spread_others(visitors: Any, leader: Any, shown: Any, state: Any) -> None:
    """Spread visitors evenly over all arms but the leader."""
    arms = shown.size - 1
    for arm in range(shown.size):
        if arm != leader:
            part = binomial(visitors, 1.0 / arms, state)
            shown[arm] += part
            visitors -= part
            arms -= 1


@compiled
def holds(shows: Any, clicks: Any, leaders: Any, ties: Any, shown: Any, won: Any) -> Any:
    for j in range(leaders.size):
        if ties[j] == 1:
            if not keeps_leader(shows[j], clicks[j], leaders[j], shown[j], won[j]):
                return False
        elif not keeps_tie(shows[j], clicks[j], leaders[j], shown[j], won[j]):
            return False
    return True


@compiled
def split_block(
    size: Any, shown: Any, won: Any, early_shown: Any, early_won: Any, state: Any
) -> None:
    """Move the first `size` visitors of a block into an earlier block, given the totals."""
    n_segments, n_arms = shown.shape
    left = shown.sum()
    for j in range(n_segments):
        for arm in range(n_arms):
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
def walk_block(
    size: Any,
    clock: Any,
    clocks: Any,
    shown: Any,
    won: Any,
    places: Any,
    undecided: Any,
    seen: Any,
    reach: Any,
    leaders: Any,
    ties: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> Any:
    """Go through a small block visitor by visitor; False where a greedy arm has changed."""
    n_arms = shown.shape[1]
    left = shown.sum()
    for _ in range(size):
        j, arm = 0, 0
        if seen < reach and places[seen] == clocks[0] - clock:
            j, arm = undecided[seen, 0], undecided[seen, 1]
            clicked = undecided[seen, 2] == 1
            seen += 1
        else:
            pick = np.int64(math.floor(uniform(state) * left))
            while pick >= shown[j, arm]:
                pick -= shown[j, arm]
                arm += 1
                if arm == n_arms:
                    j, arm = j + 1, 0
            clicked = uniform(state) * shown[j, arm] < won[j, arm]
            shown[j, arm] -= 1
            left -= 1
            if clicked:
                won[j, arm] -= 1
        before = leaders[j]
        shows[j, arm] += 1
        if clicked:
            clicks[j, arm] += 1
        clocks[0] += 1
        # The set of tied arms changes with every shown arm of it, unless its rate stays the same.
        leader, tied = find_leaders(shows[j], clicks[j])
        if leader != before or tied != ties[j]:
            return False
    return True
