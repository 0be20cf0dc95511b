"""The greedy arm: the highest clicks per show, compared exactly, ties broken by a random number."""

from __future__ import annotations

from collections.abc import Sequence

SPACE_BITS = 64


def greedy_arm(
    shows: Sequence[int], clicks: Sequence[int], arms: Sequence[int], tie_draw: int
) -> int:
    """The index in `arms` of the arm with the highest clicks/shows; never shown counts as 0.

    Args:
        shows: shows of each arm, by position.
        clicks: clicks of each arm, by position.
        arms: the positions to choose from.
        tie_draw: uniform in [0, 2^64); used where several are highest, drawn always.

    >>> greedy_arm([10, 20, 0], [1, 3, 0], (0, 1, 2), tie_draw=0)
    1
    >>> [greedy_arm([2, 4, 9], [1, 2, 4], (0, 1, 2), tie_draw=draw) for draw in (0, 2**63)]
    [0, 1]
    """
    first = arms[0]
    best_clicks, best_shows, highest = clicks[first], shows[first] or 1, [0]
    for index in range(1, len(arms)):
        arm = arms[index]
        arm_clicks, arm_shows = clicks[arm], shows[arm] or 1
        lead = arm_clicks * best_shows - best_clicks * arm_shows
        if lead > 0:
            best_clicks, best_shows, highest = arm_clicks, arm_shows, [index]
        elif lead == 0:
            highest.append(index)
    return highest[tie_draw * len(highest) >> SPACE_BITS]
