"""A node of the search: units held to narrower ends, families held to a count."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.counts import CountedDemand, Family
from deniable.portfolio.curves import IntArray
from deniable.portfolio.dual import Demand, Response
from deniable.portfolio.pieces import clip_pieces

Counts = dict[int, tuple[int, int]]
"""Family number -> the least and the most of it that may be above their split."""


@dataclass
class Node:
    """What a node of the search adds to the problem.

    Attributes:
        low, high: the ends of every unit.
        counts: limits on families.
    """

    low: FloatArray
    high: FloatArray
    counts: Counts = field(default_factory=dict)
    _narrow: tuple[IntArray, Demand | None, IntArray] | None = None
    _counted: list[CountedDemand] = field(default_factory=list)
    _seen: dict[float, Response] = field(default_factory=dict)

    def respond(self, demand: Demand, families: list[Family], response: Response) -> Response:
        """The response of all units in this node, from theirs without it."""
        price = response.price
        if price in self._seen:
            return self._seen[price]
        if self._narrow is None:
            self._narrow = self._prepare(demand, families)
        units, narrowed, origin = self._narrow
        if narrowed is None and not self._counted:
            return response
        bound, budget = response.bound.copy(), response.budget.copy()
        piece, loss = response.piece.copy(), response.loss.copy()
        if narrowed is not None:
            own = narrowed.at(price)
            bound[units], budget[units] = own.bound, own.budget
            piece[units], loss[units] = origin[own.piece], own.loss
        for counted in self._counted:
            rows = counted.family.units
            bound[rows], budget[rows], piece[rows], loss[rows] = counted.at(price)
        self._seen[price] = Response(price, bound, budget, piece, loss)
        return self._seen[price]

    def _prepare(
        self, demand: Demand, families: list[Family]
    ) -> tuple[IntArray, Demand | None, IntArray]:
        first = demand.pieces.first
        tight = self.low > demand.pieces.left[first]
        tight |= self.high < np.maximum.reduceat(demand.pieces.right, first)
        for number, (least, most) in self.counts.items():
            counted = CountedDemand(families[number], least, most)
            counted.prepare(demand, self.low, self.high)
            self._counted.append(counted)
            tight[families[number].units] = False
        units = np.flatnonzero(tight)
        if not units.size:
            return units, None, units
        pieces, origin = clip_pieces(
            demand.losses, demand.pieces, units, self.low[units], self.high[units]
        )
        return units, Demand(demand.losses, pieces, parent=(demand, origin)), origin


def split_unit(node: Node, unit: int, at: float, twins: IntArray | None) -> list[Node]:
    """Two children: the unit at or below a budget, and at or above it.

    Twins are interchangeable, so that their budgets may be taken as falling in order: what is below
    takes the later twins along, what is above the earlier ones.
    """
    same = np.array([unit]) if twins is None else np.flatnonzero(twins == twins[unit])
    later, earlier = same[same >= unit], same[same <= unit]
    high, low = node.high.copy(), node.low.copy()
    high[later] = np.minimum(high[later], at)
    low[earlier] = np.maximum(low[earlier], at)
    ends = ((node.low, high), (low, node.high))
    return [Node(lows, highs, node.counts) for lows, highs in ends if (lows <= highs).all()]


def split_count(node: Node, number: int, count: int, size: int) -> list[Node]:
    """Two children: at most `count` of a family above their splits, and more."""
    least, most = node.counts.get(number, (0, size))
    return [
        Node(node.low, node.high, {**node.counts, number: limits})
        for limits in ((least, count), (count + 1, most))
        if limits[0] <= limits[1]
    ]
