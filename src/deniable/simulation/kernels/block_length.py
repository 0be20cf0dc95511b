"""Chooses block lengths: just short enough that the totals are likely to be decisive.

Any length that depends only on the past gives the exact distribution; these lengths merely make
splits rare. With d the gap between the leader's rate and a challenger's, the gap after m visitors
is closed at worst by the leader's expected failures, m f Q / n, and the challenger's expected
clicks, m s (1 - Q') / n'. For long paths it is closed by their fluctuations of about five standard
deviations.
"""

from __future__ import annotations

import math

from deniable._compile import compiled
from deniable.simulation.kernels.state import FloatArray, IntArray

_CERTAIN = 0.7  # share of the length at which the expected worst order closes the gap
_SWING = 5.2  # standard deviations that an accepted path must keep away, plus a margin
_LIKELY = 0.65
_LONG = 200.0  # from this many visitors, fluctuations are smaller than worst orders


@compiled
def single_leader_length(
    shows: IntArray,
    clicks: IntArray,
    leader: int,
    exploring: FloatArray,
    bonus: float,
    rates: FloatArray,
    longest: float,
) -> float:
    """Return how many of the segment's visitors to leap while one arm leads, at most `longest`."""
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
        # Most challengers are far behind, so this takes one comparison and no division.
        if closing <= 0.0 or gap > closing * length / _CERTAIN:
            continue
        reach = _CERTAIN * gap / closing
        # Over many visitors, clicks and failures mix, and the worst order is far too pessimistic.
        if reach > _LONG:
            arm_sway = _SWING * math.sqrt(hits * (1.0 - rates[arm])) / k
            reach = max(reach, _swinging_length(gap, rise, sway, arm_sway, n + k))
        length = min(length, reach)
    return length


@compiled
def _swinging_length(gap: float, rise: float, sway: float, arm_sway: float, seen: int) -> float:
    """Return the visitors after which fluctuations of the leader, or of both, may close the gap."""
    # leader fluctuates, challenger at its worst: rise m + sway sqrt m = gap
    root = 2.0 * gap / (sway + math.sqrt(sway * sway + 4.0 * rise * gap))
    mixed = _LIKELY * root * root
    both = gap / (sway + arm_sway)
    return max(mixed, min(_LIKELY * both * both, float(seen)))


@compiled
def tied_length(
    shows: IntArray,
    clicks: IntArray,
    leader: int,
    tied: int,
    exploring: FloatArray,
    bonus: float,
    rates: FloatArray,
) -> float:
    """Return the segment's visitors until the tie is expected to break, times .7; infinite if never."""
    breaking = 0.0
    at_zero = clicks[leader] == 0
    at_one = clicks[leader] == shows[leader] and not at_zero
    for arm in range(shows.size):
        if at_zero:
            # There are no clicks yet: the first click of any arm breaks the tie.
            breaking += (exploring[arm] + bonus / tied) * rates[arm]
        elif at_one and clicks[arm] == shows[arm] and clicks[arm] > 0:
            breaking += (exploring[arm] + bonus / tied) * (1.0 - rates[arm])
        elif at_one and shows[arm] == 0:
            breaking += exploring[arm] * rates[arm]
        elif not at_one:
            # Rates strictly between 0 and 1 move with every show: no block is safe.
            return 0.0
    return _CERTAIN / breaking if breaking > 0.0 else math.inf


@compiled
def schedule_length(clock: int, exploration: float, candidates: float) -> float:
    """Return the visitors in which a decaying schedule leaves about this many of them undecided.

    Exploration falls like n^(-1/3), so over m visitors it falls by about m / (3 n) of itself.
    """
    return math.sqrt(3.0 * candidates * (clock + 1.0) / max(exploration, 1e-300))
