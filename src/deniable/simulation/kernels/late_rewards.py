"""The step kernel for rewards that arrive late, or whose value differs from that of a click.

The greedy arm is the one with the highest mean of the known rewards. Pending rewards are in a ring
buffer of R slots, where R is one more than the longest delay: visitor n's is in slot n mod R, and
slots that are due at the same visitor form a linked list. A slot is always empty before it is
reused.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.block import pick
from deniable.simulation.kernels.exploration import explore
from deniable.simulation.kernels.random_numbers import positive_uniform, uniform
from deniable.simulation.kernels.run import Setting, enter_phase
from deniable.simulation.kernels.state import FIXED, FloatArray, IntArray, Rule, WordArray

_NOTHING = -1
_TURN = 2.0 * math.pi


class Worth(NamedTuple):
    """The value of a click, and when it is known.

    Attributes:
        values: mean value of a click, (J, K).
        spread: standard deviation of its logarithm.
        delays: cumulative probabilities of 0, 1, 2, ... visitors, (R,).
    """

    values: FloatArray
    spread: float
    delays: FloatArray


class Known(NamedTuple):
    """Rewards that have arrived, and pending ones.

    Attributes:
        shows: visitors whose reward is known, (J, K).
        sums: their rewards, (J, K).
        first: the first slot due at a visitor, modulo R; -1 for none, (R,).
        following: the next slot due at the same visitor, (R,).
        cells: segment and arm of each slot, (R, 2).
        rewards: reward in each slot, (R,).
    """

    shows: IntArray
    sums: FloatArray
    first: IntArray
    following: IntArray
    cells: IntArray
    rewards: FloatArray


class Totals(NamedTuple):
    """Shows, clicks and rewards so far, (J, K), and at each checkpoint, (C, J, K)."""

    shows: IntArray
    clicks: IntArray
    rewards: FloatArray
    all_shows: IntArray
    all_clicks: IntArray
    all_rewards: FloatArray


def run_late(
    rule: Rule, on_segment_clock: bool, worth: Worth, setting: Setting
) -> tuple[IntArray, IntArray, FloatArray]:
    """Run an epsilon-greedy rule visitor by visitor: shows, clicks and rewards, (C, J, K) each."""
    shape, places = setting.rates.shape, worth.delays.size
    points = (setting.checkpoints.size, *shape)
    totals = Totals(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape),
        np.zeros(points, np.int64),
        np.zeros(points, np.int64),
        np.zeros(points),
    )
    known = Known(
        np.zeros(shape, np.int64),
        np.zeros(shape),
        np.full(places, _NOTHING),
        np.full(places, _NOTHING),
        np.zeros((places, 2), np.int64),
        np.zeros(places),
    )
    clocks = np.zeros(shape[0] if on_segment_clock else 1, np.int64)
    _run_late(rule, worth, setting, known, clocks, np.empty(shape[1]), totals)
    return totals.all_shows, totals.all_clicks, totals.all_rewards


@compiled
def _run_late(
    rule: Rule,
    worth: Worth,
    setting: Setting,
    known: Known,
    clocks: IntArray,
    exploring: FloatArray,
    totals: Totals,
) -> None:
    # Numba counts references to arrays, which takes longer than a visitor. So arrays get their names
    # outside the loop, and what is in it takes no rows of them.
    rates, arrival, state = setting.rates, setting.arrival, setting.state
    values, delays = worth.values, worth.delays
    shows, clicks, rewards = totals.shows, totals.clicks, totals.rewards
    known_shows, known_sums = known.shows, known.sums
    falling = rule.kind != FIXED
    bonus = explore(rule, 1, exploring)
    visitor = 0
    for i in range(setting.checkpoints.size):
        enter_phase(setting, i)
        while visitor < setting.checkpoints[i]:
            visitor += 1
            take_arrived(visitor, known)
            j = pick(arrival, state) if arrival.size > 1 else 0
            own = j if clocks.size > 1 else 0
            clocks[own] += 1
            if falling:
                bonus = explore(rule, clocks[own], exploring)
            arm = _shown_arm(j, bonus, exploring, known_shows, known_sums, state)
            shows[j, arm] += 1
            reward = 0.0
            if uniform(state) < rates[j, arm]:
                clicks[j, arm] += 1
                reward = values[j, arm]
                if worth.spread > 0.0:
                    reward *= _unit_lognormal(worth.spread, state)
            rewards[j, arm] += reward
            late = pick(delays, state) if delays.size > 1 else 0
            send(visitor, late, j, arm, reward, known)
        for j in range(totals.shows.shape[0]):
            for arm in range(totals.shows.shape[1]):
                totals.all_shows[i, j, arm] = totals.shows[j, arm]
                totals.all_clicks[i, j, arm] = totals.clicks[j, arm]
                totals.all_rewards[i, j, arm] = totals.rewards[j, arm]


@compiled
def take_arrived(visitor: int, known: Known) -> None:
    """Process rewards that are known before this visitor is shown an arm."""
    due = visitor % known.first.size
    place = known.first[due]
    while place != _NOTHING:
        j, arm = known.cells[place, 0], known.cells[place, 1]
        known.shows[j, arm] += 1
        known.sums[j, arm] += known.rewards[place]
        place = known.following[place]
    known.first[due] = _NOTHING


@compiled
def send(visitor: int, late: int, segment: int, arm: int, reward: float, known: Known) -> None:
    """Queue a visitor's reward; without delay, it is known before the next visitor."""
    place = visitor % known.first.size
    due = (visitor + 1 + late) % known.first.size
    known.cells[place, 0], known.cells[place, 1] = segment, arm
    known.rewards[place] = reward
    known.following[place] = known.first[due]
    known.first[due] = place


@compiled
def _shown_arm(
    j: int, bonus: float, exploring: FloatArray, shows: IntArray, sums: FloatArray, state: WordArray
) -> int:
    """Return the greedy arm with the bonus's probability (ties at random), else an explored one.

    Args:
        j: the segment.
        bonus: probability of the greedy arm.
        exploring: probability that each arm is explored, (K,).
        shows: visitors whose reward is known, (J, K).
        sums: their rewards, (J, K).
        state: the generator.
    """
    u = uniform(state)
    if u >= bonus:
        u -= bonus
        arm = 0
        while arm < exploring.size - 1 and u >= exploring[arm]:
            u -= exploring[arm]
            arm += 1
        return arm
    best, tied = sums[j, 0] / max(shows[j, 0], 1), 1
    for arm in range(1, exploring.size):
        mean = sums[j, arm] / max(shows[j, arm], 1)
        if mean > best:
            best, tied = mean, 1
        elif mean == best:
            tied += 1
    rank = int(uniform(state) * tied) if tied > 1 else 0
    for arm in range(exploring.size):
        if sums[j, arm] / max(shows[j, arm], 1) == best:
            if rank == 0:
                return arm
            rank -= 1
    return 0


@compiled
def _unit_lognormal(spread: float, state: WordArray) -> float:
    """Draw a lognormal number with mean 1, by Box and Muller."""
    radius = math.sqrt(-2.0 * math.log(positive_uniform(state)))
    normal = radius * math.cos(_TURN * uniform(state))
    return math.exp(spread * normal - 0.5 * spread * spread)
