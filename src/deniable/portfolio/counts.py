"""Branching on how many of many similar experiments jump, instead of which ones.

Experiments of similar sizes jump between two budgets at nearly the same price. Branching on each in
turn would try every subset. Branching on how many jump needs few nodes, and for a given price and
count the best ones are simply those that gain most from jumping. The same holds for the one
experiment that may be in between: for a given price the best one is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import IntArray
from deniable.portfolio.dual import Response


@dataclass(frozen=True)
class Sides:
    """Responses of units on one side of their split; the bound is infinite where there is none."""

    bound: FloatArray
    budget: FloatArray
    piece: IntArray
    loss: FloatArray

    @classmethod
    def empty(cls, size: int) -> Sides:
        """Return units that cannot be on this side."""
        zero = np.zeros(size)
        return cls(np.full(size, np.inf), zero, np.zeros(size, dtype=np.int64), zero.copy())

    @classmethod
    def filled(cls, response: Response) -> Sides:
        """Copy a response."""
        return cls(
            response.bound.copy(),
            response.budget.copy(),
            response.piece.copy(),
            response.loss.copy(),
        )

    @classmethod
    def stack(cls, sides: list[Sides]) -> Sides:
        """Stack all sides as rows of arrays."""
        return cls(
            np.stack([side.bound for side in sides]),
            np.stack([side.budget for side in sides]),
            np.stack([side.piece for side in sides]),
            np.stack([side.loss for side in sides]),
        )

    def put(self, units: IntArray, other: Sides) -> None:
        """Set the responses of some units."""
        self.bound[units], self.budget[units] = other.bound, other.budget
        self.piece[units], self.loss[units] = other.piece, other.loss


def choose(
    below: FloatArray,
    above: FloatArray,
    odd: FloatArray,
    family: IntArray,
    count: tuple[int, int],
    has_odd: bool,
) -> tuple[IntArray | None, int | None]:
    """Return the sides with the smallest sum (0 below, 1 above, 2 for the odd unit), and the odd unit.

    Args:
        below: bound of every unit below its split, infinite if it cannot be there.
        above: the same above it.
        odd: the same as the odd unit.
        family: units that have two sides; all others are below.
        count: minimum and maximum number of the family above, not counting the odd one.
        has_odd: whether exactly one unit is odd, or none.

    Returns:
        None for the sides if there is no allowed choice.

    >>> sides, odd = choose(np.array([0.0, 0, 0]), np.array([-1.0, -3, -2]), np.array([0.0, -4, 0]),
    ...                     np.arange(3), (1, 1), True)
    >>> sides.tolist(), odd
    ([0, 2, 1], 1)
    """
    side = np.zeros(below.size, dtype=np.int64)
    stuck = np.flatnonzero(np.isinf(np.minimum(below, above)))
    if stuck.size > has_odd:
        return None, None
    low, high = below[family], above[family]
    must, never = np.isinf(low) & ~np.isinf(high), np.isinf(high)
    with np.errstate(invalid="ignore"):
        change = np.where(must, -np.inf, np.where(never, np.inf, high - low))
    order = np.argsort(change, kind="stable")
    rank = np.empty(family.size, dtype=np.int64)
    rank[order] = np.arange(family.size)
    plain = np.where(must | never, 0.0, change)
    prefix = np.append(0.0, np.cumsum(plain[order]))
    # How many are above, if all take part and if one of them is odd:
    wanted, least = int((change < 0).sum()), max(count[0], int(must.sum()))
    most = min(count[1], int((~never).sum()))
    if not has_odd:
        if least > most:
            return None, None
        side[family[order[: int(np.clip(wanted, least, most))]]] = 1
        return side, None
    regular = np.minimum(below, above)
    regular[family] = np.where(must, high, low)
    total = np.full(below.size, np.inf)
    outside = np.ones(below.size, dtype=bool)
    outside[family] = False
    if least <= most:
        total[outside] = prefix[int(np.clip(wanted, least, most))]
    fewest = np.maximum(count[0], int(must.sum()) - must)
    largest = np.minimum(count[1], int((~never).sum()) - ~never)
    others = np.clip(wanted - (change < 0), fewest, np.maximum(fewest, largest))
    among = rank < others
    sums = prefix[np.minimum(others + among, family.size)] - np.where(among, plain, 0.0)
    total[family] = np.where(fewest <= largest, sums, np.inf)
    with np.errstate(invalid="ignore"):
        total += odd - np.where(np.isinf(regular), 0.0, regular)
    if stuck.size:
        total[np.arange(below.size) != stuck[0]] = np.inf
    special = int(np.argmin(total))
    if not np.isfinite(total[special]):
        return None, None
    rest = order
    number = int(np.clip(wanted, least, max(least, most)))
    place = np.flatnonzero(family == special)
    if place.size:
        rest, number = order[order != place[0]], int(others[place[0]])
    side[family[rest[:number]]] = 1
    side[special] = 2
    return side, special
