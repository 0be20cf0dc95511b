"""Whether a leader of two arms keeps its lead in a block, decided by one number fixed before the draw.

`leader.py` looks at the block's totals and bounds the probability of a lost lead given them, for
each arm by itself. That takes a dozen logarithms, and both arms must stay on their side of one rate:
the fluctuations of the two are added, though they are independent. Here they are taken together.

The leader has c clicks in n shows, the challenger d in k, both counted along the block. For a rate r
and a weight l, W = (c - r n) + l (r k - d) is a random walk. If the lead is lost with the challenger
at a rate of r or more, and l >= n / k throughout, then W <= 0; likewise below r if l <= n / k. So two
walks, with the largest and the smallest possible n / k, are above 0 while the lead is kept. With
e^f(s) = E[e^(s step)], for any h, g > 0,

    P(W falls to 0, and ends at or above b) <= exp(N max(f(-h), f(g)) - h W(0) - g b):

down to 0 by Lundberg's inequality, up to b from there by Markov's. Nothing here depends on what is
drawn, so a block that ends at or above b is accepted, with b such that the bound is 1e-18. This needs
neither the path nor the probability of the totals, and the steps need not have the same distribution
if N max f is a bound on the sum: exploration may fall. The bound on f is Bernstein's,

    e^x - 1 - x <= (x^2 / 2) / (1 - x / 3), x < 3, of either sign.
"""

from __future__ import annotations

import math

from deniable._compile import compiled
from deniable.simulation.kernels.leader import LOG_MISS

_AIM = 40.0  # the exponent to reach, less what is usually gained at the end of the walk
_KEPT = 0.6  # share of the lead that a block must end with: 99% of the blocks do
_ROUGH = 0.25  # up to this relative size of single steps, walks are smooth enough
_STEEPEST = 2.5  # bounds hold for tilts below 3, and are poor there
_GROWTH = 0.3  # up to this relative growth of an arm's shows, n / k hardly changes


@compiled
def lead_length(
    n: int,
    c: int,
    k: int,
    d: int,
    wander: float,
    own_rate: float,
    other_rate: float,
    longest: float,
) -> float:
    """Return how many visitors to take so that `keeps_lead` mostly holds; 0 if single clicks matter.

    Args:
        n: the leader's shows.
        c: its clicks.
        k: the challenger's shows.
        d: its clicks.
        wander: probability of seeing the challenger.
        own_rate: the leader's click rate.
        other_rate: the challenger's.
        longest: maximum length.
    """
    if k == 0 or c == 0:
        return 0.0
    rate = (c + d) / (n + k)
    weight = n / k
    start = (c - rate * n) * (1.0 + weight)
    click, failure = (1.0 - rate) * (1.0 - rate), rate * rate
    own = 1.0 - wander
    square = own * (own_rate * click + (1.0 - own_rate) * failure)
    square += weight * weight * wander * (other_rate * click + (1.0 - other_rate) * failure)
    drift = own * (own_rate - rate) + weight * wander * (rate - other_rate)
    step = max(rate, weight * (1.0 - rate))
    rough = (1.0 + _KEPT) * _AIM / (12.0 * _KEPT) * step
    if rough > _ROUGH * start:
        return 0.0
    length = min(longest, _GROWTH * min(float(n), k / max(wander, 1e-300)))
    above = 2.0 * _KEPT * start * start
    below = _AIM * square * (1.0 + rough / start) - 2.0 * _KEPT * start * drift
    return above / below if above < length * below else length


@compiled
def keeps_lead(
    n: int,
    c: int,
    k: int,
    d: int,
    least: float,
    wander: float,
    own_rate: float,
    other_rate: float,
    size: int,
    others: int,
    wins: int,
    hits: int,
) -> bool:
    """Whether the lead is kept in a block, except with a probability below 2e-18 in all.

    Args:
        n: the leader's shows before the block, above 0.
        c: its clicks.
        k: the challenger's shows, above 0.
        d: its clicks.
        least: the smallest probability of seeing the challenger in the block.
        wander: the largest.
        own_rate: the leader's click rate.
        other_rate: the challenger's.
        size: visitors in the block.
        others: those who see the challenger.
        wins: clicks of the rest, on the leader.
        hits: clicks on the challenger.
    """
    expected = wander * size
    most = expected + 4.0 * math.sqrt(expected) + 4.0
    if others > most:
        return False
    rate = (c + d) / (n + k)
    weight = n / k
    own = 1.0 - wander
    square, cube = _moments(rate, own_rate)
    other_square, other_cube = _moments(1.0 - rate, 1.0 - other_rate)
    scale = wander * weight * weight
    drift = own * (own_rate - rate) + weight * wander * (rate - other_rate)
    down, up = _tilts(
        own * square + scale * other_square, own * cube + scale * weight * other_cube, drift, size
    )
    high, low = (n + size) / k, n / (k + most)
    if down <= 0.0 or up <= 0.0 or max(down, up) * max(1.0, high) > _STEEPEST:
        return False
    own_falls, own_climbs = _growth(down, rate, own_rate), _growth(-up, rate, own_rate)
    start = c - rate * n  # also the challenger's r k - d
    own_end = start + wins - rate * (size - others)
    other_end = start + rate * others - hits
    for walk in range(2):
        weight = high if walk == 0 else low
        falls = _growth(down * weight, 1.0 - rate, 1.0 - other_rate) - own_falls
        climbs = _growth(-up * weight, 1.0 - rate, 1.0 - other_rate) - own_climbs
        # Linear in the probability of a challenger's step, so largest at one of its ends.
        fastest = max(
            own_falls + least * falls,
            own_falls + wander * falls,
            own_climbs + least * climbs,
            own_climbs + wander * climbs,
        )
        margin = down * start * (1.0 + weight) + up * (own_end + weight * other_end)
        if size * fastest - margin > LOG_MISS:
            return False
    return True


@compiled
def _moments(rate: float, p: float) -> tuple[float, float]:
    """Return E[step^2] and -E[step^3]; a step is 1 - rate with probability p, else -rate."""
    click, failure = p * (1.0 - rate) * (1.0 - rate), (1.0 - p) * rate * rate
    return click + failure, failure * rate - click * (1.0 - rate)


@compiled
def _tilts(square: float, cube: float, drift: float, size: int) -> tuple[float, float]:
    """Return h and g, the tilts down and up.

    Any are valid. These would be the best if the walk were a Brownian motion, with a first correction
    for the skewness of its steps.
    """
    inverse = 1.0 / max(square, 1e-300)
    lean = drift * inverse
    tilt = math.sqrt(-2.0 * LOG_MISS / size * inverse + lean * lean)
    skew = tilt * cube * inverse / 6.0
    return tilt * (1.0 - skew) + lean, tilt * (1.0 + skew) - lean


@compiled
def _growth(tilt: float, rate: float, p: float) -> float:
    """Bound E[e^(-tilt step)] - 1; a step is 1 - rate with probability p, else -rate. |tilt| < 3."""
    miss, win = tilt * rate / 3.0, tilt * (1.0 - rate) / 3.0
    over, under = 1.0 - miss, 1.0 + win
    square = (1.0 - p) * miss * miss * under + p * win * win * over
    return 4.5 * square / (over * under) - tilt * (p - rate)
