"""Equal gains: moves the best allocation found to where all free marginal gains are equal.

The search stops when its gap is small enough, with budgets near the optimum of their pieces. Here
each unit stays on its piece, and we find the price at which the budget is spent exactly. That price
is the shadow value of the firm budget.
"""

from __future__ import annotations

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import BoolArray, TableCurves
from deniable.portfolio.dual import ROUNDING, Demand
from deniable.portfolio.pieces import Losses, Pieces
from deniable.portfolio.search import Best

_STEPS = 40
_EXACT = 1e-13  # nats: roots to nearly full precision
_SPENT = 1e-10  # nats: a tenth of a nano-nat is exact enough


def equalize_gains(known: Demand, best: Best, available: float) -> tuple[Best, float]:
    """Return the allocation with equal gains on the pieces it uses, and the shadow value.

    Args:
        known: the demand of all units, with the roots found by the search.
        best: the allocation to improve.
        available: the firm budget in nats.

    Returns:
        The better of the given and the moved allocation, and -d(total loss)/d(firm budget):
        0 where budget is left over, and where no unit is between two ends what the next nat
        would save.
    """
    losses, pieces = known.losses, known.pieces
    whole = float(losses.base.sum())
    free, gain = _free(losses, pieces, best)
    left_over = available - float(best.budget.sum()) > 1e-8
    if left_over and (not free.any() or float(np.median(gain)) <= 1e-9 * whole):
        return best, 0.0  # the rest is useless
    inside = free & pieces.convex[best.piece]
    if isinstance(losses.curves, TableCurves):  # on a linear piece the gain is constant
        return best, float(gain.min()) if free.any() else _next_gain(pieces, best)
    if inside.any():
        start = max(float(np.median(gain)), 1e-12 * whole)
        moved, price = _spend_exactly(known, best, inside, available, start)
        odd = np.flatnonzero(free & ~inside)
        if odd.size == 1:
            moved, price = _settle(known, moved, inside, available, price, int(odd[0]))
        return (moved if moved.loss <= best.loss + _noise(known, best) else best), price
    if free.any():
        return best, float(gain[0])
    return best, _next_gain(pieces, best)


def _noise(known: Demand, best: Best) -> float:
    """Return a difference of losses that is within rounding."""
    return ROUNDING * float(known.losses.base.sum()) + 1e-12 * abs(best.loss)


def _free(losses: Losses, pieces: Pieces, best: Best) -> tuple[BoolArray, FloatArray]:
    """Return units strictly between the ends of their pieces, and their gains."""
    left, right = pieces.left[best.piece], pieces.right[best.piece]
    free = np.minimum(best.budget - left, right - best.budget) > 1e-7
    return free, losses.gain(pieces.cell[best.piece[free]], best.budget[free])


def _spend_exactly(
    known: Demand, best: Best, inside: BoolArray, available: float, price: float
) -> tuple[Best, float]:
    """Return budgets of the inside units on their convex pieces, at the price that spends everything."""
    parent = (known, best.piece[inside])
    demand = Demand(known.losses, known.pieces.chosen(best.piece[inside]), _EXACT, parent)
    available = available - float(best.budget[~inside].sum())
    tried: dict[float, FloatArray] = {}

    def excess(at: float) -> float:
        tried[at] = demand.at(at).budget
        return float(tried[at].sum()) - available

    low = high = price
    e_low = e_high = excess(price)
    grow = 1e-3
    while e_low < 0 and grow < 1e9:
        low, grow = low / (1 + grow), 4 * grow
        e_low = excess(low)
    grow = 1e-3
    while e_high > 0 and grow < 1e9:
        high, grow = high * (1 + grow), 4 * grow
        e_high = excess(high)
    for step in range(_STEPS):
        if (
            min(abs(e_low), abs(e_high)) < _SPENT
            or e_low * e_high >= 0
            or high - low < 1e-15 * high
        ):
            break
        middle = low + (high - low) * e_low / (e_low - e_high)
        if step % 3 == 2 or not low < middle < high:
            middle = (low + high) / 2
        e = excess(middle)
        low, e_low, high, e_high = (middle, e, high, e_high) if e > 0 else (low, e_low, middle, e)
    price = low if 0 <= e_low < abs(e_high) else high
    budget = best.budget.copy()
    budget[inside] = tried[price]
    loss = known.losses.value(known.pieces.cell[best.piece], budget)
    return Best(float(loss.sum()), budget, best.piece), price


def _settle(
    known: Demand,
    best: Best,
    inside: BoolArray,
    available: float,
    price: float,
    unit: int,
) -> tuple[Best, float]:
    """Move the one unit on a concave piece until its gain equals the common one (secant method)."""
    losses, pieces = known.losses, known.pieces
    left, right = pieces.left[best.piece[unit]], pieces.right[best.piece[unit]]

    def apart(at: Best, price: float) -> float:
        cell = pieces.cell[at.piece[[unit]]]
        return float(losses.gain(cell, at.budget[[unit]])[0]) - price

    here, gap = best.budget[unit], apart(best, price)
    step = 1e-4 * min(here - left, right - here) * np.sign(gap)
    tried = [(abs(gap), price, best)]
    for _ in range(10):
        there = here + step
        if abs(gap) <= 1e-10 * price or not left < there < right:
            break
        trial = Best(best.loss, best.budget.copy(), best.piece)
        trial.budget[unit] = there
        trial, price = _spend_exactly(known, trial, inside, available, price)
        new_gap = apart(trial, price)
        tried.append((abs(new_gap), price, trial))
        step = -new_gap * (there - here) / (new_gap - gap) if new_gap != gap else 0.0
        here, gap = there, new_gap
    good = [entry for entry in tried if entry[2].loss <= best.loss + _noise(known, best)]
    _, price, settled = min(good, key=lambda entry: entry[0])
    return settled, price


def _next_gain(pieces: Pieces, best: Best) -> float:
    """Return the largest gain just above the budgets, if every unit rests at an end."""
    unit = pieces.unit
    starts = np.abs(pieces.left - best.budget[unit]) <= 1e-7
    room = starts & (pieces.right > pieces.left)
    return float(max(pieces.left_gain[room].max(initial=0.0), 0.0))
