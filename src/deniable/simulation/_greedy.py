"""The greedy arm of a segment, compared in integers: click rates tie exactly or not at all.

An arm that was never shown counts as a click rate of 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deniable.policies._compile import compiled

PRODUCT_SAFE = np.int64(3_000_000_000)  # below this, the product of two counts fits into 63 bits


@compiled
def is_above(clicks: Any, shows: Any, other_clicks: Any, other_shows: Any) -> Any:
    """Whether clicks / shows > other_clicks / other_shows; 0 / 0 counts as 0."""
    if shows < PRODUCT_SAFE and other_shows < PRODUCT_SAFE:
        # With 0 shows there are 0 clicks: the products below are then right as they are.
        return clicks * max(other_shows, 1) > other_clicks * max(shows, 1)
    return sign_of_difference(clicks, shows, other_clicks, other_shows) > 0


@compiled
def sign_of_difference(clicks: Any, shows: Any, other_clicks: Any, other_shows: Any) -> Any:
    """-1, 0 or 1, for counts of any size: continued fractions instead of 128-bit products."""
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
def find_leaders(shows: Any, clicks: Any) -> Any:
    """The first arm with the highest click rate, and how many arms share that rate."""
    leader, tied = 0, 1
    for arm in range(1, shows.size):
        if is_above(clicks[arm], shows[arm], clicks[leader], shows[leader]):
            leader, tied = arm, 1
        elif not is_above(clicks[leader], shows[leader], clicks[arm], shows[arm]):
            tied += 1
    return leader, tied


@compiled
def tied_arm(shows: Any, clicks: Any, leader: Any, rank: Any) -> Any:
    """The arm number `rank`, from 0, of those that share the leader's click rate."""
    for arm in range(leader, shows.size):
        if not is_above(clicks[leader], shows[leader], clicks[arm], shows[arm]):
            if rank == 0:
                return arm
            rank -= 1
    return leader
