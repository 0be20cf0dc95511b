"""The search that closes the gap: branch and bound over the few units that straddle a jump.

At the best price nearly every unit knows its budget; one or few jump between two budgets, and the
best allocation holds one of them in between, or on either side. Splitting such a unit's range in two
raises the bound on both sides. Every price ever tried is remembered with the response of all units,
so that a node costs the response of its few narrowed units only.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import IntArray
from deniable.portfolio.dual import Demand, Response
from deniable.portfolio.pieces import Losses, Pieces, clip_pieces

_ROUNDING = 1e-12  # of the sum: more than the rounding errors of the bounds and their sum
_PRICE_STEPS = 60


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


@dataclass
class _Node:
    low: FloatArray
    high: FloatArray
    units: IntArray  # whose ends differ from the root's
    demand: Demand | None = None
    origin: IntArray | None = None
    seen: dict[float, Response] = field(default_factory=dict)


@dataclass(frozen=True)
class _Point:
    """The dual function of a node at one price."""

    price: float
    value: float
    excess: float
    response: Response


class Search:
    """Branch and bound for one firm budget; see the module."""

    def __init__(
        self,
        losses: Losses,
        pieces: Pieces,
        available: float,
        first_price: float,
        twins: IntArray | None = None,
    ) -> None:
        """Prepare.

        Args:
            losses: evaluates the pieces.
            pieces: of all units.
            available: the firm budget in nats.
            first_price: a guess of the best price; any is right, a good one is fast.
            twins: a label for each unit; units with the same label are interchangeable.
        """
        self.losses, self.pieces, self.available = losses, pieces, available
        self.first_price = first_price
        self.demand = Demand(losses, pieces)
        self.responses: dict[float, Response] = {}
        self.low = pieces.left[pieces.first]
        self.high = np.maximum.reduceat(pieces.right, pieces.first)
        self.twins = twins
        self.best = Best()

    def run(self, gap: float, deadline: float) -> SearchResult:
        """Search until the relative gap is reached or time.monotonic() passes the deadline."""
        root = _Node(self.low, self.high, np.empty(0, dtype=np.int64))
        bound, branch, price = self._solve(root, gap)
        heap = [(bound, 0, root, branch)]
        count = nodes = 1
        lower = bound
        while heap:
            lower, _, node, branch = heapq.heappop(heap)
            lower = min(lower, self.best.loss)
            if branch is None or self.best.loss - lower <= gap * self.best.loss:
                break
            if nodes > 1 and time.monotonic() > deadline:
                break
            for child in self._split(node, *branch):
                child_bound, child_branch, _ = self._solve(child, gap)
                nodes += 1
                child_bound = max(child_bound, lower)
                if child_bound < self.best.loss:
                    heapq.heappush(heap, (child_bound, count, child, child_branch))
                    count += 1
        else:
            lower = self.best.loss
        return SearchResult(self.best, lower, price, nodes)

    def _split(self, node: _Node, unit: int, at: float) -> list[_Node]:
        """Two children: the unit at or below the budget, and at or above it.

        Twins are interchangeable, so that their budgets may be taken as falling in order: what is
        below takes the later twins along, what is above the earlier ones.
        """
        family = np.array([unit])
        if self.twins is not None:
            family = np.flatnonzero(self.twins == self.twins[unit])
        later, earlier = family[family >= unit], family[family <= unit]
        high, low = node.high.copy(), node.low.copy()
        high[later] = np.minimum(high[later], at)
        low[earlier] = np.maximum(low[earlier], at)
        children = []
        for new_low, new_high in ((node.low, high), (low, node.high)):
            if (new_low > new_high).any() or new_low.sum() > self.available + 1e-12:
                continue
            units = np.flatnonzero((new_low > self.low) | (new_high < self.high))
            children.append(_Node(new_low, new_high, units))
        return children

    def _solve(self, node: _Node, gap: float) -> tuple[float, tuple[int, float] | None, float]:
        """The node's lower bound, where to split it next, and its best price."""
        below, above, value = self._best_price(node, gap)
        branch = self._candidates(node, below, above)
        price = above.price if above.value >= below.value else below.price
        return value, branch, price

    def _point(self, node: _Node, price: float) -> _Point:
        if price not in self.responses:
            self.responses[price] = self.demand.at(price)
        response = self.responses[price]
        if node.units.size:
            response = self._narrowed(node, price, response)
        total = float(response.bound.sum())
        value = total - price * self.available - _ROUNDING * (abs(total) + price * self.available)
        return _Point(price, value, float(response.budget.sum()) - self.available, response)

    def _narrowed(self, node: _Node, price: float, response: Response) -> Response:
        if price in node.seen:
            return node.seen[price]
        if node.demand is None:
            pieces, node.origin = clip_pieces(
                self.losses, self.pieces, node.units, node.low[node.units], node.high[node.units]
            )
            node.demand = Demand(self.losses, pieces)
        own = node.demand.at(price)
        assert node.origin is not None
        arrays = [
            a.copy() for a in (response.bound, response.budget, response.piece, response.loss)
        ]
        for whole, part in zip(
            arrays, (own.bound, own.budget, node.origin[own.piece], own.loss), strict=True
        ):
            whole[node.units] = part
        node.seen[price] = Response(price, *arrays)  # type: ignore[arg-type]
        return node.seen[price]

    def _best_price(self, node: _Node, gap: float) -> tuple[_Point, _Point, float]:
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

    def _bracket(self, node: _Node) -> tuple[_Point, _Point]:
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
        while above is None:
            price = price * step or 1.0
            point = self._point(node, price)
            above, below = (point, below) if point.excess <= 0 else (None, point)
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

    def _candidates(self, node: _Node, below: _Point, above: _Point) -> tuple[int, float] | None:
        """Feasible allocations between two responses; returns the unit to split and where."""
        branch = None
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
            width = np.minimum(budget - node.low, node.high - budget)
            excess[width < 1e-9] = 0
            unit = int(excess.argmax())
            if excess[unit] > 0 and (branch is None or excess[unit] > branch[2]):
                branch = (unit, float(budget[unit]), float(excess[unit]))
        return None if branch is None else branch[:2]

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
