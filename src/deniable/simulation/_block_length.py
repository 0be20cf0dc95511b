"""How far to leap: a block just short enough that its totals are likely to settle the question.

Any length that depends on the past alone is exact; these lengths only make splits rare. With d the
gap between the leader's rate and a challenger's, the gap after m visitors is closed at worst by the
leader's expected failures, m f Q / n, and the challenger's expected clicks, m s (1 - Q') / n', or,
where the paths are long, by their swings of about five standard deviations.
"""

from __future__ import annotations

import math
from typing import Any

from deniable.policies._compile import compiled

_CERTAIN = 0.7  # of the length at which the expected worst order closes the gap
_SWING = 5.2  # standard deviations that a held path must keep off, and a little more
_LIKELY = 0.8
_LONG = 200.0  # visitors from which swings are smaller than worst orders


@compiled
def single_leader_length(
    shows: Any, clicks: Any, leader: Any, exploring: Any, bonus: Any, rates: Any, longest: Any
) -> Any:
    """Visitors of the segment to leap while one arm leads alone, at most `longest`."""
    n, c = shows[leader], clicks[leader]
    own = exploring[leader] + bonus
    q = c / n
    fall = own * (1.0 - rates[leader]) * q / n
    sway = _SWING * math.sqrt(own * rates[leader] * (1.0 - rates[leader])) / n
    length = longest
    for arm in range(shows.size):
        if arm == leader:
            continue
        k = max(shows[arm], 1)
        other = clicks[arm] / k
        gap = q - other
        hits = exploring[arm] * rates[arm]
        rise = hits * (1.0 - other) / k
        closing = fall + rise
        if closing <= 0.0 or gap > closing * length / _CERTAIN:
            continue
        reach = _CERTAIN * gap / closing
        if reach > _LONG:
            arm_sway = _SWING * math.sqrt(hits * (1.0 - rates[arm])) / k
            # leader swings, challenger at its worst: rise m + sway sqrt m = gap
            root = 2.0 * gap / (sway + math.sqrt(sway * sway + 4.0 * rise * gap))
            mixed = _LIKELY * root * root
            both = gap / (sway + arm_sway)
            reach = max(reach, mixed, min(_LIKELY * both * both, float(n + k)))
        length = min(length, reach)
    return length


@compiled
def tied_length(
    shows: Any, clicks: Any, leader: Any, tied: Any, exploring: Any, bonus: Any, rates: Any
) -> Any:
    """Visitors of the segment until the tie is expected to break, times .7; infinite if never."""
    breaking = 0.0
    at_zero = clicks[leader] == 0
    at_one = clicks[leader] == shows[leader] and not at_zero
    for arm in range(shows.size):
        if at_zero:
            breaking += (exploring[arm] + bonus / tied) * rates[arm]
        elif at_one and clicks[arm] == shows[arm] and clicks[arm] > 0:
            breaking += (exploring[arm] + bonus / tied) * (1.0 - rates[arm])
        elif at_one and shows[arm] == 0:
            breaking += exploring[arm] * rates[arm]
        elif not at_one:
            return 0.0
    return _CERTAIN / breaking if breaking > 0.0 else math.inf


@compiled
def schedule_length(clock: Any, exploration: Any, candidates: Any) -> Any:
    """Visitors in which a falling schedule leaves about this many of them undecided.

    Exploration falls like n^(-1/3), so over m visitors by about m / (3 n) of itself.
    """
    return math.sqrt(3.0 * candidates * (clock + 1.0) / max(exploration, 1e-300))
