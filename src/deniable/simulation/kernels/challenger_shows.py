"""Two arms near a tie: blocks that are counted in shows of the arm behind.

If few visitors see the challenger, its single clicks decide when the leader changes, and the leader's
own rate hardly moves between two of them. So a bar is set between the two rates. As long as the
challenger stays below it and the leader above, the lead is kept, whatever the order of the visitors.

1. Of a block's visitors, a binomial number sees the challenger. Who of them clicks, in order, are
   the bits of a word or a few. The block ends early with a click that takes the challenger to the bar.
2. If that is show j of m, the visitors before it who see the leader are a binomial number with the
   j-th smallest of m uniform numbers for its probability (beta-binomial): the j-th of m places.
3. The leader's clicks are binomial. Whether its own path falls to the bar, and when, is drawn by
   `first_fall.py`. If it does, the block ends there.
4. In that case, the challenger's shows before it are found by placing one after the other among the
   leader's, each place equally likely.

This is exact for any bar and any number of visitors. They are chosen so that most blocks are long and
few end early.
"""

from __future__ import annotations

import math

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.first_fall import first_fall
from deniable.simulation.kernels.random_numbers import (
    FULL_WORD,
    ZERO_WORD,
    binomial,
    coins,
    ones,
    positive_uniform,
    uniform,
)
from deniable.simulation.kernels.state import DEPTH, Arms, IntArray, WordArray

_U1, _U32 = np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_WORD = 64
_MOST = 400.0  # expected shows of the challenger
_NEAR = (
    1.0  # gap in the challenger's clicks up to which the next one decides: the bar is at its rate
)
_SAFE = 5.0  # the leader's start above the bar, squared, in variances of its path
_SWAY = 0.8  # the challenger's start below the bar, in standard deviations of its path
_USED = 0.999  # of the leader's start above the bar; the rest is far above rounding errors
_FACTORS = 16  # uniform numbers whose product cannot underflow


@compiled
def take_shows(
    longest: int, wander: float, limit: np.uint64, leader: int, stack: IntArray, arms: Arms
) -> int:
    """Advance by one block; return by how many visitors.

    Args:
        longest: maximum number of visitors.
        wander: probability of seeing the challenger.
        limit: the challenger's click rate, as binary digits.
        leader: the arm that leads, 0 or 1.
        stack: scratch space, (DEPTH, 4).
        arms: advanced in place.
    """
    own_rate, state = arms.rates[leader], arms.state
    n, c = arms.shows[leader], arms.clicks[leader]
    k, d = arms.shows[1 - leader], arms.clicks[1 - leader]
    weight = n / max(k, 1)
    ahead = c - d * weight
    if ahead > _NEAR * weight:
        # Both start equally far from the bar, measured by how far they may get.
        ahead /= 1.0 + _SWAY * weight * math.sqrt(wander / _SAFE)
    bar = (c - ahead) / n
    ahead *= _USED
    size = ahead * ahead / max(_SAFE * bar * (1.0 - bar), 1e-300)
    size = max(1.0, min(size, _MOST / max(wander, 1e-300), float(longest)))
    others = binomial(int(size), wander, state)
    mine = int(size) - others
    shown, hits, ended = _until_bar(others, bar, bar * k - d, limit, stack, state)
    if ended:
        mine = binomial(mine, _order_statistic(shown, others, state), state)
    wins = binomial(mine, own_rate, state)
    if (mine - wins) * bar >= ahead:
        fell, fell_wins = first_fall(ahead, bar, mine, wins, stack, state)
        if fell > 0:
            # The last show of a block that ended early is after all others.
            shown = _shows_before(fell, mine, shown - 1 if ended else shown, state)
            hits = _first_hits(shown, stack)
            mine, wins = fell, fell_wins
    arms.shows[leader], arms.clicks[leader] = n + mine, c + wins
    arms.shows[1 - leader], arms.clicks[1 - leader] = k + shown, d + hits
    return mine + shown


@compiled
def _until_bar(
    others: int, bar: float, below: float, limit: np.uint64, stack: IntArray, state: WordArray
) -> tuple[int, int, bool]:
    """Draw who clicks on the challenger, until it reaches the bar.

    Args:
        others: the challenger's shows in the block.
        bar: the bar.
        below: clicks that the challenger is below it.
        limit: the challenger's click rate, as binary digits.
        stack: receives the words, as halves, in its last two columns.
        state: the generator.

    Returns:
        Shows and clicks, and whether the block ends with the last of these shows.
    """
    shown, hits, word = 0, 0, 0
    while shown < others:
        lanes = min(others - shown, _WORD)
        mask = FULL_WORD if lanes == _WORD else (_U1 << np.uint64(lanes)) - _U1
        clicked = coins(limit, state) & mask
        stack[word, 2], stack[word, 3] = int(clicked >> _U32), int(clicked & _LOW)
        word += 1
        count = ones(clicked)
        # Unless all clicks first would stay below, look at one after the other.
        if below <= count * (1.0 - bar):
            count = 0
            while clicked != ZERO_WORD:
                lane = ones((clicked & (~clicked + _U1)) - _U1)
                clicked &= clicked - _U1
                count += 1
                if below + bar * (lane + 1) <= count:
                    return shown + lane + 1, hits + count, True
        below += bar * lanes - count
        shown, hits = shown + lanes, hits + count
        if word == DEPTH:
            return shown, hits, True  # no space for more: end the block here, which is still exact
    return shown, hits, False


@compiled
def _first_hits(shows: int, stack: IntArray) -> int:
    """Count the clicks of the challenger's first shows in the block."""
    hits, word = 0, 0
    while shows > 0:
        clicked = (np.uint64(stack[word, 2]) << _U32) | np.uint64(stack[word, 3])
        if shows < _WORD:
            clicked &= (_U1 << np.uint64(shows)) - _U1
        hits += ones(clicked)
        shows -= _WORD
        word += 1
    return hits


@compiled
def _shows_before(place: int, mine: int, others: int, state: WordArray) -> int:
    """Draw how many of the challenger's shows are before a show of the leader, counted from 1."""
    before = 0
    for placed in range(others):
        if uniform(state) * (mine + 1 + placed) < place + before:
            before += 1
    return before


@compiled
def _order_statistic(rank: int, total: int, state: WordArray) -> float:
    """Draw the smallest (rank 1), second smallest, ... of `total` uniform numbers."""
    below = _exponentials(rank, state)
    return below / (below + _exponentials(total + 1 - rank, state))


@compiled
def _exponentials(count: int, state: WordArray) -> float:
    """Draw the sum of exponential waiting times, with a logarithm for each `_FACTORS` of them."""
    time = 0.0
    while count > 0:
        product = 1.0
        for _ in range(min(count, _FACTORS)):
            product *= positive_uniform(state)
        time -= math.log(product)
        count -= _FACTORS
    return time
