"""Solves the firm's problem on a table of losses, with a lower bound of every division.

1. The table (`units.Cells`) is replaced by its lower convex envelope. Its stretches, sorted by what
   a nat saves there, are filled until the budget is spent. One unit at most ends inside a stretch
   that is not its own loss, so the division is nearly optimal. What a nat saves at the end is the
   price of budget.
2. For any price, the sum over units of min (loss + price * budget), minus price * firm budget, is at
   most the total of any division (Lagrange). The minima hold between the budgets of the table too,
   for all budgets in whole nano-nats.
   Cells that keep the bound low, and those around the division, are cut finer.
3. If the gap is still too large, a dynamic programme over cells (min-plus convolution) finds which
   cells to choose. Cells that the bound of step 2 rules out are left aside. Each cell costs no more
   than any budget in it, so the programme's value is a lower bound as well. The chosen cells are
   filled as in step 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import IntArray
from deniable.portfolio.units import Cells, Units

ROUNDING = 1e-15
"""Relative to the loss at the least budgets: formulas are accurate to a few units in the last place."""
_PARTS = 8  # a cell is cut into as many
_ROUNDS = 7
_FINEST = 1e-6  # nats: narrower cells are not cut
_WIDTHS = (0.04, 0.01, 0.0025, 0.0006, 0.00015)  # nats: widest cells of the rounds of the programme
_FINE_ODD = 1e-4  # nats: as narrow becomes the cell of a unit inside a concave stretch
_INSIDE = 1e-12  # nats
_CONVEX = 1e-7  # a smaller gap is left by cells, not by the shape of losses
_MUCH_LEFT = 0.05  # nats
_CHUNK = 200_000  # sums that are compared at once
_STEPS = 4e8  # additions that a round of the programme may take


@dataclass(frozen=True)
class Division:
    """A division of the budget over the units.

    Attributes:
        budget: of every unit, in nats.
        loss: total loss, relative to the least budgets.
        price: what one more nat would save.
        lower_bound: no division has a smaller total loss, relative to the least budgets.
    """

    budget: FloatArray
    loss: float
    price: float
    lower_bound: float

    def gap(self) -> float:
        """Return what may be missed, as a share of what can be saved at most."""
        return (self.loss - self.lower_bound) / max(-self.lower_bound, 1e-300)


def divide(units: Units, available: float, target: float) -> Division:
    """Return the best division found.

    Args:
        units: the units.
        available: the firm budget in nats, at least the sum of the least budgets.
        target: share of the possible saving that may be missed; a smaller gap is not looked for.
    """
    spare = max(available - float(units.low.sum()), 0.0)
    # No unit can have more than all that is left. Savings beyond would only weaken the bound.
    cells = units.clipped(units.table, np.minimum(units.high, units.low + spare))
    if not cells.size:
        return Division(units.low.copy(), 0.0, 0.0, 0.0)
    cells, best = _fill_finer(units, cells, units.low, spare, target)
    if best.gap() <= _CONVEX:  # no unit is inside a stretch that is not its own loss
        return best
    bound_price = best.price
    best = _better(best, _around(units, cells, best.budget, available, target))
    if best.gap() > target:
        for near in _without_odd(cells, best.budget):
            best = _better(best, _around(units, cells, near, available, target))
    for width in _WIDTHS:
        if best.gap() <= target:
            break
        open_cells = _candidates(units, cells, bound_price, best, available, width)
        if open_cells is None:
            break
        price = best.price
        for _ in range(2):
            near, lower, price = _programme(open_cells, units, available, best, width, price)
            best = replace(best, lower_bound=max(best.lower_bound, lower))
            best = _better(best, _around(units, cells, near, available, target))
    return best


def _better(best: Division, other: Division) -> Division:
    """Return the division with the smaller loss; lower bounds of restricted problems do not count."""
    if other.loss > best.loss + 1e-12 * abs(best.loss):
        return best
    return replace(other, lower_bound=best.lower_bound)


def _without_odd(cells: Cells, budget: FloatArray) -> list[FloatArray]:
    """Return the budgets with units inside a stretch of the envelope at its one or other end."""
    gain = _envelope(cells)
    here = budget[cells.unit]
    same = (cells.unit[1:] == cells.unit[:-1]) & (gain[1:] == gain[:-1])
    stretch = np.cumsum(np.append(True, ~same)) - 1
    starts = np.flatnonzero(np.append(True, ~same))
    left, right = cells.left[starts], np.maximum.reduceat(cells.right, starts)
    inside = np.flatnonzero((left < here[starts]) & (here[starts] < right))
    several = inside[np.bincount(stretch)[inside] > 1]
    down, up = budget.copy(), budget.copy()
    down[cells.unit[starts[several]]] = left[several]
    up[cells.unit[starts[several]]] = right[several]
    return [down, up]


# -- filling the envelope -------------------------------------------------------------------------


def _fill_finer(
    units: Units, cells: Cells, low: FloatArray, spare: float, target: float
) -> tuple[Cells, Division]:
    """Fill the envelope, and cut cells finer until neither bound nor division gains from it."""
    lower = -math.inf
    everyone = np.arange(units.size)
    for step in range(_ROUNDS):
        budget, price = _fill(cells, low, spare)
        first = cells.first
        bounds, ends = cells.lowest(price), cells.at_ends(price)
        unit_bounds = np.minimum.reduceat(bounds, first)
        unit_ends = np.minimum.reduceat(ends, first)
        noise = ROUNDING * float(units.base.sum())
        lower = max(
            lower, float(unit_bounds.sum()) - price * _free_budget(cells, low, spare) - noise
        )
        if step == _ROUNDS - 1:
            break
        here = budget[cells.unit]
        number = np.repeat(np.arange(first.size), np.diff(np.append(first, cells.size)))
        allowed = 0.02 * target * max(-lower, 0.0) / first.size
        interior = (cells.least < price) & (cells.most > price)
        interior &= cells.right - cells.left > _FINEST
        touched = (cells.left <= here) & (here <= cells.right)
        cut = interior & (touched | (bounds < unit_ends[number] - allowed))
        if not cut.any():
            break
        cells = units.split(cells, np.flatnonzero(cut), _PARTS)
    loss = float((units.loss(everyone, budget) - units.base).sum())
    return cells, Division(budget, loss, price, min(lower, loss))


def _free_budget(cells: Cells, low: FloatArray, spare: float) -> float:
    """Return what the units that have cells can spend in all."""
    return spare + float(low[cells.unit[cells.first]].sum())


def _fill(cells: Cells, low: FloatArray, spare: float) -> tuple[FloatArray, float]:
    """Return the budgets that fill the stretches of the envelope, steepest first, and the price."""
    gain, width = _envelope(cells), cells.right - cells.left
    order = np.argsort(-gain, kind="stable")
    order = order[gain[order] > 0]
    spent = np.cumsum(width[order])
    full = int(np.searchsorted(spent, spare * (1 + 1e-15), side="right"))
    budget = low + np.bincount(cells.unit[order[:full]], width[order[:full]], minlength=low.size)
    if full == order.size:
        return budget, 0.0
    partial = order[full]
    budget[cells.unit[partial]] += max(spare - (spent[full - 1] if full else 0.0), 0.0)
    return budget, float(gain[partial])


def _envelope(cells: Cells) -> FloatArray:
    """Return what a nat saves on every cell of each unit's lower convex envelope.

    The envelope's slopes are the rising ones that are nearest to the cells', weighted by width.
    """
    from scipy.optimize import isotonic_regression

    slope, width = -cells.slope, cells.right - cells.left
    ends = np.append(cells.first, cells.size)
    result = np.empty(cells.size)
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        own = slice(start, stop)
        result[own] = isotonic_regression(slope[own], weights=width[own]).x
    return -result


# -- the dynamic programme ------------------------------------------------------------------------


def _candidates(
    units: Units, cells: Cells, price: float, best: Division, available: float, width: float
) -> Cells | None:
    """Return the cells, none wider than `width`, that a better division may use.

    At the price of the bound, a division that uses a cell loses at least the bound and what the cell
    is above its unit's least. None if there are too many.
    """
    while True:
        first = cells.first
        number = np.repeat(np.arange(first.size), np.diff(np.append(first, cells.size)))
        bounds = cells.lowest(price)
        least = np.minimum.reduceat(bounds, first)
        fixed = float(units.low.sum() - units.low[cells.unit[first]].sum())
        lower = float(least.sum()) - price * (available - fixed)
        room = best.loss - lower + 2 * ROUNDING * float(units.base.sum())
        cells = cells.chosen(np.flatnonzero(bounds - least[number] <= room))
        wide = np.flatnonzero(cells.right - cells.left > 1.001 * width)
        if not wide.size:
            return cells
        parts = np.ceil((cells.right - cells.left)[wide] / width).astype(np.int64)
        parts = np.minimum(parts, _PARTS)
        start = np.minimum.reduceat(cells.left, cells.first)
        states = max(available - fixed - float(start.sum()), 0.0) / (width / 2) + 1
        if (cells.size + float(parts.sum())) * states > _STEPS:
            return None
        cells = units.split(cells, wide, parts)


def _programme(
    cells: Cells, units: Units, available: float, best: Division, width: float, price: float
) -> tuple[FloatArray, float, float]:
    """Find a cell for every unit.

    Minimizes the sum over units of min over the cell (loss + price * budget), minus price * firm
    budget, over cells whose left ends sum to at most the firm budget, in whole steps rounded down.
    What their right ends leave unspent, rounding included, costs the price as well.

    Returns:
        The middle of each unit's cell, a lower bound of every division relative to the least
        budgets, and a price that may prove a better one: the least that the last nats save on
        average, at which it does not pay to leave them unspent.
    """
    step = width / 2
    first = cells.first
    start = np.minimum.reduceat(cells.left, first)
    counts = np.diff(np.append(first, cells.size))
    number = np.repeat(np.arange(first.size), counts)
    fixed = float(units.low.sum() - units.low[cells.unit[first]].sum())
    spare = available - fixed - float(start.sum())
    cost = np.floor((cells.left - start[number]) / step + 1e-9).astype(np.int64)
    value = cells.lowest(price)
    states = int(spare / step + 1e-9) + 1
    least = np.full(states, np.inf)
    least[0] = 0.0
    choices = []
    for begin, count in zip(first.tolist(), counts.tolist(), strict=True):
        own = begin + np.flatnonzero(cost[begin : begin + count] < states)
        least, choice = _convolved(least, cost[own], value[own])
        choices.append((own, choice))
    widest = np.maximum.reduceat(cells.right - cells.left, first)
    slack = float(widest.sum() + step * (counts > 1).sum())
    left = spare - step * np.arange(states)
    total = least + price * np.maximum(left - slack, 0.0) - price * (available - fixed)
    state = int(total.argmin())
    if not np.isfinite(total[state]):
        return best.budget, best.loss, price  # nothing that fits can be better
    lower = min(float(total[state]) - ROUNDING * float(units.base.sum()), best.loss)
    middle = units.low.copy()
    for own, choice in reversed(choices):
        cell = own[choice[state]]
        middle[cells.unit[cell]] = (cells.left[cell] + cells.right[cell]) / 2
        state -= int(cost[cell])
    # The loss of all by what is left unspent.
    loss = np.minimum.accumulate(least + price * left)
    much = left > _MUCH_LEFT
    rate = (loss[much] - loss[-1]) / (left[much] - left[-1])
    return middle, lower, float(max(rate.min(initial=math.inf), 0.0)) if much.any() else price


def _convolved(least: FloatArray, cost: IntArray, value: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the least sum for every state after one more unit, and the choice that reaches it."""
    # Of cells with one cost only the best counts.
    order = np.lexsort((value, cost))
    order = order[np.append(True, np.diff(cost[order]) != 0)]
    result = np.full(least.size, np.inf)
    choice = np.zeros(least.size, dtype=np.int64)
    widest = int(cost[order[-1]])
    padded = np.concatenate([np.full(widest, np.inf), least])
    chunk = max(1, _CHUNK // least.size)
    for begin in range(0, order.size, chunk):
        some = order[begin : begin + chunk]
        before = widest - cost[some][:, None] + np.arange(least.size)
        sums = padded[before] + value[some][:, None]
        place = sums.argmin(axis=0)
        least_sum = sums[place, np.arange(least.size)]
        better = least_sum < result
        result[better], choice[better] = least_sum[better], some[place[better]]
    return result, choice


def _around(
    units: Units, cells: Cells, near: FloatArray, available: float, target: float
) -> Division:
    """Return the best division with every unit on the convex stretch of its loss around a budget.

    A unit may also be inside a concave stretch. It stays in its cell there, which is cut finer until
    its gain is about the price of the others.
    """
    best = Division(units.low, math.inf, 0.0, -math.inf)
    for _ in range(_ROUNDS):
        slope = cells.slope
        bends = (cells.unit[1:] != cells.unit[:-1]) | (slope[1:] > slope[:-1] * (1 + 1e-6))
        stretch = np.cumsum(np.append(True, bends))
        ends = np.append(cells.first[1:], cells.size) - 1
        here = np.zeros(units.size)
        first, last = cells.left[cells.first], cells.right[ends]
        here[cells.unit[ends]] = np.clip(near[cells.unit[ends]], first + _INSIDE, last)
        here = here[cells.unit]
        holds = (cells.left < here) & (here <= cells.right)
        window = cells.chosen(np.flatnonzero(np.isin(stretch, stretch[holds])))
        low = units.low.copy()
        low[window.unit[window.first]] = window.left[window.first]
        spare = available - float(low.sum())
        if spare < 0:
            break
        division = _fill_finer(units, window, low, spare, target)[1]
        if division.loss > best.loss:
            break
        best, near = division, division.budget
        inside = near[cells.unit]
        odd = (cells.left < inside) & (inside < cells.right) & (cells.least == cells.most)
        odd &= cells.right - cells.left > _FINE_ODD
        if not odd.any():
            break
        cells = units.split(cells, np.flatnonzero(odd), _PARTS)
    return best
