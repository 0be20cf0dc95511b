"""Counting instead of naming: how many of many similar experiments jump, not which.

Experiments with the same arms and segments jump between two budgets at nearly the same price. Asking
of each in turn whether it jumps would try every subset. Asking how many do needs few answers, and for
a given price and count the best ones are simply those that gain most from jumping.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import IntArray
from deniable.portfolio.dual import Demand, Response
from deniable.portfolio.pieces import Losses, Pieces, clip_pieces


@dataclass(frozen=True)
class Family:
    """Units that jump at nearly the same price, and a budget within each one's jump."""

    units: IntArray
    split: FloatArray


def find_families(kinds: IntArray, above: Response, below: Response) -> list[Family]:
    """Families among the units whose budget jumps between two prices.

    Args:
        kinds: a label for each unit, equal for similar ones.
        above: responses to a price somewhat above the best one.
        below: responses to one somewhat below.
    """
    rise = below.budget - above.budget
    jumps = np.flatnonzero((above.piece != below.piece) & (rise > 1e-3))
    middle = (above.budget + below.budget) / 2
    return [
        Family(units, middle[units])
        for kind in np.unique(kinds[jumps])
        if (units := jumps[kinds[jumps] == kind]).size >= 3
    ]


@dataclass
class CountedDemand:
    """A family's response where at least `least` and at most `most` of it are above their split."""

    family: Family
    least: int
    most: int
    sides: list[tuple[IntArray, Demand, IntArray]] = field(default_factory=list)

    def prepare(self, demand: Demand, low: FloatArray, high: FloatArray) -> None:
        """Cut the family's pieces at the splits, within the ends of all units."""
        self.sides = [
            _side(demand, self.family.units, low, np.minimum(high, _spread(self.family, high))),
            _side(demand, self.family.units, np.maximum(low, _spread(self.family, low)), high),
        ]

    def at(self, price: float) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """Bound, budget, piece and loss of each unit of the family."""
        size = self.family.units.size
        bound = np.full((2, size), np.inf)
        budget, loss = np.zeros((2, size)), np.zeros((2, size))
        piece = np.zeros((2, size), dtype=np.int64)
        for i, (place, demand, origin) in enumerate(self.sides):
            if not place.size:
                continue
            own = demand.at(price)
            bound[i, place], budget[i, place] = own.bound, own.budget
            piece[i, place], loss[i, place] = origin[own.piece], own.loss
        with np.errstate(invalid="ignore"):
            change = bound[1] - bound[0]  # -inf where the unit must be above, inf where it cannot
        order = np.argsort(change, kind="stable")
        must, may = int(np.isneginf(change).sum()), size - int(np.isposinf(change).sum())
        count = int(np.clip((change < 0).sum(), max(self.least, must), max(min(self.most, may), 0)))
        side = np.zeros(size, dtype=np.int64)
        side[order[:count]] = 1
        rows = np.arange(size)
        chosen = bound[side, rows]
        if count < must or count > may or not self.least <= count <= self.most:
            chosen = np.full(size, np.inf)  # no such number is possible
        return chosen, budget[side, rows], piece[side, rows], loss[side, rows]


def _spread(family: Family, like: FloatArray) -> FloatArray:
    whole = like.copy()
    whole[family.units] = family.split
    return whole


def _side(
    demand: Demand, units: IntArray, low: FloatArray, high: FloatArray
) -> tuple[IntArray, Demand, IntArray]:
    """The demand of the units that can be between these ends, and their places in the family."""
    place = np.flatnonzero(low[units] <= high[units])
    if not place.size:
        return place, demand, place
    chosen = units[place]
    losses: Losses = demand.losses
    pieces: Pieces
    pieces, origin = clip_pieces(losses, demand.pieces, chosen, low[chosen], high[chosen])
    return place, Demand(losses, pieces, parent=(demand, origin)), origin
