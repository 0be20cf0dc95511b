"""The best table that keeps a budget: a small linear programme, solved with its proof.

A table P(arm | segment) keeps budget g where P(a|s) <= e^g P(a|s') for every arm and any two segments.
With values V(a, s) = share of s times click rate, the best one maximizes sum V P. Every column of a
feasible table is a sum of two-level columns (arm a, pattern S): 1 for the segments of S, q = e^-g for
the others. So the programme has J equalities and implicit columns:

    max sum theta_aS c_aS   subject to   sum theta_aS (q + (1 - q) 1[s in S]) = 1 for every segment s.

The best pattern of an arm at dual prices v is {s : V(a, s) > v_s}, so that pricing costs K J. The
revised simplex keeps the inverse of a J x J basis; the right side is perturbed against cycling. Many
segments, or a gap that it leaves, are for the interior-point method, and a gap that this leaves too for
HiGHS, where SciPy is installed. The result carries its dual gap: prices, shifted until they are
feasible, bound the value from above. That holds whichever method found the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._compile import compiled_with_arrays
from deniable._extras import is_installed
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.strategies.joint_solvers import by_highs, interior_point
from deniable.strategies.rules import LARGEST

GAP = 1e-9
"""The dual gap that a table should reach; the result says which it has."""

_SAME_ROW = 1.5e-9  # where 1 - q is below this, one row for everybody is best within GAP
_TOLERANCE = 1e-12  # of reduced costs, as a part of the largest value
_PERTURBATION = 1e-10
_FEW_SEGMENTS = 40  # with more, the simplex method needs too many pivots


@dataclass(frozen=True)
class BestTable:
    """The best table for known rates.

    Attributes:
        table: P(arm | segment), (K, J); columns sum to 1.
        value: clicks per visitor, sum of share x rate x P.
        gap: no table that keeps the budget is better by more than this.
        pivots: steps of the simplex method; 0 where it was not used.
    """

    table: FloatArray
    value: float
    gap: float
    pivots: int


def best_table(rates: ArrayLike, shares: ArrayLike, budget: ArrayLike) -> BestTable:
    """The table with the most clicks among all that keep the budget.

    Args:
        rates: click rates, (K, J): arms by segments.
        shares: share of each segment, (J,), summing to 1.
        budget: g, 0 or more; or one budget for each arm, all above 0.

    With one segment nothing can leak, and the best arm is always shown. Budget 0 shows everybody the
    arm that is best on average.

    >>> best = best_table([[0.324, 0.295], [0.295, 0.324]], [0.5, 0.5], 1)
    >>> best.table.round(6).tolist(), round(best.value, 6)
    ([[0.731059, 0.268941], [0.268941, 0.731059]], 0.316201)
    """
    rate = _rates(rates)
    share = _shares(shares, rate.shape[1])
    weakest = lowest_ratio(budget, rate.shape[0])
    values = rate * share
    n_arms, n_segments = values.shape
    space = workspace(n_arms, n_segments)
    table = np.empty_like(values)
    gap, pivots = math.inf, 0
    if n_segments <= _FEW_SEGMENTS or 1 - weakest.min() < _SAME_ROW:
        pivots = int(solve(values, weakest, _PERTURBATION, False, space, table))
        gap = float(dual_bound(values, weakest, space[3])) - float((values * table).sum())
    for method in _OTHER_METHODS:
        if gap <= GAP:
            break
        found = method(values, weakest)
        if found is not None:
            other, prices = found
            left = float(dual_bound(values, weakest, prices)) - float((values * other).sum())
            table, gap = (other, left) if left < gap else (table, gap)
    return BestTable(table, float((values * table).sum()), max(gap, 0.0), pivots)


def _one_row(values: FloatArray, weakest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One arm for everybody: for budgets near 0, where the other methods run out of digits."""
    table, prices = np.empty_like(values), np.empty(values.shape[1])
    _same_row(values, prices, table)
    return table, prices


def _highs(values: FloatArray, weakest: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    return by_highs(values, weakest) if is_installed("scipy") else None


_OTHER_METHODS: tuple[
    Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray] | None], ...
] = (interior_point, _one_row, _highs)
"""What is tried in turn where the simplex method leaves a gap; the smallest gap is kept."""


def lowest_ratio(budget: ArrayLike, n_arms: int) -> FloatArray:
    """e^-budget for each arm, (K,)."""
    budgets = check.nonnegative("budget", budget)
    if budgets.ndim:
        budgets = check.arm_budgets("budget", budgets)
        if budgets.size != n_arms:
            raise InvalidArgumentError("budget", budgets.tolist(), f"{n_arms} budgets, one per arm")
    return np.asarray(np.exp(-budgets) * np.ones(n_arms))


def workspace(n_arms: int, n_segments: int) -> tuple[Any, ...]:
    """What `solve` keeps between calls: arms, patterns, inverse, prices and weights of its basis."""
    size = n_segments
    return (
        np.zeros(size, np.int64),
        np.zeros((size, size), np.bool_),
        np.zeros((size, size)),
        np.zeros(size),
        np.zeros(size),
        np.zeros((2, size)),
    )


def _rates(rates: ArrayLike) -> FloatArray:
    rate = check.probability("rates", rates)
    if rate.ndim != 2 or not rate.size or max(rate.shape) > LARGEST:
        allowed = f"a table of arms by segments, at most {LARGEST} of each"
        raise InvalidArgumentError("rates", rate.shape, allowed)
    return rate


def _shares(shares: ArrayLike, n_segments: int) -> FloatArray:
    share = check.nonnegative("shares", shares)
    if share.shape != (n_segments,) or abs(share.sum() - 1) > 1e-9:
        raise InvalidArgumentError("shares", shares, f"{n_segments} shares that sum to 1")
    return np.asarray(share / share.sum())


@compiled_with_arrays
def solve(values: Any, weakest: Any, perturbation: Any, warm: Any, space: Any, table: Any) -> Any:
    """Write the best table and return the number of pivots; prices and basis stay in the workspace.

    Args:
        values: V(a, s), (K, J), of any sign.
        weakest: q = e^-budget of each arm, (K,).
        perturbation: of the right side, against cycling.
        warm: whether to start from the basis in the workspace, made with the same `weakest`.
        space: a `workspace`.
        table: (K, J), overwritten.
    """
    arms, patterns, inverse, prices, weights, spare = space
    n_arms, n_segments = values.shape
    least = 1.0
    for a in range(n_arms):
        least = min(least, weakest[a])
    if n_segments == 1 or 1.0 - least < _SAME_ROW:
        _same_row(values, prices, table)
        return 0
    scale = 0.0
    for a in range(n_arms):
        for s in range(n_segments):
            scale = max(scale, abs(values[a, s]))
    if not warm:
        for s in range(n_segments):
            best = 0
            for a in range(1, n_arms):
                if values[a, s] > values[best, s]:
                    best = a
            arms[s] = best
            for other in range(n_segments):
                patterns[s, other] = other == s
    _factor(values, weakest, perturbation, space)
    most = 50 + (100 if n_segments <= 40 else 20) * n_segments
    since = 0
    pivots = 0
    direction, column = spare[0], spare[1]
    while pivots < most:
        gain, entering = 0.0, -1
        for a in range(n_arms):
            total = 0.0
            low = weakest[a]
            for s in range(n_segments):
                surplus = values[a, s] - prices[s]
                total += max(surplus, low * surplus)
            if total > gain:
                gain, entering = total, a
        if gain <= _TOLERANCE * scale:
            if since == 0:
                break
            _factor(values, weakest, perturbation, space)  # fresh prices must say so too
            since = 0
            continue
        low = weakest[entering]
        for s in range(n_segments):
            column[s] = 1.0 if values[entering, s] > prices[s] else low
        leaving, ratio = -1, math.inf
        for i in range(n_segments):
            step = 0.0
            for s in range(n_segments):
                step += inverse[i, s] * column[s]
            direction[i] = step
            if step > 1e-9:
                own = max(weights[i], 0.0) / step
                if own < ratio * (1 - 1e-12) - 1e-15 or (
                    own <= ratio * (1 + 1e-12) + 1e-15 and step > direction[leaving]
                ):
                    leaving, ratio = i, own
        if leaving < 0:
            break
        pivot = direction[leaving]
        for s in range(n_segments):
            patterns[leaving, s] = column[s] == 1.0 and values[entering, s] > prices[s]
        for s in range(n_segments):
            inverse[leaving, s] /= pivot
            prices[s] += gain * inverse[leaving, s]
        for i in range(n_segments):
            if i != leaving and direction[i] != 0.0:
                for s in range(n_segments):
                    inverse[i, s] -= direction[i] * inverse[leaving, s]
                weights[i] -= direction[i] * ratio
        weights[leaving] = ratio
        arms[leaving] = entering
        pivots += 1
        since += 1
        if since >= max(25, n_segments):
            _factor(values, weakest, perturbation, space)
            since = 0
    _write_table(weakest, space, table)
    return pivots


@compiled_with_arrays
def _same_row(values: Any, prices: Any, table: Any) -> None:
    """The arm that is best on average, for everybody."""
    n_arms, n_segments = values.shape
    best, most = 0, -math.inf
    for a in range(n_arms):
        total = 0.0
        for s in range(n_segments):
            total += values[a, s]
        if total > most:
            best, most = a, total
    for s in range(n_segments):
        prices[s] = values[best, s]
        for a in range(n_arms):
            table[a, s] = 1.0 if a == best else 0.0


@compiled_with_arrays
def _factor(values: Any, weakest: Any, perturbation: Any, space: Any) -> None:
    """Inverse (Gauss-Jordan with row pivots), weights and prices of the basis."""
    arms, patterns, inverse, prices, weights, _ = space
    size = arms.size
    matrix = np.empty((size, size))
    for i in range(size):
        low = weakest[arms[i]]
        for s in range(size):
            matrix[s, i] = 1.0 if patterns[i, s] else low
            inverse[s, i] = 1.0 if s == i else 0.0
    for c in range(size):
        top = c
        for r in range(c + 1, size):
            if abs(matrix[r, c]) > abs(matrix[top, c]):
                top = r
        if top != c:
            for s in range(size):
                matrix[c, s], matrix[top, s] = matrix[top, s], matrix[c, s]
                inverse[c, s], inverse[top, s] = inverse[top, s], inverse[c, s]
        pivot = matrix[c, c]
        if pivot == 0.0:
            pivot = 1e-300
        for s in range(size):
            matrix[c, s] /= pivot
            inverse[c, s] /= pivot
        for r in range(size):
            factor = matrix[r, c]
            if r != c and factor != 0.0:
                for s in range(c, size):
                    matrix[r, s] -= factor * matrix[c, s]
                for s in range(size):
                    inverse[r, s] -= factor * inverse[c, s]
    for s in range(size):
        prices[s] = 0.0
    for i in range(size):
        a = arms[i]
        low = weakest[a]
        cost = 0.0
        weight = 0.0
        for s in range(size):
            cost += values[a, s] if patterns[i, s] else low * values[a, s]
            # The golden ratio's multiples are spread evenly and never tie.
            place = (s + 1) * 0.6180339887498949
            weight += inverse[i, s] * (1.0 + perturbation * (0.5 + place - math.floor(place)))
        weights[i] = weight
        for s in range(size):
            prices[s] += cost * inverse[i, s]


@compiled_with_arrays
def _write_table(weakest: Any, space: Any, table: Any) -> None:
    """The table of the basis, with the right side as it should be."""
    arms, patterns, inverse, _, _, _ = space
    n_arms, n_segments = table.shape
    table[:] = 0.0
    for i in range(n_segments):
        weight = 0.0
        for s in range(n_segments):
            weight += inverse[i, s]
        if weight > 1e-15:
            a = arms[i]
            for s in range(n_segments):
                table[a, s] += weight if patterns[i, s] else weight * weakest[a]
    for s in range(n_segments):
        total = 0.0
        for a in range(n_arms):
            total += table[a, s]
        for a in range(n_arms):
            table[a, s] /= total


@compiled_with_arrays
def dual_bound(values: Any, weakest: Any, prices: Any) -> Any:
    """No table has more value: the sum of the prices, raised by the least that makes them feasible."""
    n_arms, n_segments = values.shape
    raised = 0.0
    for a in range(n_arms):
        # The surplus is convex and falls with the raise, so Newton's method comes from the left.
        for _ in range(100):
            total, slope = 0.0, 0.0
            for s in range(n_segments):
                surplus = values[a, s] - prices[s] - raised
                part = 1.0 if surplus > 0.0 else weakest[a]
                total += part * surplus
                slope += part
            if total <= 0.0 or slope <= 0.0 or raised + total / slope == raised:
                break
            raised += total / slope
    bound = n_segments * raised
    for s in range(n_segments):
        bound += prices[s]
    return bound
