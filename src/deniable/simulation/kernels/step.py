"""The step kernel: visitor by visitor, the reference whose distribution the leap kernel must match.

For each visitor, a segment arrives, the rule's exploration at the visitor's clock decides between
the greedy arm and an explored one, the shown arm is clicked or not, and the greedy arm is
recomputed if it may have changed. The loop is optimised as far as possible: the schedule is
evaluated only if a lower bound of the bonus does not decide the draw.
"""

from __future__ import annotations

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.exploration import explore
from deniable.simulation.kernels.leader import (
    PRODUCT_SAFE,
    find_leaders,
    is_above,
    look_for_leaders,
    tied_arm,
)
from deniable.simulation.kernels.random_numbers import uniform
from deniable.simulation.kernels.state import (
    FIXED,
    NEVER,
    Arms,
    FloatArray,
    Leaders,
    Rule,
    StepSpace,
    World,
)

_S11, _S17, _S19, _S45 = (np.uint64(shift) for shift in (11, 17, 19, 45))
_UNIT = 2.0**-53


@compiled
def step_visitors(
    rule: Rule, visitors: int, leaders: Leaders, space: StepSpace, world: World
) -> None:
    """Advance by this many visitors, in place.

    Args:
        rule: any rule.
        visitors: number of visitors.
        leaders: scratch space for the greedy arms.
        space: scratch space.
        world: segments, with their own clocks or a common one.
    """
    rates, shows, clicks, clocks = world.rates, world.shows, world.clicks, world.clocks
    state, exploring, refresh_at = world.state, space.exploring, space.refresh_at
    n_segments, n_arms = rates.shape
    look_for_leaders(world, leaders)
    for i in range(clocks.size):
        space.sure_bonus[i] = 0.0
        refresh_at[i] = 0
    pair = n_segments == 1 and n_arms == 2
    left = visitors
    while left > 0:
        left -= 1
        # Once the exploration is constant, two arms take the fast loop.
        if pair and refresh_at[0] == NEVER and min(shows[0, 0], shows[0, 1]) > 0:
            if clocks[0] + left < PRODUCT_SAFE:
                _step_pair(
                    exploring[0], left + 1, Arms(rates[0], shows[0], clicks[0], clocks, state)
                )
                clocks[0] += left + 1
                return
            pair = False
        j = 0
        if n_segments > 1:
            place = uniform(state)
            while j < n_segments - 1 and place >= world.arrival[j]:
                j += 1
        own = j if clocks.size > 1 else 0
        clocks[own] += 1
        clock = clocks[own]
        if clock >= refresh_at[own]:
            space.sure_bonus[own] = explore(rule, clock, exploring[own])
            settled = rule.kind == FIXED or clock >= rule.turns[-1]
            # Refresh rarely: until then the schedule, about n^(-1/3), hardly falls.
            refresh_at[own] = NEVER if settled else clock + clock // 64 + 1
        u = uniform(state)
        bonus = space.sure_bonus[own]
        # The bonus never falls, so a draw below its old value is decided without the schedule.
        if u >= bonus and refresh_at[own] < NEVER:
            bonus = explore(rule, clock, exploring[own])
        if u < bonus:
            arm = leaders.arms[j]
            if leaders.ties[j] > 1:
                rank = int(uniform(state) * leaders.ties[j])
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
        # Only a failure of the leader or a click of another arm can change who leads.
        leader = leaders.arms[j]
        if (
            leaders.ties[j] > 1
            or (arm == leader and not clicked)
            or (
                clicked
                and arm != leader
                and not is_above(clicks[j, leader], shows[j, leader], clicks[j, arm], shows[j, arm])
            )
        ):
            leaders.arms[j], leaders.ties[j] = find_leaders(shows[j], clicks[j])


@compiled
def _step_pair(exploring: FloatArray, visitors: int, arms: Arms) -> None:
    """Advance two arms, both shown before, by visitors who do not change the exploration.

    Written for speed: counts and the generator's state are in registers, and except for ties no
    branch depends on a draw. A mispredicted branch costs as much as everything else.

    Args:
        exploring: exploration of the two arms, (2,).
        visitors: number of visitors.
        arms: arms shown at least once; shows plus visitors must be below `PRODUCT_SAFE`.
    """
    rates, shows, clicks, state = arms.rates, arms.shows, arms.clicks, arms.state
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    n0, n1, c0, c1 = shows[0], shows[1], clicks[0], clicks[1]
    r0, r1 = rates[0], rates[1]
    first = exploring[0]
    explored = exploring[0] + exploring[1]
    for _ in range(visitors):
        u, s0, s1, s2, s3 = _advance(s0, s1, s2, s3)
        # Compares c0 / n0 with c1 / n1 in integers.
        mine, yours = c0 * n1, c1 * n0
        if mine == yours and u >= explored:
            v, s0, s1, s2, s3 = _advance(s0, s1, s2, s3)
            arm = 0 if v < 0.5 else 1
        else:
            greedy = 1 if mine < yours else 0
            random = 0 if u < first else 1
            arm = random if u < explored else greedy
        v, s0, s1, s2, s3 = _advance(s0, s1, s2, s3)
        hit = 1 if v < (r1 if arm == 1 else r0) else 0
        # `arm` and `hit` are 0 or 1, so that no update needs a branch.
        n1 += arm
        n0 += 1 - arm
        c1 += hit & arm
        c0 += hit & (1 - arm)
    shows[0], shows[1], clicks[0], clicks[1] = n0, n1, c0, c1
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3


@compiled
def _advance(
    s0: np.uint64, s1: np.uint64, s2: np.uint64, s3: np.uint64
) -> tuple[float, np.uint64, np.uint64, np.uint64, np.uint64]:
    """`random_numbers.uniform` on four variables: returns a uniform number and the next state."""
    unit = float((s0 + s3) >> _S11) * _UNIT
    shifted = s1 << _S17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    return unit, s0, s1, s2, (s3 << _S45) | (s3 >> _S19)
