"""The step kernel: visitor by visitor, the reference whose distribution the leap kernel must match.

For each visitor, a segment arrives, the rule's exploration at the visitor's clock decides between the
greedy arm and an explored one, the shown arm is clicked or not, and the greedy arm is found again if
it may have changed.
"""

from __future__ import annotations

from deniable._compile import compiled
from deniable.simulation.kernels.exploration import explore
from deniable.simulation.kernels.leader import find_leaders, is_above, look_for_leaders, tied_arm
from deniable.simulation.kernels.random_numbers import uniform
from deniable.simulation.kernels.state import FIXED, NEVER, Leaders, Rule, StepSpace, World


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
    # Numba counts references to arrays, which takes as long as the rest of a visitor. So arrays get
    # their names here, and the loop takes no rows of them.
    rates, shows, clicks, clocks = world.rates, world.shows, world.clicks, world.clocks
    arrival, state = world.arrival, world.state
    greedy, ties = leaders.arms, leaders.ties
    exploring, sure_bonus, refresh_at = space.exploring, space.sure_bonus, space.refresh_at
    n_segments, n_arms = rates.shape
    # From here on the rule does not change any more.
    settled_at = 0.0 if rule.kind == FIXED else rule.turns[-1]
    look_for_leaders(world, leaders)
    for i in range(clocks.size):
        sure_bonus[i] = 0.0
        refresh_at[i] = 0
    for _ in range(visitors):
        j = 0
        if n_segments > 1:
            place = uniform(state)
            while j < n_segments - 1 and place >= arrival[j]:
                j += 1
        own = j if clocks.size > 1 else 0
        clocks[own] += 1
        clock = clocks[own]
        if clock >= refresh_at[own]:
            sure_bonus[own] = explore(rule, clock, exploring[own])
            # Rarely: until then the schedule, about n^(-1/3), hardly falls.
            refresh_at[own] = NEVER if clock >= settled_at else clock + clock // 64 + 1
        u = uniform(state)
        bonus = sure_bonus[own]
        # The bonus never falls, so a draw below its old value needs no logarithm and no cube root.
        if u >= bonus and refresh_at[own] < NEVER:
            bonus = explore(rule, clock, exploring[own])
        if u < bonus:
            arm = greedy[j]
            if ties[j] > 1:
                rank = int(uniform(state) * ties[j])
                arm = tied_arm(shows, clicks, j, arm, rank)
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
        leader = greedy[j]
        if (
            ties[j] > 1
            or (arm == leader and not clicked)
            or (
                clicked
                and arm != leader
                and not is_above(clicks[j, leader], shows[j, leader], clicks[j, arm], shows[j, arm])
            )
        ):
            greedy[j], ties[j] = find_leaders(shows, clicks, j)
