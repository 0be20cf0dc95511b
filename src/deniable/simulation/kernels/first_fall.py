"""The first time that an arm's own path falls to a bar, given its clicks in all.

An arm starts a = c - r n above a bar, the rate r. A click lifts it by 1 - r, a failure lowers it by r.
Given S clicks in F shows, every order of them is equally likely, and the path ends at b. Does it ever
fall to 0, and when first? `leader.py` bounds the probability, and accepts a path if it is below 1e-18.
Here the answer is drawn, exactly, so that paths may be several times as long.

For any h > 0 let p = (1 - e^(-h r)) / (1 - e^(-h)). Under a click rate of p, e^(-h path) is a
martingale. Under p e^(-h (1 - r)), its tilted law, a path drifts down and falls for certain. Orders do
not depend on the click rate. So, if the tilted path falls at t with s clicks, and B(F, S) is the
probability of S clicks in F shows under p,

    P(falls | S) = E[e^(-h (a - path at t)) B(F - t, S - s) / B(F, S)].

The path at t is not above 0 and must still climb to b, which takes j >= b / (1 - r) clicks. Over all
numbers of shows, their probability is largest at j / p, where it is at most 1 / sqrt(2 pi j (1 - p')),
p' = p / (1 - p / j). B(F, S) is at least sqrt(F / (8 S (F - S))) e^(-F KL(S / F, p)). Together they
bound the ratio before a path is drawn. With one minus this bound, the path does not fall. Otherwise, a
tilted path is drawn, and its fall is taken with the probability ratio / bound. If the bound is large,
the path is halved by a hypergeometric draw; short ones are walked through.
"""

from __future__ import annotations

import math

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.random_numbers import (
    FULL_WORD,
    ZERO_WORD,
    coins,
    hypergeometric,
    ones,
    stirling_correction,
    threshold,
    uniform,
)
from deniable.simulation.kernels.state import IntArray, WordArray

_U1 = np.uint64(1)
_WORD = 64
_LEAF = 24  # paths up to this length are walked through
_OFTEN = 0.5  # above this bound, a path is halved
_LEVEL = 1.0  # below this end, in clicks, a path is halved


@compiled
def first_fall(
    ahead: float, rate: float, shown: int, won: int, stack: IntArray, state: WordArray
) -> tuple[int, int]:
    """Return the show with which the path first falls to the bar, and the clicks until then; or 0, 0.

    Args:
        ahead: a, above 0.
        rate: r, the bar, strictly between 0 and 1.
        shown: F, shows.
        won: S, clicks in these.
        stack: scratch space for later parts, (DEPTH, 2 or more).
        state: the generator.
    """
    past, past_won, depth = 0, 0, 0
    while True:
        fell, fell_won = 0, 0
        if (shown - won) * rate >= ahead:
            if shown <= _LEAF:
                fell, fell_won = _walk(ahead, rate, shown, won, state)
            else:
                bound, tilt, chance = fall_bound(ahead, rate, shown, won)
                if bound > _OFTEN:
                    early = shown // 2
                    early_won = hypergeometric(won, shown - won, early, state)
                    stack[depth, 0], stack[depth, 1] = shown - early, won - early_won
                    depth += 1
                    shown, won = early, early_won
                    continue
                if uniform(state) < bound:
                    fell, fell_won = tilted_fall(
                        ahead, rate, shown, won, bound, tilt, chance, state
                    )
        if fell > 0:
            return past + fell, past_won + fell_won
        if depth == 0:
            return 0, 0
        ahead += won - rate * shown
        past, past_won = past + shown, past_won + won
        depth -= 1
        shown, won = stack[depth, 0], stack[depth, 1]


@compiled
def fall_bound(ahead: float, rate: float, shown: int, won: int) -> tuple[float, float, float]:
    """Return a bound on P(falls | S), 1 if there is no better one, with its h and p."""
    end = ahead + won - rate * shown
    if end < _LEVEL or won == 0 or won == shown:
        return 1.0, 0.0, 0.0
    tilt = 2.0 * (ahead + end) / (shown * rate * (1.0 - rate))
    chance = math.expm1(-tilt * rate) / math.expm1(-tilt)
    least = end / (1.0 - rate)
    highest = chance / (1.0 - chance / least) if chance < least else 1.0
    if highest >= 1.0:
        return 1.0, 0.0, 0.0
    exponent = _divergence(shown, won, chance) - tilt * ahead
    if exponent >= 0.0:
        return 1.0, 0.0, 0.0
    scale = 4.0 * won * (shown - won) / (shown * math.pi * least * (1.0 - highest))
    return math.sqrt(scale) * math.exp(exponent), tilt, chance


@compiled
def tilted_fall(
    ahead: float,
    rate: float,
    shown: int,
    won: int,
    bound: float,
    tilt: float,
    chance: float,
    state: WordArray,
) -> tuple[int, int]:
    """Draw the first fall with probability P(falls | S) / bound: its show and clicks, else 0, 0."""
    limit = threshold(chance * math.exp(-tilt * (1.0 - rate)))
    past, past_won = 0, 0
    place = ahead
    while place > 0.0:
        if past >= shown:
            return 0, 0
        clicked = coins(limit, state) & FULL_WORD
        count = ones(clicked)
        lanes = _WORD
        if (_WORD - count) * rate >= place:
            lanes, count = _lanes_to_fall(place, rate, clicked)
        past, past_won = past + lanes, past_won + count
        place = ahead + past_won - rate * past
    left, left_won = shown - past, won - past_won
    if left < left_won or left_won < 0:
        return 0, 0
    ratio = _log_probability(left, left_won, chance) - _log_probability(shown, won, chance)
    taken = uniform(state) * bound < math.exp(ratio - tilt * (ahead - place))
    return (past, past_won) if taken else (0, 0)


@compiled
def _lanes_to_fall(place: float, rate: float, clicked: np.uint64) -> tuple[int, int]:
    """Return how many of a word's 64 shows it takes to fall to 0, or 64, and their clicks."""
    count = 0
    for lane in range(_WORD):
        if clicked & _U1 != ZERO_WORD:
            count += 1
        elif place + count - rate * (lane + 1) <= 0.0:
            return lane + 1, count
        clicked >>= _U1
    return _WORD, count


@compiled
def _walk(ahead: float, rate: float, shown: int, won: int, state: WordArray) -> tuple[int, int]:
    """Draw a short path without replacement, until it falls."""
    left = won
    for past in range(shown):
        if uniform(state) * (shown - past) < left:
            left -= 1
        elif ahead + (won - left) - rate * (past + 1) <= 0.0:
            return past + 1, won - left
    return 0, 0


@compiled
def _divergence(shown: int, won: int, chance: float) -> float:
    """Return F KL(S / F, p)."""
    lost = shown - won
    total = 0.0
    if won > 0:
        total += won * math.log(won / (shown * chance))
    if lost > 0:
        total += lost * math.log(lost / (shown * (1.0 - chance)))
    return total


@compiled
def _log_probability(shown: int, won: int, chance: float) -> float:
    """Return the log of the probability of this many clicks under a click rate."""
    lost = shown - won
    total = -_divergence(shown, won, chance)
    if won > 0 and lost > 0:
        total += _stirling(shown) - _stirling(won) - _stirling(lost)
        total += 0.5 * math.log(shown / (2.0 * math.pi * won * lost))
    return total


@compiled
def _stirling(k: int) -> float:
    """log k! - [(k + 1/2) log k - k + log(2 pi) / 2], from 1 on."""
    return stirling_correction(k) + (k + 0.5) * math.log1p(1.0 / k) - 1.0
