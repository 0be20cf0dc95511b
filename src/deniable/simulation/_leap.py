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

from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._block import decide, draw_totals
from deniable.simulation._block_length import schedule_length, single_leader_length, tied_length
from deniable.simulation._exploring import ARM_DYNAMIC, DYNAMIC, FIXED, explore
from deniable.simulation._falling import ROOM, STEPS, falling_visitors
from deniable.simulation._generator import uniform
from deniable.simulation._greedy import PRODUCT_SAFE, find_leaders
from deniable.simulation._pair import LONG, WORD, pair_visitors
from deniable.simulation._samplers import (
    failures_before_success,
    wait_scale,
)
from deniable.simulation._settle import DEPTH, settle_block
from deniable.simulation._step import step_visitors
from deniable.simulation._words import word_visitors

_SHORT_BLOCK = 24  # below this, single visitors are cheaper
_SINGLE_RUN = 16  # visitors to take one by one before looking for a block again
_CANDIDATES = 12.0  # undecided visitors to expect in a block
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
    spread = np.empty(n_arms)
    shown = np.empty((DEPTH, n_segments, n_arms), np.int64)
    won = np.empty((DEPTH, n_segments, n_arms), np.int64)
    places = np.empty(_ROOM, np.int64)
    undecided = np.empty((_ROOM, 3), np.int64)  # segment, arm, clicked
    book = np.empty((STEPS, 3), np.int64)
    candidates = np.empty((STEPS, ROOM), np.int64)
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
        falling = (
            not settled and kind == DYNAMIC and n_segments == 1 and ties[0] == 1 and bonus > 0.0
        )
        if not settled and not falling:
            size = min(size, np.int64(schedule_length(clock, 1.0 - bonus, _CANDIDATES)))
        matters = bonus > 0.0 or not settled
        if matters:
            size = _quiet_length(shows, clicks, leaders, ties, sure, bonus, rates, arrival, size)
        alone = n_segments == 1 and kind != ARM_DYNAMIC
        steady = settled and n_arms == 2 and ties[0] == 1 and bonus > 0.0
        near = size < LONG and end - clock >= WORD
        if alone and (near or steady) and shows.max() < PRODUCT_SAFE:
            if n_arms == 2:
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
            else:
                word_visitors(
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
        if falling:
            falling_visitors(
                floor,
                clocks,
                rates,
                size,
                leaders,
                ties,
                shown,
                won,
                book,
                candidates,
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
            scale = wait_scale(loose)
            place = failures_before_success(scale, state)
            while place < size:
                places[n_undecided] = place
                # The first `greedy` of what is left open is the greedy arm's, the rest explored.
                u = uniform(state) * loose
                greedy = explore(kind, clock + 1 + place, fixed, floor, budgets, last) - bonus
                spread[:] = last - sure
                decide(
                    u,
                    greedy,
                    spread,
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
        draw_totals(
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
        settle_block(
            size,
            n_undecided,
            matters,
            places,
            undecided,
            leaders,
            ties,
            shown,
            won,
            clocks,
            shows,
            clicks,
            state,
        )


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
