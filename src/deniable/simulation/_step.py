"""The step kernel: visitor by visitor, the reference that the leap kernel must equal in law.

For each visitor: a segment arrives, the rule's exploration at the visitor's clock decides between the
greedy arm and an explored one, the shown arm is clicked or not, and the greedy arm is looked up again
where the counts say it may have changed. It is also as fast as such a loop gets: the schedule is
evaluated only where a lower bound of the bonus does not settle the draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._exploring import FIXED, explore
from deniable.simulation._generator import uniform
from deniable.simulation._greedy import PRODUCT_SAFE, find_leaders, is_above, tied_arm
from deniable.simulation._step_pair import step_pair


@compiled
def step_visitors(
    kind: Any,
    fixed: Any,
    floor: Any,
    budgets: Any,
    settles_at: Any,
    clocks: Any,
    rates: Any,
    arrival: Any,
    visitors: Any,
    shows: Any,
    clicks: Any,
    state: Any,
) -> None:
    """Advance by this many visitors, in place.

    Args:
        kind: the rule's kind, see `_exploring`.
        fixed: the rule's exploration by arm, then its bonus, (K + 1,).
        floor: the rule's least exploration.
        budgets: the rule's budget by arm, (K,).
        settles_at: the clock from which the rule stays as it is.
        clocks: visitors so far, (J,) for clocks by segment or (1,) for one of the experiment.
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
    for j in range(n_segments):
        leaders[j], ties[j] = find_leaders(shows[j], clicks[j])
    exploring = np.empty((clocks.size, n_arms))
    sure_bonus = np.zeros(clocks.size)  # at most the bonus at the clock's present value
    refresh_at = np.zeros(clocks.size, np.int64)
    pair = n_segments == 1 and n_arms == 2
    left = visitors
    while left > 0:
        left -= 1
        if pair and refresh_at[0] == 2**62 and min(shows[0, 0], shows[0, 1]) > 0:
            if clocks[0] + left < PRODUCT_SAFE:
                step_pair(exploring[0], rates[0], left + 1, shows[0], clicks[0], state)
                clocks[0] += left + 1
                return
            pair = False
        j = 0
        if n_segments > 1:
            place = uniform(state)
            while j < n_segments - 1 and place >= arrival[j]:
                j += 1
        own = j if clocks.size > 1 else 0
        clocks[own] += 1
        clock = clocks[own]
        if clock >= refresh_at[own]:
            sure_bonus[own] = explore(kind, clock, fixed, floor, budgets, exploring[own])
            settled = kind == FIXED or clock >= settles_at
            refresh_at[own] = np.int64(2**62) if settled else clock + clock // 64 + 1
        u = uniform(state)
        bonus = sure_bonus[own]
        if u >= bonus and refresh_at[own] < 2**62:
            bonus = explore(kind, clock, fixed, floor, budgets, exploring[own])
        if u < bonus:
            arm = leaders[j]
            if ties[j] > 1:
                rank = np.int64(uniform(state) * ties[j])
                arm = tied_arm(shows[j], clicks[j], arm, rank)
        else:
            u -= bonus
            arm = 0
            while arm < n_arms - 1 and u >= exploring[own, arm]:
                u -= exploring[own, arm]
                arm += 1
        shows[j, arm] += 1
        clicked = uniform(state) < rates[j, arm]
        if clicked:
            clicks[j, arm] += 1
        leader = leaders[j]
        if (
            ties[j] > 1
            or (arm == leader and not clicked)
            or (
                clicked
                and arm != leader
                and not is_above(clicks[j, leader], shows[j, leader], clicks[j, arm], shows[j, arm])
            )
        ):
            leaders[j], ties[j] = find_leaders(shows[j], clicks[j])
