"""Which arm leads a segment, and whether that can have changed inside a block of visitors.

The greedy arm has the highest click rate. Rates are compared in integers: they tie exactly or not at
all. An arm that was never shown counts as a click rate of 0.

Given a block's shows N and clicks S of each arm, every order of the visitors is equally likely. The
greedy arm is safe when no order could change it: the leader after all its failures first is still
above each challenger after all its clicks first. That is certain, and compared in integers.

If it is not certain, it can still be almost certain. Fix a rate r between the two. The leader's
path is a walk from a = c - r n to b = c + S - r (n + N), both above 0, through every order of S clicks
and N - S failures. For any h > 0, with p0 = (1 - e^(-h r)) / (1 - e^(-h)), e^(-h walk) is a martingale
under click rate p0, so the walk ever falls to 0 with at most e^(-h a) (Lundberg), and

    P(falls to 0 | S) <= e^(-h a) / P(Binomial(N, p0) = S)
                      <= sqrt(8 N p q) exp(-h a + S log(p / p0) + (N - S) log(q / q0)),

p = S / N. With h = 2 (a + b) / (N r (1 - r)) this is close to the bridge's true e^(-2ab / (N p q)).
A block is accepted only if this is below 1e-18 for each path, so that a run with a million such checks
is within 1e-12 of the exact distribution in total variation.
"""

from __future__ import annotations

import math

from deniable._compile import compiled
from deniable.simulation.kernels.state import IntArray, Leaders, World

_PRODUCT_SAFE = 3_000_000_000  # below this, the product of two counts fits into 63 bits
LOG_MISS = -41.5  # log(1e-18), rounded down
BRIDGE_EXPONENT = 45.0  # 2 a b / (N p q) must reach this for the bound to be worth evaluating
_SHORT = 64  # for shorter paths this gains nothing over the certain check


@compiled
def is_above(clicks: int, shows: int, other_clicks: int, other_shows: int) -> bool:
    """Whether clicks / shows > other_clicks / other_shows; 0 / 0 counts as 0."""
    if shows < _PRODUCT_SAFE and other_shows < _PRODUCT_SAFE:
        # With 0 shows there are 0 clicks, so the products below are correct as they are.
        return clicks * max(other_shows, 1) > other_clicks * max(shows, 1)
    return sign_of_difference(clicks, shows, other_clicks, other_shows) > 0


@compiled
def sign_of_difference(clicks: int, shows: int, other_clicks: int, other_shows: int) -> int:
    """Return -1, 0 or 1 for counts of any size, with continued fractions instead of 128-bit products."""
    a, b, c, d = clicks, max(shows, 1), other_clicks, max(other_shows, 1)
    sign = 1
    while True:
        whole, other_whole = a // b, c // d
        if whole != other_whole:
            return sign if whole > other_whole else -sign
        a, c = a - whole * b, c - other_whole * d
        if a == 0 or c == 0:
            return 0 if a == c else (sign if a > 0 else -sign)
        # a/b > c/d exactly when b/a < d/c.
        a, b, c, d = b, a, d, c
        sign = -sign


@compiled
def find_leaders(shows: IntArray, clicks: IntArray, segment: int) -> tuple[int, int]:
    """Return the segment's first arm with the highest click rate, and how many arms share that rate.

    The counts are those of all segments, (J, K): to take a row of an array is slow in a loop, because
    Numba counts references.
    """
    leader, tied = 0, 1
    for arm in range(1, shows.shape[1]):
        n, c = shows[segment, arm], clicks[segment, arm]
        n_leader, c_leader = shows[segment, leader], clicks[segment, leader]
        if is_above(c, n, c_leader, n_leader):
            leader, tied = arm, 1
        elif not is_above(c_leader, n_leader, c, n):
            tied += 1
    return leader, tied


@compiled
def tied_arm(shows: IntArray, clicks: IntArray, segment: int, leader: int, rank: int) -> int:
    """Return arm number `rank`, from 0, of those that share the leader's click rate."""
    for arm in range(leader, shows.shape[1]):
        if not is_above(
            clicks[segment, leader],
            shows[segment, leader],
            clicks[segment, arm],
            shows[segment, arm],
        ):
            if rank == 0:
                return arm
            rank -= 1
    return leader


@compiled
def log_fall_bound(clicks: int, shows: int, won: int, shown: int, rate: float) -> float:
    """Bound log P(the path of clicks / shows ever falls to `rate` inside the block) from above.

    Args:
        clicks: c, before the block.
        shows: n, before the block.
        won: S, clicks in the block.
        shown: N, shows in the block.
        rate: r, strictly between 0 and 1.
    """
    start = clicks - rate * shows
    end = start + won - rate * shown
    if start <= 0.0 or end <= 0.0:
        return 0.0
    lost = shown - won
    if lost * rate < start or won == 0:
        return -math.inf  # even all failures first stay above, or the path falls straight to `end`
    spread = won * (lost / shown)
    if 2.0 * start * end < BRIDGE_EXPONENT * spread:
        return 0.0
    tilt = 2.0 * (start + end) / (shown * rate * (1.0 - rate))
    scale = -math.expm1(-tilt)
    p0 = -math.expm1(-tilt * rate) / scale
    q0 = -math.expm1(-tilt * (1.0 - rate)) * math.exp(-tilt * rate) / scale
    if p0 <= 0.0 or q0 <= 0.0:
        return 0.0
    share = won / shown
    return (
        0.5 * math.log(8.0 * spread)
        - tilt * start
        + won * math.log(share / p0)
        + lost * math.log((lost / shown) / q0)
    )


@compiled
def stays_above(clicks: int, shows: int, won: int, shown: int, rate: float) -> bool:
    """Whether the path stays above `rate`, except with a probability below 1e-18."""
    if rate <= 0.0:
        return clicks > 0
    return rate < 1.0 and log_fall_bound(clicks, shows, won, shown, rate) <= LOG_MISS


@compiled
def stays_below(clicks: int, shows: int, won: int, shown: int, rate: float) -> bool:
    """The mirror image: failures stay above 1 - rate."""
    return stays_above(shows - clicks, shows, shown - won, shown, 1.0 - rate)


@compiled
def keeps_leader(
    shows: IntArray, clicks: IntArray, leader: int, shown: IntArray, won: IntArray
) -> bool:
    """Whether a single leader keeps the lead throughout a block with these totals.

    Args:
        shows: n by arm, before the block, (K,).
        clicks: c by arm, before the block, (K,).
        leader: the only leading arm before the block.
        shown: N by arm, (K,).
        won: S by arm, (K,).
    """
    lowest = shows[leader] + shown[leader] - won[leader]
    for arm in range(shows.size):
        if (
            arm != leader
            and not is_above(clicks[leader], lowest, clicks[arm] + won[arm], shows[arm] + won[arm])
            and not almost_surely_below(
                clicks[leader],
                shows[leader],
                won[leader],
                shown[leader],
                clicks[arm],
                shows[arm],
                won[arm],
                shown[arm],
            )
        ):
            return False
    return True


@compiled
def almost_surely_below(c: int, n: int, s: int, m: int, d: int, k: int, t: int, w: int) -> bool:
    """Whether a challenger stays below the leader, except with a probability below 2e-18.

    The leader has c clicks in n shows before the block and s in m inside it; the challenger has d,
    k, t and w.
    """
    if m + w < _SHORT or n == 0 or k == 0:
        return False
    low = min(c / n, (c + s) / (n + m))
    high = max(d / k, (d + t) / (k + w))
    if low <= high:
        return False
    top = (d + t) / (k + t)  # the challenger after all its clicks first: certain
    if top < low and stays_above(c, n, s, m, top):
        return True
    bottom = c / (n + m - s)
    if bottom > high and stays_below(d, k, t, w, bottom):
        return True
    leader_sway = math.sqrt(s * ((m - s) / max(m, 1))) / n
    arm_sway = math.sqrt(t * ((w - t) / max(w, 1))) / k
    sway = leader_sway + arm_sway
    if sway <= 0.0:
        return False
    between = high + (low - high) * arm_sway / sway
    return stays_above(c, n, s, m, between) and stays_below(d, k, t, w, between)


@compiled
def keeps_tie(
    shows: IntArray, clicks: IntArray, leader: int, shown: IntArray, won: IntArray
) -> bool:
    """Whether a set of tied arms certainly stays the same throughout a block."""
    for arm in range(shows.size):
        if is_above(clicks[leader], shows[leader], clicks[arm], shows[arm]):
            if not is_above(
                clicks[leader], shows[leader], clicks[arm] + won[arm], shows[arm] + won[arm]
            ):
                return False
        elif clicks[arm] == 0:
            if won[arm] > 0:
                return False
        elif clicks[arm] == shows[arm]:
            if won[arm] < shown[arm]:
                return False
        elif shown[arm] > 0:
            return False
    return True


@compiled
def look_for_leaders(world: World, leaders: Leaders) -> None:
    """Find the greedy arm of every segment."""
    for j in range(leaders.arms.size):
        leaders.arms[j], leaders.ties[j] = find_leaders(world.shows, world.clicks, j)
