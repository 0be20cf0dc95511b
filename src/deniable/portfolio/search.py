"""Branch and bound over the few units that jump, to close the gap.

At the best price nearly every unit's budget is determined. One or a few jump between two budgets,
and the best allocation has one of them in between, or on either side. Splitting such a unit's range
in two raises the bound on both sides. Every price ever tried is cached with the response of all
units, so a node costs only the response of its few narrowed units. From the first split on, the
structure of best allocations is used (`nodes`), and among many similar units we first decide how
many jump, then which.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import IntArray
from deniable.portfolio.dual import ROUNDING, Demand, Response, first_least
from deniable.portfolio.pieces import Losses, Pieces
from deniable.portfolio.search_nodes import (
    Family,
    Node,
    Structure,
    split_count,
    split_odd,
    split_unit,
)

_PRICE_STEPS = 60
# Nodes times pieces that are searched regardless of the deadline: small problems are fast.
_QUICK = 1000
_FAMILY_WIDTH = 16  # units that jump at prices within this factor of the best are counted together
_WIDE = 0.3  # nats: up to this width, branch on which unit is odd, not where it is
_MOVED = 1e-6  # nats: an odd unit that moves less at the best price does not keep a gap open


@dataclass
class Best:
    """The best allocation found, with one entry per unit.

    The loss is relative to that at the smallest budgets: minus the saving.
    """

    loss: float = np.inf
    budget: FloatArray = field(default_factory=lambda: np.empty(0))
    piece: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class SearchResult:
    """The result of the search.

    Attributes:
        best: the best allocation found.
        lower_bound: no allocation's loss, relative to the smallest budgets, is below this.
        price: the price that proves the bound at the root.
        nodes: number of nodes solved.
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
    """A node with its bound, and the unit and budget that keep its gap open.

    `around` contains the responses to the prices above and below the best one.
    """

    node: Node
    bound: float
    price: float
    unit: tuple[int, float] | None
    budget: FloatArray
    around: tuple[Response, Response] | None = None


class Search:
    """Branch and bound for one firm budget; see the module docstring."""

    def __init__(
        self,
        losses: Losses,
        pieces: Pieces,
        available: float,
        first_price: float,
        twins: IntArray | None = None,
    ) -> None:
        """Prepare the search.

        Args:
            losses: evaluates the pieces.
            pieces: pieces of all units.
            available: the firm budget in nats.
            first_price: a guess of the best price; any works, a good one is faster.
            twins: a label for each unit; units with the same label are interchangeable.
        """
        self.losses, self.pieces, self.available = losses, pieces, available
        self.first_price = first_price
        self.demand = Demand(losses, pieces)
        self._rounding = ROUNDING * float(losses.base.sum())
        self.responses: dict[float, Response] = {}
        self.prices: set[float] = set()
        self.twins = twins
        self.structure: Structure | None = None
        self.best = self._at_least_budgets()

    def run(self, gap: float, deadline: float) -> SearchResult:
        """Search until the gap is this share of the saving, or the (monotonic) deadline passes."""
        first = self.pieces.first
        root = Node(self.pieces.left[first], np.maximum.reduceat(self.pieces.right, first))
        # The best price times the budget is at most the saving, because the marginal value falls.
        spare = self.available - float(root.low.sum())
        self.demand.root_slack = gap / 100 * max(spare, 0.0) / first.size
        solved = self._solve(root, gap)
        price = solved.price
        if not self._closed(solved.bound, gap):
            allowed = self.best.loss - self._point(root, price).value
            self.structure = Structure.of(self.demand, self.responses[price], allowed)
            if price > 0:
                self.structure.find_family(_FAMILY_WIDTH * price, price / _FAMILY_WIDTH)
        heap = [(solved.bound, 0, solved)]
        nodes = 1
        while heap:
            lower, _, solved = heapq.heappop(heap)
            lower = min(lower, self.best.loss)
            if solved.unit is None or self._closed(lower, gap):
                break
            if nodes * self.pieces.size > _QUICK and time.monotonic() > deadline:
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

    def _at_least_budgets(self) -> Best:
        first = self.pieces.first
        budget = self.pieces.left[first]
        at_left = np.where(
            self.pieces.left <= budget[self.pieces.unit], self.pieces.left_value, np.inf
        )
        piece = first_least(at_left, self.pieces.left, self.pieces)
        return Best(float(at_left[piece].sum()), budget, piece)

    def _closed(self, lower: float, gap: float) -> bool:
        """Whether what may be missed is small compared with what can be saved."""
        return self.best.loss - lower <= gap * max(-lower, 0.0)

    def _split(self, solved: _Solved) -> list[Node]:
        """Return children that decide what is open: structure, count, the odd unit, or any unit."""
        assert solved.unit is not None
        assert solved.around is not None
        assert self.structure is not None
        node, (above, below) = solved.node, solved.around
        family = self.structure.family
        if not node.structured:
            ends = float(node.low.min()), float(node.high.max())
            count = (0, family.units.size)
            return [Node(node.low, node.high, True, count, odd) for odd in (None, ends)]
        counts = [_count_above(response, family) for response in solved.around]
        fewest, most = max(min(counts), node.count[0]), min(max(counts), node.count[1])
        if fewest < most:
            # Of many that jump at one price, the budget is enough for a part.
            spent = [float(response.budget.sum()) for response in solved.around]
            part = (self.available - spent[0]) / max(spent[1] - spent[0], 1e-300)
            reached = int(counts[0] + part * (counts[1] - counts[0]))
            return split_count(node, min(max(reached, fewest), most - 1))
        if node.odd is not None and above.odd is not None and below.odd is not None:
            left, right = sorted([float(r.budget[r.odd]) for r in (above, below)])
            at = float(solved.budget[below.odd])
            at = at if left < at < right else (left + right) / 2
            same = above.odd == below.odd or node.odd[1] - node.odd[0] > _WIDE
            if same and right - left > _MOVED and node.odd[0] < at < node.odd[1]:
                return split_odd(node, at)
        return split_unit(node, *solved.unit, self.twins)

    def _solve(self, node: Node, gap: float) -> _Solved:
        """Return the node's lower bound, its best price, and where to split it next."""
        if node.low.sum() > self.available + 1e-13:
            return _Solved(node, np.inf, 0.0, None, node.low)
        below, above, value = self._best_price(node, gap)
        price = above.price if above.value >= below.value else below.price
        if value >= self.best.loss or above.excess > 0:
            return _Solved(node, value, price, None, node.low)
        unit, budget = self._candidates(node, below, above)
        node.forget()
        return _Solved(node, value, price, unit, budget, (above.response, below.response))

    def _point(self, node: Node, price: float) -> _Point:
        if node.structured:
            assert self.structure is not None
            response = node.respond(self.structure, price)
            self.prices.add(price)
        else:
            if price not in self.responses:
                self.responses[price] = self.demand.at(price)
                self.prices.add(price)
            response = self.responses[price]
        total = float(response.bound.sum())
        value = total - price * self.available - self._rounding
        excess = float(response.budget.sum()) - self.available
        if abs(excess) <= 1e-13 * (1 + self.available):  # rounding error of the sum
            excess = 0.0
        return _Point(price, value, excess, response)

    def _best_price(self, node: Node, gap: float) -> tuple[_Point, _Point, float]:
        """Return two prices around the best one (too much demand, and not), and the best bound."""
        below, above = self._bracket(node)
        best = max(below.value, above.value)
        for step in range(_PRICE_STEPS):
            if below.excess <= 0 or above.excess == 0 or self._closed(best, gap / 10):
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
            else:  # secant on demand, which is nearly linear in log price
                price = below.price * (above.price / below.price) ** share
            if not below.price < price < above.price:
                break
            point = self._point(node, float(price))
            best = max(best, point.value)
            below, above = (point, above) if point.excess > 0 else (below, point)
        return below, above, best

    def _bracket(self, node: Node) -> tuple[_Point, _Point]:
        """Return two prices around the node's best one, if possible among those tried before."""
        prices = sorted(self.prices) or [self.first_price]
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
        while above is None:  # at a finite price, demand falls to the low ends, which fit
            price = price * step or 1.0
            point = self._point(node, price)
            if point.excess <= 0 or point.value >= self.best.loss or price > 1e100:
                above = point  # or the node has nothing better, or is empty
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
        """Try feasible allocations between two responses; return the unit that keeps the gap open."""
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
            # A unit's loss above its own bound is what keeps the gap open.
            excess = loss + above.price * budget - above.response.bound
            excess[np.minimum(budget - node.low, node.high - budget) < 1e-9] = 0
            unit = int(excess.argmax())
            if excess[unit] > most:
                open_unit, most, shown = (unit, float(budget[unit])), float(excess[unit]), budget
        return open_unit, shown

    def _piece_at(self, unit: int, budget: float) -> int:
        """Return the unit's piece with the smallest loss at a budget."""
        stop = np.append(self.pieces.first, self.pieces.size)[unit + 1]
        index = np.arange(self.pieces.first[unit], stop)
        holds = index[(self.pieces.left[index] <= budget) & (budget <= self.pieces.right[index])]
        values = self.losses.value(self.pieces.cell[holds], np.full(holds.size, budget))
        return int(holds[values.argmin()])


def _count_above(response: Response, family: Family) -> int:
    up = response.budget[family.units] >= family.split
    return int((up & (family.units != response.odd)).sum())


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
