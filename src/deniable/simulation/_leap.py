"""The leap kernel: whole blocks of visitors at once, the same law as visitor by visitor.

While no segment's greedy arm changes, visitors are independent draws from one known distribution. So
draw a block's totals; if they show that no greedy arm can have changed (see `_holding`), take the block
whole. If not, split it in two by hypergeometric draws given the totals, and look again; near the bottom,
draw the visitors one by one without replacement. Where a greedy arm changes, drop the rest of the
block: it is independent of the past.

A falling schedule is thinned: what every clock of the block has in common is drawn in bulk, and the
few visitors left undecided get their own clock and their own draw.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._block_length import schedule_length, single_leader_length, tied_length
from deniable.simulation._exploring import ARM_DYNAMIC, DYNAMIC, FIXED, explore
from deniable.simulation._generator import uniform
from deniable.simulation._greedy import PRODUCT_SAFE, find_leaders, tied_arm
from deniable.simulation._holding import keeps_leader, keeps_tie
from deniable.simulation._pair import LONG, pair_visitors
from deniable.simulation._samplers import (
    binomial,
    failures_before_success,
    hypergeometric,
    wait_scale,
)
from deniable.simulation._step import step_visitors

_SHORT_BLOCK = 24  # below this, single visitors are cheaper
_SINGLE_RUN = 16  # visitors to take one by one before looking for a block again
_LEAF = 16  # sub-blocks of this size are walked through
_DEPTH = 64
_CANDIDATES = 12.0  # undecided visitors to expect in a block
_CONVEX = 32  # from here on a falling schedule is a convex function of the clock
_ROOM = 64  # undecided visitors a block can hold; it ends at the last that fits


@compiled
def leap_visitors(
    kind: Any,
    fixed: Any,
    floor: Any,
    budgets: Any,
    turns: Any,
    clocks: Any,
    rates: Any,
    arrival: Any,
    visitors: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """Advance by this many visitors, in place; arguments as in `step_visitors`.

    Args:
        kind: the rule's kind.
        fixed: the rule's exploration by arm, then its bonus.
        floor: the rule's least exploration.
        budgets: the rule's budget by arm.
        turns: the clocks at which an arm's budget starts to bind, ascending; from the last on
            the rule stays as it is.
        clocks: the one clock of all these segments, (1,).
        rates: click rates, (J, K).
        arrival: cumulative shares of the segments, (J,).
        visitors: how many.
        shows: counts so far, (J, K).
        clicks: counts so far, (J, K).
        state: the generator.
    """
    n_segments, n_arms = rates.shape
    leaders = np.empty(n_segments, np.int64)
    ties = np.empty(n_segments, np.int64)
    sure = np.empty(n_arms)
    last = np.empty(n_arms)
    shown = np.empty((_DEPTH, n_segments, n_arms), np.int64)
    won = np.empty((_DEPTH, n_segments, n_arms), np.int64)
    sizes = np.empty(_DEPTH, np.int64)
    places = np.empty(_ROOM, np.int64)
    undecided = np.empty((_ROOM, 3), np.int64)  # segment, arm, clicked
    block_shown = np.empty((n_segments, n_arms), np.int64)
    block_won = np.empty((n_segments, n_arms), np.int64)
    settles_at = turns[-1]
    end = clocks[0] + visitors
    while clocks[0] < end:
        clock = clocks[0]
        for j in range(n_segments):
            leaders[j], ties[j] = find_leaders(shows[j], clicks[j])
        bonus = explore(kind, clock + 1, fixed, floor, budgets, sure)
        settled = kind == FIXED or clock + 1 >= settles_at
        size = end - clock
        if not settled:
            size = _until_next_turn(turns, clock, size)
            size = min(size, np.int64(schedule_length(clock, 1.0 - bonus, _CANDIDATES)))
        matters = bonus > 0.0 or not settled
        if matters:
            size = _quiet_length(shows, clicks, leaders, ties, sure, bonus, rates, arrival, size)
        pair = n_arms == 2 and n_segments == 1 and kind != ARM_DYNAMIC
        if pair and size < LONG and max(shows[0, 0], shows[0, 1]) < PRODUCT_SAFE:
            pair_visitors(
                kind,
                fixed,
                floor,
                settles_at,
                clocks,
                rates[0],
                end - clock,
                shows[0],
                clicks[0],
                state,
            )
            continue
        if size < _SHORT_BLOCK:
            run = min(_SINGLE_RUN, end - clock)
            step_visitors(
                kind,
                fixed,
                floor,
                budgets,
                settles_at,
                clocks,
                rates,
                arrival,
                run,
                shows,
                clicks,
                state,
            )
            continue
        n_undecided = 0
        if not settled:
            last_bonus = explore(kind, clock + size, fixed, floor, budgets, last)
            matters = last_bonus > 0.0
            for arm in range(n_arms):
                sure[arm] = min(sure[arm], last[arm])
            loose = max(0.0, 1.0 - bonus - sure.sum())
            convex = kind == DYNAMIC and bonus > 0.0 and clock >= _CONVEX
            scale = wait_scale(loose)
            place = failures_before_success(scale, state)
            while place < size:
                places[n_undecided] = place
                u = uniform(state) * loose
                # Exploration is convex here: beyond its chord, a visitor is greedy for sure.
                if convex and u >= loose * (size - place) / size:
                    greedy = loose
                else:
                    greedy = explore(kind, clock + 1 + place, fixed, floor, budgets, last) - bonus
                _decide(
                    loose - u,
                    greedy,
                    last,
                    sure,
                    leaders,
                    ties,
                    shows,
                    clicks,
                    rates,
                    arrival,
                    undecided[n_undecided],
                    state,
                )
                n_undecided += 1
                if n_undecided == _ROOM:
                    size = place + 1
                place += 1 + failures_before_success(scale, state)
        _draw_totals(
            size - n_undecided,
            sure,
            bonus,
            leaders,
            ties,
            shows,
            clicks,
            rates,
            arrival,
            shown[0],
            won[0],
            state,
        )
        # A stack of sub-blocks, the earliest on top.
        sizes[0] = size
        depth = 1
        seen = 0  # undecided visitors that have passed
        while depth > 0:
            top = depth - 1
            here = sizes[top]
            reach = seen
            while reach < n_undecided and places[reach] < clocks[0] - clock + here:
                reach += 1
            block_shown[:] = shown[top]
            block_won[:] = won[top]
            for i in range(seen, reach):
                block_shown[undecided[i, 0], undecided[i, 1]] += 1
                block_won[undecided[i, 0], undecided[i, 1]] += undecided[i, 2]
            if not matters or _holds(shows, clicks, leaders, ties, block_shown, block_won):
                shows += block_shown
                clicks += block_won
                clocks[0] += here
                seen = reach
                depth -= 1
            elif here <= _LEAF:
                if not _walk(
                    here,
                    clock,
                    clocks,
                    shown[top],
                    won[top],
                    places,
                    undecided,
                    seen,
                    reach,
                    leaders,
                    ties,
                    shows,
                    clicks,
                    state,
                ):
                    break
                seen = reach
                depth -= 1
            else:
                first = here // 2
                inside = 0
                while seen + inside < reach and places[seen + inside] < clocks[0] - clock + first:
                    inside += 1
                _split(first - inside, shown[top], won[top], shown[depth], won[depth], state)
                sizes[top] = here - first
                sizes[depth] = first
                depth += 1


@compiled
def _until_next_turn(turns: Any, clock: Any, size: Any) -> Any:
    """Visitors before the next arm's budget binds: in between, all probabilities are monotone."""
    for turn in turns:
        if turn > clock + 1:
            return np.int64(min(np.float64(size), turn - 1.0 - clock))
    return size


@compiled
def _quiet_length(
    shows: Any,
    clicks: Any,
    leaders: Any,
    ties: Any,
    exploring: Any,
    bonus: Any,
    rates: Any,
    arrival: Any,
    size: Any,
) -> Any:
    """The least of the segments' block lengths, in visitors of all of them."""
    length = np.float64(size)
    before = 0.0
    for j in range(leaders.size):
        share = arrival[j] - before
        before = arrival[j]
        if share <= 0.0:
            continue
        if ties[j] == 1:
            own = single_leader_length(
                shows[j], clicks[j], leaders[j], exploring, bonus, rates[j], length * share
            )
        else:
            own = tied_length(shows[j], clicks[j], leaders[j], ties[j], exploring, bonus, rates[j])
        length = min(length, own / share)
    return np.int64(length)


@compiled
def _decide(
    u: Any,
    greedy: Any,
    now: Any,
    sure: Any,
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
    the arms' exploration `now` beyond what was `sure`.
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
        while arm < now.size - 1 and u >= now[arm] - sure[arm]:
            u -= now[arm] - sure[arm]
            arm += 1
    out[0] = j
    out[1] = arm
    out[2] = 1 if uniform(state) < rates[j, arm] else 0


@compiled
def _draw_totals(
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
def _holds(shows: Any, clicks: Any, leaders: Any, ties: Any, shown: Any, won: Any) -> Any:
    for j in range(leaders.size):
        if ties[j] == 1:
            if not keeps_leader(shows[j], clicks[j], leaders[j], shown[j], won[j]):
                return False
        elif not keeps_tie(shows[j], clicks[j], leaders[j], shown[j], won[j]):
            return False
    return True


@compiled
def _split(size: Any, shown: Any, won: Any, early_shown: Any, early_won: Any, state: Any) -> None:
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
def _walk(
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
