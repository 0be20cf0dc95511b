"""The price of budget: what every unit does at a price, and the lower bound that proves.

For any price, sum over units of min over budgets of (loss + price * budget), minus price * firm
budget, is at most the least total loss that any allocation reaches. Each minimum is exact: ends of
pieces, and on convex pieces the budget where the gain meets the price. Where a root is stopped early,
the tangent there still bounds the piece from below, and that bound is the one that counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import IntArray
from deniable.portfolio.pieces import Losses, Pieces

_ROOT_STEPS = 60
ROOT_SLACK = 1e-10
"""Of the loss: where a root's tangent bound is this close, it is good enough for the search."""


@dataclass(frozen=True)
class Response:
    """What every unit does at one price; arrays have one entry a unit.

    Attributes:
        price: in regret per nat.
        bound: a lower bound of min (loss + price * budget).
        budget: the smallest minimizer found.
        piece: the piece it lies on.
        loss: the loss there.
    """

    price: float
    bound: FloatArray
    budget: FloatArray
    piece: IntArray
    loss: FloatArray


@dataclass
class Demand:
    """Responses of a set of pieces; remembers roots, so that near prices cost little."""

    losses: Losses
    pieces: Pieces
    root_slack: float = ROOT_SLACK
    _roots: list[tuple[float, FloatArray]] = field(default_factory=list)

    def at(self, price: float) -> Response:
        """The response of every unit to a price, 0 or more."""
        pieces = self.pieces
        at_left = pieces.left_value + price * pieces.left
        at_right = pieces.right_value + price * pieces.right
        ends = np.minimum(at_left, at_right)
        least = np.minimum.reduceat(ends, pieces.first)
        active = np.flatnonzero(self._may_beat(price, at_left, at_right, least))
        value, bound = ends, ends
        budget = np.where(at_left <= at_right, pieces.left, pieces.right)
        loss = np.where(at_left <= at_right, pieces.left_value, pieces.right_value)
        if active.size:
            value, bound = ends.copy(), ends.copy()
            root, root_loss, slack = self._solve(price, active)
            inner = root_loss + price * root
            better = inner < ends[active]
            value[active] = np.minimum(inner, ends[active])
            bound[active] = np.minimum(inner, ends[active]) - slack
            budget[active] = np.where(better, root, budget[active])
            loss[active] = np.where(better, root_loss, loss[active])
        best = _first_least(value, budget, pieces)
        return Response(
            price,
            np.minimum.reduceat(bound, pieces.first),
            budget[best],
            best,
            loss[best],
        )

    def _may_beat(
        self, price: float, at_left: FloatArray, at_right: FloatArray, least: FloatArray
    ) -> FloatArray:
        """Convex pieces with a root whose end tangents dip below the best end of the unit."""
        pieces = self.pieces
        falls, climbs = pieces.left_gain - price, price - pieces.right_gain
        interior = pieces.convex & (falls > 0) & (climbs > 0)
        width = pieces.right - pieces.left
        with np.errstate(divide="ignore", invalid="ignore"):
            # The lines at_left - falls * x and at_right - climbs * (width - x) meet here:
            x = (at_left - at_right + climbs * width) / (falls + climbs)
            dip = at_left - falls * np.clip(x, 0, width)
        target = np.repeat(least, np.diff(np.append(pieces.first, pieces.size)))
        return interior & (dip < target + 1e-9 * np.abs(target))

    def _solve(self, price: float, active: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Roots of gain = price on convex pieces, by a bracketing secant on log gain."""
        pieces = self.pieces
        cell = pieces.cell[active]
        low, high = pieces.left[active], pieces.right[active]
        gain_low, gain_high = pieces.left_gain[active], pieces.right_gain[active]
        for other, roots in self._roots:
            known = roots[active]
            if other > price:
                tighter = known > low  # NaN compares false
                low, gain_low = np.where(tighter, known, low), np.where(tighter, other, gain_low)
            else:
                tighter = known < high
                high, gain_high = (
                    np.where(tighter, known, high),
                    np.where(tighter, other, gain_high),
                )
        scale = np.abs(pieces.left_value[active]) + price * pieces.right[active]
        root, slack = self._bracketing(price, cell, low, high, gain_low, gain_high, scale)
        memory = np.full(pieces.size, np.nan)
        memory[active] = root
        self._roots.append((price, memory))
        return root, self.losses.value(cell, root), slack

    def _bracketing(
        self,
        price: float,
        cell: IntArray,
        low: FloatArray,
        high: FloatArray,
        gain_low: FloatArray,
        gain_high: FloatArray,
        scale: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        root, slack = (low + high) / 2, np.full(cell.size, np.inf)
        todo = np.arange(cell.size)
        low, high = low.copy(), high.copy()
        f_low, f_high = _log_ratio(gain_low, price), _log_ratio(gain_high, price)
        side = np.zeros(cell.size, dtype=np.int8)
        for step in range(_ROOT_STEPS):
            a, b, fa, fb = low[todo], high[todo], f_low[todo], f_high[todo]
            with np.errstate(divide="ignore", invalid="ignore"):
                x = b - fb * (b - a) / (fb - fa)
            poor = ~((x > a) & (x < b)) | (step % 4 == 3)
            x = np.where(poor, (a + b) / 2, x)
            gain = self.losses.gain(cell[todo], x)
            above = gain > price
            # The convex piece lies above its tangent at x, whose least value is at a bracket's end.
            left_over = np.abs(gain - price) * np.where(above, b - x, x - a)
            root[todo], slack[todo] = x, left_over
            f = _log_ratio(gain, price)
            # Illinois: an end that stays twice counts half, so that both ends move.
            halve_high = above & (side[todo] == 1)
            halve_low = ~above & (side[todo] == -1)
            low[todo], high[todo] = np.where(above, x, a), np.where(above, b, x)
            f_low[todo] = np.where(above, f, np.where(halve_low, fa / 2, fa))
            f_high[todo] = np.where(above, np.where(halve_high, fb / 2, fb), f)
            side[todo] = np.where(above, 1, -1)
            done = (left_over <= self.root_slack * scale[todo]) | (b - a <= 4e-16 * b)
            todo = todo[~done]
            if not todo.size:
                break
        return root, slack


def _log_ratio(gain: FloatArray, price: float) -> FloatArray:
    """log(gain / price): nearly straight in the budget, because losses fall like e^-budget."""
    return np.log(np.maximum(gain / price, 1e-3)) if price > 0 else gain


def _first_least(value: FloatArray, budget: FloatArray, pieces: Pieces) -> IntArray:
    """Each unit's piece of least value; of equals the smallest budget, then a convex one."""
    counts = np.diff(np.append(pieces.first, pieces.size))
    least = np.repeat(np.minimum.reduceat(value, pieces.first), counts)
    ties = np.where(value <= least, budget, np.inf)
    smallest = np.repeat(np.minimum.reduceat(ties, pieces.first), counts)
    winner = np.flatnonzero(ties == smallest)
    winner = winner[np.lexsort((~pieces.convex[winner], pieces.unit[winner]))]
    return winner[np.flatnonzero(np.append(True, np.diff(pieces.unit[winner]) != 0))]
