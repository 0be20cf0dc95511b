"""The dual problem: the response of every unit to a price of budget, and the lower bound it proves.

For any price, the sum over units of min over budgets of (loss + price * budget), minus price * firm
budget, is at most the smallest total loss of any allocation. Each minimum is exact: ends of pieces,
and on convex pieces the budget where the gain equals the price. If a root search is stopped early,
the tangent there still bounds the piece from below, and that bound is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import BoolArray, IntArray
from deniable.portfolio.pieces import Losses, Pieces

_ROOT_STEPS = 60
ROOT_SLACK = 1e-9
"""Nats, times the price: tolerance for the tangent bound at a root."""
ROUNDING = 1e-15
"""Relative to the loss at the smallest budgets: formulas are accurate to a few units in the last
place.
"""


@dataclass(frozen=True)
class Response:
    """The response of every unit to one price, with one entry per unit.

    Attributes:
        price: in regret per nat.
        bound: a lower bound of min (loss + price * budget).
        budget: the smallest minimizer found.
        piece: the piece it lies on.
        loss: the loss there.
        odd: the one unit inside a concave piece, if its position was prescribed.
    """

    price: float
    bound: FloatArray
    budget: FloatArray
    piece: IntArray
    loss: FloatArray
    odd: int | None = None


@dataclass
class Demand:
    """Responses of a set of pieces. Caches roots, so that similar prices are cheap.

    Attributes:
        losses: evaluates the pieces.
        pieces: the pieces.
        root_slack: tolerance of a unit's bound, in nats times the price.
        parent: the demand whose pieces these are narrowed from, and the index of each piece in it.
    """

    losses: Losses
    pieces: Pieces
    root_slack: float = ROOT_SLACK
    parent: tuple[Demand, IntArray] | None = None
    _prices: FloatArray = field(default_factory=lambda: np.empty(0))
    _roots: FloatArray | None = None

    def at(self, price: float) -> Response:
        """Return the response of every unit to a price, 0 or more."""
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
        best = first_least(value, budget, pieces)
        return Response(
            price,
            np.minimum.reduceat(bound, pieces.first),
            budget[best],
            best,
            loss[best],
        )

    def least(self, price: float, pieces: Pieces) -> FloatArray:
        """Return a lower bound of loss + price * budget on each piece, from ends or end tangents."""
        at_left = pieces.left_value + price * pieces.left
        at_right = pieces.right_value + price * pieces.right
        interior, dip = _dip(pieces, price, at_left, at_right)
        return np.where(interior, dip, np.minimum(at_left, at_right))

    def _may_beat(
        self, price: float, at_left: FloatArray, at_right: FloatArray, least: FloatArray
    ) -> BoolArray:
        """Return convex pieces with a root whose end tangents dip below the unit's best end."""
        pieces = self.pieces
        interior, dip = _dip(pieces, price, at_left, at_right)
        target = np.repeat(least, pieces.counts)
        return interior & (dip < target + ROUNDING * self.losses.base[pieces.unit])

    def _solve(self, price: float, active: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Find roots of gain = price on convex pieces, by bracketed secant steps on log gain."""
        pieces = self.pieces
        low, high, gain_low, gain_high = self._between_samples(price, active)
        prices, known = self._known(active)
        if prices.size:
            columns = np.arange(active.size)
            # Gains fall with the budget: the largest root of a higher price, then the smallest of a
            # lower one. NaN (no known root) compares false.
            usable = (prices >= price)[:, None] & (known <= high)
            nearest = np.where(usable, known, -np.inf).argmax(axis=0)
            tighter = usable[nearest, columns] & (known[nearest, columns] > low)
            low = np.where(tighter, known[nearest, columns], low)
            gain_low = np.where(tighter, prices[nearest], gain_low)
            usable = (prices <= price)[:, None] & (known >= low)
            nearest = np.where(usable, known, np.inf).argmin(axis=0)
            tighter = usable[nearest, columns] & (known[nearest, columns] < high)
            high = np.where(tighter, known[nearest, columns], high)
            gain_high = np.where(tighter, prices[nearest], gain_high)
        root, slack = self._bracketing(price, active, low, high, gain_low, gain_high)
        memory = np.full((1, pieces.size), np.nan)
        memory[0, active] = root
        self._prices = np.append(self._prices, price)
        self._roots = memory if self._roots is None else np.concatenate([self._roots, memory])
        return root, self.losses.value(pieces.cell[active], root), slack

    def _between_samples(
        self, price: float, active: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the neighbouring samples of each piece between which its gain crosses the price."""
        pieces, rows = self.pieces, np.arange(active.size)
        budget = self.losses.budget[pieces.cell[active]]
        gain = self.losses.sampled_gain[pieces.cell[active]]
        left, right = pieces.left[active], pieces.right[active]
        inside = (budget > left[:, None]) & (budget < right[:, None])
        above = np.where(inside & (gain > price), budget, -np.inf).argmax(axis=1)
        below = np.where(inside & (gain <= price), budget, np.inf).argmin(axis=1)
        has_above = (inside & (gain > price)).any(axis=1)
        has_below = (inside & (gain <= price)).any(axis=1)
        return (
            np.where(has_above, budget[rows, above], left),
            np.where(has_below, budget[rows, below], right),
            np.where(has_above, gain[rows, above], pieces.left_gain[active]),
            np.where(has_below, gain[rows, below], pieces.right_gain[active]),
        )

    def _known(self, active: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return earlier prices, and the roots found for them here or on the pieces that these are of.

        Roots have shape (prices, active), NaN where a price has none.
        """
        own = np.empty((0, active.size)) if self._roots is None else self._roots[:, active]
        if self.parent is None:
            return self._prices, own
        demand, origin = self.parent
        prices, roots = demand._known(origin[active])
        return np.concatenate([self._prices, prices]), np.concatenate([own, roots])

    def _bracketing(
        self,
        price: float,
        active: IntArray,
        low: FloatArray,
        high: FloatArray,
        gain_low: FloatArray,
        gain_high: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        root, slack = (low + high) / 2, np.full(low.size, np.inf)
        todo = np.arange(low.size)
        cell = self.pieces.cell[active]
        left, right = self.pieces.left[active], self.pieces.right[active]
        small = self.root_slack * price + ROUNDING * self.losses.base[self.pieces.unit[active]]
        low, high = low.copy(), high.copy()
        straight = gain_high < 0.2 * price  # near its minimum a loss is a parabola
        f_low, f_high = _height(gain_low, price, straight), _height(gain_high, price, straight)
        # Dekker's method: the secant through the last two points, or bisection if it leaves the
        # bracket. The first secant uses the bracket's ends.
        x0, f0, x1, f1 = high.copy(), f_high, low.copy(), f_low
        for step in range(_ROOT_STEPS):
            a, b = low[todo], high[todo]
            with np.errstate(divide="ignore", invalid="ignore"):
                x = x1 - f1 * (x1 - x0) / (f1 - f0)
            poor = ~((x > a) & (x < b)) | ((step >= 8) & (step % 2 == 0))
            x = np.where(poor, (a + b) / 2, x)
            gain = self.losses.gain(cell[todo], x)
            above = gain > price
            # The convex piece lies above its tangent at x, which is lowest at one of its ends.
            left_over = np.abs(gain - price) * np.where(above, right[todo] - x, x - left[todo])
            root[todo], slack[todo] = x, left_over
            low[todo], high[todo] = np.where(above, x, a), np.where(above, b, x)
            done = (left_over <= small[todo]) | (b - a <= 4e-16 * b)
            f = _height(gain, price, straight[todo])
            x0, f0, x1, f1 = (values[~done] for values in (x1, f1, x, f))
            todo = todo[~done]
            if not todo.size:
                break
        return root, slack


def _dip(
    pieces: Pieces, price: float, at_left: FloatArray, at_right: FloatArray
) -> tuple[BoolArray, FloatArray]:
    """Return convex pieces with an interior minimum, and a bound where their end tangents meet."""
    falls, climbs = pieces.left_gain - price, price - pieces.right_gain
    interior = pieces.convex & (falls > 0) & (climbs > 0)
    width = pieces.right - pieces.left
    with np.errstate(divide="ignore", invalid="ignore"):
        # The lines at_left - falls * x and at_right - climbs * (width - x) meet here:
        x = (at_left - at_right + climbs * width) / (falls + climbs)
        return interior, at_left - falls * np.clip(x, 0, width)


def _height(gain: FloatArray, price: float, straight: BoolArray) -> FloatArray:
    """Return a function of the gain, 0 at the price, that is nearly linear in the budget.

    Losses fall like e^-budget, so it is log(gain / price), except where the gain is near 0.
    """
    if price <= 0:
        return gain - price
    ratio = gain / price
    return np.where(straight, ratio - 1, np.log(np.maximum(ratio, 1e-3)))


def first_least(value: FloatArray, budget: FloatArray, pieces: Pieces) -> IntArray:
    """Return each unit's piece of least value; among equals the smallest budget, then a convex one."""
    least = np.repeat(np.minimum.reduceat(value, pieces.first), pieces.counts)
    ties = np.where(value <= least, budget, np.inf)
    smallest = np.repeat(np.minimum.reduceat(ties, pieces.first), pieces.counts)
    winner = np.flatnonzero(ties == smallest)
    if winner.size == pieces.first.size:
        return winner
    winner = winner[np.lexsort((~pieces.convex[winner], pieces.unit[winner]))]
    return winner[np.flatnonzero(np.append(True, np.diff(pieces.unit[winner]) != 0))]
