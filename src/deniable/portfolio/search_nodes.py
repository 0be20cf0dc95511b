"""A node of the search: units with narrower ends, and properties of some best allocation.

Two units inside concave pieces lose nothing by moving apart until one reaches an end. So some best
allocation has at most one unit inside a concave piece, the odd one; all others are regular: inside
a convex piece or at an end. A node says where the odd one is, if there is one, and how many of many
similar units are above their jump, but not which.

Experiments of similar sizes jump between two budgets at nearly the same price. Branching on each in
turn would try every subset. Branching on how many jump needs few nodes, and for a given price and
count the best ones are simply those that gain most from jumping (`choose`). The same holds for the
odd one: for a given price the best one is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import BoolArray, IntArray
from deniable.portfolio.dual import Demand, Response
from deniable.portfolio.pieces import Losses, Pieces, clip_pieces


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


@dataclass(frozen=True)
class Family:
    """Units that jump at nearly the same price, and a budget within each one's jump."""

    units: IntArray
    split: FloatArray


@dataclass
class Structure:
    """The pieces of all units as regular and odd ones, without those that cannot be optimal.

    Attributes:
        pieces: all of them.
        regular: demand of convex pieces and of the ends of concave ones.
        origin: the piece that each regular one comes from.
        odd: the concave pieces, as a mask.
        family: units to count, once they are known.
    """

    pieces: Pieces
    regular: Demand
    origin: IntArray
    odd: BoolArray
    family: Family
    _responses: dict[float, Response] = field(default_factory=dict)

    @classmethod
    def of(cls, demand: Demand, response: Response, allowed: float) -> Structure:
        """Build it from the demand of all pieces.

        Args:
            demand: demand of all pieces.
            response: response to a price near the best one.
            allowed: what a unit may lose relative to its bound at that price; with more, the total
                bound would exceed the best allocation found.
        """
        pieces, price = demand.pieces, response.price
        concave = np.flatnonzero(~pieces.convex)
        origin = np.concatenate([np.flatnonzero(pieces.convex), concave, concave])
        at = np.repeat([0, 1, 2], [pieces.size - concave.size, concave.size, concave.size])
        order = np.lexsort((at, origin))
        origin, at = origin[order], at[order]
        left_end, right_end = at == 1, at == 2
        unit = pieces.unit[origin]
        regular = Pieces(
            unit=unit,
            cell=pieces.cell[origin],
            left=np.where(right_end, pieces.right[origin], pieces.left[origin]),
            right=np.where(left_end, pieces.left[origin], pieces.right[origin]),
            convex=at == 0,
            left_value=np.where(right_end, pieces.right_value[origin], pieces.left_value[origin]),
            right_value=np.where(left_end, pieces.left_value[origin], pieces.right_value[origin]),
            left_gain=pieces.left_gain[origin],
            right_gain=pieces.right_gain[origin],
            first=np.flatnonzero(np.append(True, unit[1:] != unit[:-1])),
        )
        within = demand.least(price, regular) - response.bound[unit] <= allowed
        within |= (
            (origin == response.piece[unit])
            & (regular.left <= response.budget[unit])
            & (response.budget[unit] <= regular.right)
        )
        lonely = np.isin(unit, np.unique(unit[within]), invert=True)
        regular, origin = regular.chosen(within | lonely), origin[within | lonely]
        odd = ~pieces.convex & (
            demand.least(price, pieces) - response.bound[pieces.unit] <= allowed
        )
        none = Family(np.empty(0, dtype=np.int64), np.empty(0))
        own = Demand(demand.losses, regular, demand.root_slack, (demand, origin))
        return cls(pieces, own, origin, odd, none)

    def at(self, price: float) -> Response:
        """Return the response of all units as regular ones."""
        if price not in self._responses:
            found = self.regular.at(price)
            self._responses[price] = Response(
                price, found.bound, found.budget, self.origin[found.piece], found.loss
            )
        return self._responses[price]

    def find_family(self, above: float, below: float) -> None:
        """Count the units that jump over a concave piece between two prices."""
        pieces, unit = self.pieces, self.pieces.unit
        jumped = ~pieces.convex & (pieces.left >= self.at(above).budget[unit] - 1e-9)
        jumped &= pieces.right <= self.at(below).budget[unit] + 1e-9
        width = np.where(jumped, pieces.right - pieces.left, 0.0)
        widest = np.flatnonzero(
            (width > 1e-3) & (width >= np.maximum.reduceat(width, pieces.first)[unit])
        )
        units, place = np.unique(unit[widest], return_index=True)
        self.family = Family(units, (pieces.left + pieces.right)[widest[place]] / 2)


@dataclass
class Node:
    """The restrictions that a node of the search adds to the problem.

    Attributes:
        low, high: the ends of every unit.
        structured: whether all units except an odd one are regular; if not, there is no
            restriction.
        count: minimum and maximum number of the family at or above their split.
        odd: the ends of the odd unit's budget; None if there is none.
    """

    low: FloatArray
    high: FloatArray
    structured: bool = False
    count: tuple[int, int] = (0, 0)
    odd: tuple[float, float] | None = None
    _prepared: _Prepared | None = None

    def respond(self, structure: Structure, price: float) -> Response:
        """Return the response of all units in this node, if it is structured."""
        if self._prepared is None:
            self._prepared = _Prepared.of(self, structure)
        return self._prepared.at(price, structure.at(price), self.count)

    def forget(self) -> None:
        """Drop data that is only needed while the node is solved."""
        self._prepared = None


Part = tuple[IntArray, Demand, IntArray]
"""Units that can be in a region, their demand there, and the original pieces of theirs."""


@dataclass(frozen=True)
class _Prepared:
    """A node's units restricted to their ends, for evaluation at many prices."""

    tight: IntArray
    within: Part
    family: IntArray
    below: Part
    above: Part
    odd: Part | None
    origin: IntArray

    @classmethod
    def of(cls, node: Node, structure: Structure) -> _Prepared:
        regular, family = structure.regular, structure.family
        first = regular.pieces.first
        held = node.low > regular.pieces.left[first]
        held |= node.high < np.maximum.reduceat(regular.pieces.right, first)
        held[family.units] = False
        tight = np.flatnonzero(held)
        split_low, split_high = node.low.copy(), node.high.copy()
        split_high[family.units] = np.minimum(node.high[family.units], family.split)
        split_low[family.units] = np.maximum(node.low[family.units], family.split)
        odd = None
        if node.odd is not None:
            everyone = np.arange(node.low.size)
            low, high = np.maximum(node.low, node.odd[0]), np.minimum(node.high, node.odd[1])
            whole = regular.parent
            assert whole is not None
            odd = narrow(whole[0], everyone, low, high, structure.odd)
        return cls(
            tight,
            narrow(regular, tight, node.low, node.high),
            family.units,
            narrow(regular, family.units, node.low, split_high),
            narrow(regular, family.units, split_low, node.high),
            odd,
            structure.origin,
        )

    def at(self, price: float, free: Response, count: tuple[int, int]) -> Response:
        """Return the response at a price, given that of unrestricted units."""
        size = free.bound.size
        sides = [Sides.filled(free)]
        rows = np.arange(size)
        if self.tight.size:
            sides[0].put(self.tight, Sides.empty(self.tight.size))
            sides[0].put(self.tight[self.within[0]], self._part(self.within, price))
        up = Sides.empty(size)
        if self.family.size:
            sides[0].put(self.family, Sides.empty(self.family.size))
            sides[0].put(self.family[self.below[0]], self._part(self.below, price))
            up.put(self.family[self.above[0]], self._part(self.above, price))
        odd = Sides.empty(size)
        if self.odd is not None:
            odd.put(self.odd[0], self._part(self.odd, price, self.odd[2]))
        side, special = choose(
            *(sides[0].bound, up.bound, odd.bound), self.family, count, self.odd is not None
        )
        if side is None:
            nothing = np.full(size, np.inf)
            return Response(price, nothing, free.budget, free.piece, free.loss)
        table = Sides.stack([sides[0], up, odd])
        return Response(
            *(price, table.bound[side, rows], table.budget[side, rows]),
            *(table.piece[side, rows], table.loss[side, rows], special),
        )

    def _part(self, part: Part, price: float, pieces: IntArray | None = None) -> Sides:
        place, demand, origin = part
        if not place.size:
            return Sides.empty(0)
        found = demand.at(price)
        own = origin[found.piece]
        piece = self.origin[own] if pieces is None else own
        return Sides(found.bound, found.budget, piece, found.loss)


def narrow(
    demand: Demand,
    units: IntArray,
    low: FloatArray,
    high: FloatArray,
    allowed: BoolArray | None = None,
) -> Part:
    """Return the demand of those of the units that have pieces between the ends, and their indices.

    Args:
        demand: demand of all units.
        units: the requested units.
        low: the left end of every unit.
        high: the right end.
        allowed: a mask of pieces that may be used.
    """
    place = np.flatnonzero(low[units] <= high[units])
    losses: Losses = demand.losses
    if place.size:
        chosen = units[place]
        pieces, origin = clip_pieces(
            losses, demand.pieces, chosen, low[chosen], high[chosen], allowed
        )
        place = place[np.isin(chosen, pieces.unit)]
    if not place.size:
        return place, demand, place
    return place, Demand(losses, pieces, demand.root_slack, (demand, origin)), origin


def split_unit(node: Node, unit: int, at: float, twins: IntArray | None) -> list[Node]:
    """Return two children: the unit at or below a budget, and at or above it.

    Twins are interchangeable, so their budgets may be assumed to be in descending order: lowering
    one also lowers the later twins, and raising one also raises the earlier ones.
    """
    same = np.array([unit]) if twins is None else np.flatnonzero(twins == twins[unit])
    later, earlier = same[same >= unit], same[same <= unit]
    high, low = node.high.copy(), node.low.copy()
    high[later] = np.minimum(high[later], at)
    low[earlier] = np.maximum(low[earlier], at)
    return [
        Node(lows, highs, node.structured, node.count, node.odd)
        for lows, highs in ((node.low, high), (low, node.high))
        if (lows <= highs).all()
    ]


def split_count(node: Node, count: int) -> list[Node]:
    """Return two children: at most `count` of the family at or above their splits, and more."""
    least, most = node.count
    return [
        Node(node.low, node.high, True, limits, node.odd)
        for limits in ((least, count), (count + 1, most))
    ]


def split_odd(node: Node, at: float) -> list[Node]:
    """Return two children: the odd unit's budget at most this, and at least this."""
    assert node.odd is not None
    left, right = node.odd
    return [Node(node.low, node.high, True, node.count, ends) for ends in ((left, at), (at, right))]
