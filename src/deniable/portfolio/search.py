"""The search that closes the gap: branch and bound over the few units that straddle a jump.

At the best price nearly every unit knows its budget; one or few jump between two budgets, and the
best allocation holds one of them in between, or on either side. Splitting such a unit's range in two
raises the bound on both sides. Every price ever tried is remembered with the response of all units,
so that a node costs the response of its few narrowed units only. Of many similar units it is decided
how many jump before it is decided which.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.counts import Family, find_families
from deniable.portfolio.curves import IntArray
from deniable.portfolio.dual import Demand, Response
from deniable.portfolio.nodes import Node, split_count, split_unit
from deniable.portfolio.pieces import Losses, Pieces

_ROUNDING = 1e-12  # of the sum: more than the rounding errors of the bounds and their sum
_PRICE_STEPS = 60
_FAMILY_WIDTH = 1.25  # units that jump within a quarter of the best price may be counted together


@dataclass
class Best:
    """The best allocation found: one entry a unit, and its total loss."""

    loss: float = np.inf
    budget: FloatArray = field(default_factory=lambda: np.empty(0))
    piece: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class SearchResult:
    """What the search proved.

    Attributes:
        best: the best allocation found.
        lower_bound: no allocation loses less.
        price: the price that proves the bound at the root.
        nodes: how many nodes were solved.
    """

    best: Best
    lower_bound: float
    price: float
    nodes: int


@dataclass(frozen=True)
class _Point:
    """The dual function of a node at one price."""

    price: float
    value: float
    excess: float
    response: Response


@dataclass(frozen=True)
class _Solved:
    """A node with its bound, and the unit that keeps its gap open: which, and at which budget."""

    node: Node
    bound: float
    price: float
    unit: tuple[int, float] | None
    budget: FloatArray


class Search:
    """Branch and bound for one firm budget; see the module."""

    def __init__(
        self,
        losses: Losses,
        pieces: Pieces,
        available: float,
        first_price: float,
        kinds: IntArray,
        twins: IntArray | None = None,
    ) -> None:
        """Prepare.

        Args:
            losses: evaluates the pieces.
            pieces: of all units.
            available: the firm budget in nats.
            first_price: a guess of the best price; any is right, a good one is fast.
            kinds: a label for each unit; units with the same label are similar.
            twins: a label for each unit; units with the same label are interchangeable.
        """
        self.losses, self.pieces, self.available = losses, pieces, available
        self.first_price = first_price
        self.demand = Demand(losses, pieces)
        self.responses: dict[float, Response] = {}
        self.kinds, self.twins = kinds, twins
        self.families: list[Family] = []
        self.best = Best()

    def run(self, gap: float, deadline: float) -> SearchResult:
        """Search until the relative gap is reached or time.monotonic() passes the deadline."""
        first = self.pieces.first
        root = Node(self.pieces.left[first], np.maximum.reduceat(self.pieces.right, first))
        solved = self._solve(root, gap)
        price = solved.price
        if self.best.loss - solved.bound > gap * self.best.loss and price > 0:
            self.families = find_families(
                self.kinds,
                self._point(root, _FAMILY_WIDTH * price).response,
                self._point(root, price / _FAMILY_WIDTH).response,
            )
        heap = [(solved.bound, 0, solved)]
        nodes = 1
        while heap:
            lower, _, solved = heapq.heappop(heap)
            lower = min(lower, self.best.loss)
            if solved.unit is None or self.best.loss - lower <= gap * self.best.loss:
                break
            if nodes > 1 and time.monotonic() > deadline:
                break
            for child in self._split(solved):
                nodes += 1
                found = self._solve(child, gap)
                bound = max(found.bound, lower)
                if bound < self.best.loss:
                    heapq.heappush(heap, (bound, nodes, found))
        else:
            lower = self.best.loss
        return SearchResult(self.best, lower, price, nodes)

    def _split(self, solved: _Solved) -> list[Node]:
        """Count a family if its number is what is open; else split the unit's range."""
        assert solved.unit is not None
        unit, at = solved.unit
        for number, family in enumerate(self.families):
            if unit not in family.units:
                continue
            up = solved.budget[family.units] >= family.split
            count = int(up.sum()) - int(
                solved.budget[unit] >= family.split[family.units == unit][0]
            )
            least, most = solved.node.counts.get(number, (0, family.units.size))
            if least <= count < most:
                return split_count(solved.node, number, count, family.units.size)
        return split_unit(solved.node, unit, at, self.twins)

    def _solve(self, node: Node, gap: float) -> _Solved:
        """The node's lower bound, its best price, and where to split it next."""
        if node.low.sum() > self.available + 1e-13:
            return _Solved(node, np.inf, 0.0, None, node.low)
        below, above, value = self._best_price(node, gap)
        price = above.price if above.value >= below.value else below.price
        if value >= self.best.loss or above.excess > 0:
            return _Solved(node, value, price, None, node.low)
        unit, budget = self._candidates(node, below, above)
        return _Solved(node, value, price, unit, budget)

    def _point(self, node: Node, price: float) -> _Point:
        if price not in self.responses:
            self.responses[price] = self.demand.at(price)
        response = node.respond(self.demand, self.families, self.responses[price])
        total = float(response.bound.sum())
        value = total - price * self.available - _ROUNDING * (abs(total) + price * self.available)
        excess = float(response.budget.sum()) - self.available
        if abs(excess) <= 1e-13 * (1 + self.available):  # the sum's own rounding
            excess = 0.0
        return _Point(price, value, excess, response)

    def _best_price(self, node: Node, gap: float) -> tuple[_Point, _Point, float]:
        """Two prices around the best one (too much demand, and not), and the best bound."""
        below, above = self._bracket(node)
        best = max(below.value, above.value)
        for step in range(_PRICE_STEPS):
            if below.excess <= 0 or above.excess == 0 or best >= self.best.loss:
                break
            share = below.excess / (below.excess - above.excess)
            # Tangents of the concave dual function at both prices meet here, above its maximum.
            meet = (
                above.value - below.value + below.excess * below.price - above.excess * above.price
            ) / (below.excess - above.excess)
            ceiling = below.value + below.excess * (meet - below.price)
            if ceiling - best <= gap / 4 * abs(best):
                break
            if above.price > 8 * below.price:
                price = np.sqrt(max(below.price, 1e-4 * above.price) * above.price)
            elif step % 2:
                price = meet
            else:  # secant on demand, nearly straight in log price
                price = below.price * (above.price / below.price) ** share
            if not below.price < price < above.price:
                break
            point = self._point(node, float(price))
            best = max(best, point.value)
            below, above = (point, above) if point.excess > 0 else (below, point)
        return below, above, best

    def _bracket(self, node: Node) -> tuple[_Point, _Point]:
        """Two prices around the node's best one, among those tried before if possible."""
        prices = sorted(self.responses) or [self.first_price]
        left, right = -1, len(prices)
        below = above = None
        while right - left > 1:
            middle = (left + right) // 2
            point = self._point(node, prices[middle])
            if point.excess > 0:
                left, below = middle, point
            else:
                right, above = middle, point
        step, price = 1.01, prices[-1]
        while above is None:  # demand falls to the low ends, which fit, at a finite price
            price = price * step or 1.0
            point = self._point(node, price)
            if point.excess <= 0 or point.value >= self.best.loss or price > 1e100:
                above = point  # or the node holds nothing better, or nothing at all
            else:
                below = point
            step = step**3 if step < 16 else step
        step, price = 1.01, prices[0]
        while below is None:
            price = price / step if step < 16 else 0.0
            point = self._point(node, price)
            if point.excess > 0 or price == 0:
                below = point
            else:
                above = point
            step = step**3
        return below, (above if below.excess > 0 else below)

    def _candidates(
        self, node: Node, below: _Point, above: _Point
    ) -> tuple[tuple[int, float] | None, FloatArray]:
        """Try feasible allocations between two responses; tell the unit that keeps the gap open."""
        open_unit, most, shown = None, 0.0, above.response.budget
        for jumps_first in (False, True):
            budget, piece, partial = _between(
                above.response, below.response, self.pieces, self.available, jumps_first
            )
            loss = above.response.loss.copy()
            moved = np.flatnonzero(budget != above.response.budget)
            if partial is not None:
                piece[partial] = self._piece_at(partial, budget[partial])
            loss[moved] = self.losses.value(self.pieces.cell[piece[moved]], budget[moved])
            total = float(loss.sum())
            if total < self.best.loss:
                self.best = Best(total, budget, piece)
            # What each unit loses above its own bound is what keeps the gap open.
            excess = loss + above.price * budget - above.response.bound
            excess[np.minimum(budget - node.low, node.high - budget) < 1e-9] = 0
            unit = int(excess.argmax())
            if excess[unit] > most:
                open_unit, most, shown = (unit, float(budget[unit])), float(excess[unit]), budget
        return open_unit, shown

    def _piece_at(self, unit: int, budget: float) -> int:
        """The unit's piece with the least loss at a budget."""
        stop = np.append(self.pieces.first, self.pieces.size)[unit + 1]
        index = np.arange(self.pieces.first[unit], stop)
        holds = index[(self.pieces.left[index] <= budget) & (budget <= self.pieces.right[index])]
        values = self.losses.value(self.pieces.cell[holds], np.full(holds.size, budget))
        return int(holds[values.argmin()])


def _between(
    above: Response, below: Response, pieces: Pieces, available: float, jumps_first: bool
) -> tuple[FloatArray, IntArray, int | None]:
    """Spend what the higher price leaves: smooth units move along, jumping ones one by one."""
    budget, piece = above.budget.copy(), above.piece.copy()
    rise = below.budget - above.budget
    smooth = (above.piece == below.piece) & pieces.convex[above.piece]
    left = available - float(budget.sum())
    partial = None

    def move_smooth(left: float) -> float:
        total = float(rise[smooth].sum())
        if total <= 0 or left <= 0:
            return left
        budget[smooth] += min(1.0, left / total) * rise[smooth]
        return left - min(left, total)

    if not jumps_first:
        left = move_smooth(left)
    jumps = np.flatnonzero(~smooth & (rise > 0))
    for unit in jumps:
        if rise[unit] <= left:
            budget[unit], piece[unit] = below.budget[unit], below.piece[unit]
            left -= rise[unit]
        elif not jumps_first and left > 0:
            budget[unit] += left
            left, partial = 0.0, int(unit)
    if jumps_first:
        move_smooth(left)
    return budget, piece, partial
