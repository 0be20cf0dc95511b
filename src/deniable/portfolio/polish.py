"""Polish: the best allocation found, moved to where all free marginal gains are equal.

The search stops when its gap is small enough; the budgets it leaves are near the optimum of their
pieces. Here each unit stays on its piece and the price is found at which the budget is spent exactly:
that price is the shadow value of the firm budget.
"""

from __future__ import annotations

import numpy as np

from deniable._validation import FloatArray
from deniable.portfolio.curves import BoolArray
from deniable.portfolio.dual import Demand
from deniable.portfolio.pieces import Losses, Pieces
from deniable.portfolio.search import Best

_STEPS = 40
_EXACT = 1e-15  # of the loss: roots to the last bits
_SPENT = 1e-11  # nats: a hundredth of a nano-nat is spent exactly enough


def polish(losses: Losses, pieces: Pieces, best: Best, available: float) -> tuple[Best, float]:
    """The allocation with equal gains on the pieces it uses, and the shadow value.

    Returns:
        The better of the given and the polished allocation, and -d(total loss)/d(firm budget):
        0 where budget is left over, and where no unit is between two ends what the next nat
        would save.
    """
    free, gain = _free(losses, pieces, best)
    if available - float(best.budget.sum()) > 1e-8 and not free.any():
        return best, 0.0
    inside = free & pieces.convex[best.piece]
    if inside.any():
        moved, price = _equalize(losses, pieces, best, inside, available, float(np.median(gain)))
        odd = np.flatnonzero(free & ~inside)
        if odd.size == 1:
            moved, price = _settle(losses, pieces, moved, inside, available, price, int(odd[0]))
        return (moved if moved.loss <= best.loss * (1 + 1e-12) else best), price
    if free.any():
        return best, float(gain[0])
    return best, _next_gain(pieces, best)


def _free(losses: Losses, pieces: Pieces, best: Best) -> tuple[BoolArray, FloatArray]:
    """Units strictly between the ends of their pieces, and the gains of those."""
    left, right = pieces.left[best.piece], pieces.right[best.piece]
    free = np.minimum(best.budget - left, right - best.budget) > 1e-7
    return free, losses.gain(pieces.cell[best.piece[free]], best.budget[free])


def _equalize(
    losses: Losses,
    pieces: Pieces,
    best: Best,
    inside: BoolArray,
    available: float,
    price: float,
) -> tuple[Best, float]:
    """Budgets of the inside units on their convex pieces at the price that spends it all."""
    demand = Demand(losses, _chosen(pieces, best, inside), _EXACT)
    available = available - float(best.budget[~inside].sum())

    def excess(at: float) -> float:
        return float(demand.at(at).budget.sum()) - available

    low = high = max(price, 1e-300)
    e_low = e_high = excess(low)
    grow = 1e-3
    while e_low < 0 and low > 1e-12 * price:
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
    response = demand.at(price)
    budget = best.budget.copy()
    budget[inside] = response.budget
    loss = losses.value(pieces.cell[best.piece], budget)
    return Best(float(loss.sum()), budget, best.piece), price


def _chosen(pieces: Pieces, best: Best, inside: BoolArray) -> Pieces:
    index = best.piece[inside]
    fields = (
        *(pieces.unit, pieces.cell, pieces.left, pieces.right, pieces.convex),
        *(pieces.left_value, pieces.right_value, pieces.left_gain, pieces.right_gain),
    )
    return Pieces(*(column[index] for column in fields), np.arange(index.size))  # type: ignore[arg-type]


def _settle(
    losses: Losses,
    pieces: Pieces,
    best: Best,
    inside: BoolArray,
    available: float,
    price: float,
    unit: int,
) -> tuple[Best, float]:
    """Move the one unit on a concave piece until its gain is the common one, by the secant method."""
    left, right = pieces.left[best.piece[unit]], pieces.right[best.piece[unit]]

    def apart(at: Best, price: float) -> float:
        cell = pieces.cell[at.piece[[unit]]]
        return float(losses.gain(cell, at.budget[[unit]])[0]) - price

    here, gap = best.budget[unit], apart(best, price)
    step = 1e-3 * min(here - left, right - here) * np.sign(gap)
    for _ in range(8):
        there = here + step
        if abs(gap) <= 1e-9 * price or not left < there < right:
            break
        trial = Best(best.loss, best.budget.copy(), best.piece)
        trial.budget[unit] = there
        trial, trial_price = _equalize(losses, pieces, trial, inside, available, price)
        if trial.loss > best.loss * (1 + 1e-13):
            break
        new_gap = apart(trial, trial_price)
        step = -new_gap * (there - here) / (new_gap - gap) if new_gap != gap else 0.0
        best, price, here, gap = trial, trial_price, there, new_gap
    return best, price


def _next_gain(pieces: Pieces, best: Best) -> float:
    """The largest gain just above the budgets, where every unit rests at an end."""
    unit = pieces.unit
    starts = np.abs(pieces.left - best.budget[unit]) <= 1e-7
    room = starts & (pieces.right > pieces.left)
    return float(max(pieces.left_gain[room].max(initial=0.0), 0.0))
