"""The best table that keeps a budget: a small linear programme, solved with its proof.

A table P(arm | segment) keeps budget g where P(a|s) <= e^g P(a|s') for every arm and any two segments.
With values V(a, s) = share of s times click rate, the best one maximizes sum V P. Every column of a
feasible table is a sum of two-level columns (arm a, pattern S): 1 for the segments of S, q = e^-g for
the others. So the programme has J equalities and implicit columns:

    max sum theta_aS c_aS   subject to   sum theta_aS (q + (1 - q) 1[s in S]) = 1 for every segment s.

The best pattern of an arm at dual prices v is {s : V(a, s) > v_s}, so that pricing costs K J. The
revised simplex keeps the inverse of a J x J basis; the right side is perturbed against cycling. Where
many segments need too many pivots, HiGHS solves the programme, if SciPy is installed. The result
carries its dual gap: prices, shifted until they are feasible, bound the value from above. That holds
whichever method found the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._compile import compiled
from deniable._extras import is_installed, require
from deniable._validation import FloatArray
from deniable.errors import NANO, InvalidArgumentError
from deniable.privacy.composition import nano_down
from deniable.privacy.exact import SPACE
from deniable.privacy.joint_table import integer_table
from deniable.strategies.rules import LARGEST

GAP = 1e-9
"""The dual gap that a table should reach; the result says which it has."""

_SAME_ROW = 1.5e-9  # where 1 - q is below this, one row for everybody is best within GAP
_TOLERANCE = 1e-12  # of reduced costs, as a part of the largest value
_PERTURBATION = 1e-10


@dataclass(frozen=True)
class ProvedTable:
    """The best table for known rates.

    Attributes:
        table: P(arm | segment), (J, K); rows sum to 1.
        value: clicks per visitor, sum of share x rate x P.
        gap: no table that keeps the budget is better by more than this.
        pivots: steps of the simplex method; 0 where it was not used.
    """

    table: FloatArray
    value: float
    gap: float
    pivots: int


def best_table(scores: ArrayLike, budget: float, shares: ArrayLike | None = None) -> FloatArray:
    """Return the probabilities with the highest expected score among all that keep a budget.

    With scores V, shares w and probabilities P this is the P with the largest sum of w_s V_sa P_sa
    for which P_sa <= e^budget P_ta for every arm a and any two segments s and t.

    Args:
        scores: what each arm is worth to each segment, in any unit, higher is better; rows are
            segments, columns are arms.
        budget: in nats.
        shares: each segment's share of the visitors, summing to 1; equal by default.

    Returns:
        P(arm | segment), in the shape of `scores`. Each row sums to 1.

    It is computed in whole units of 2^-64 that keep the budget exactly. Draw a visitor's arm once and
    keep it: a second draw reveals more. Many segments need the extra `data`.

    >>> best_table([[0.30, 0.10], [0.10, 0.30]], budget=1).round(6).tolist()
    [[0.731059, 0.268941], [0.268941, 0.731059]]

    What all segments prefer is shown to all, whatever the budget:

    >>> best_table([[0.2, 0.5, 0.1], [0.3, 0.4, 0.1]], budget=0.1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    given = check.finite("scores", scores)
    if given.ndim != 2 or not given.size or given.shape[1] < 2 or max(given.shape) > LARGEST:
        allowed = f"segments by arms: 1 to {LARGEST} segments, 2 to {LARGEST} arms"
        raise InvalidArgumentError("scores", given.shape, allowed)
    nano = nano_down(check.single("budget", check.nonnegative("budget", budget)))
    n_segments = given.shape[0]
    equal = np.full(n_segments, 1 / n_segments)
    # The unit and the origin do not matter; the solver wants numbers from 0 to 1.
    lowest = given.min()
    unit = (given - lowest) / ((given.max() - lowest) or 1.0)
    solved = proved_table(unit, equal if shares is None else shares, nano / NANO)
    if solved.gap > GAP:  # with HiGHS there would be none
        require("scipy", extra="data")
    rows = integer_table(solved.table.tolist(), nano)
    return np.array([[part / SPACE for part in row] for row in rows])


def proved_table(rates: ArrayLike, shares: ArrayLike, budget: ArrayLike) -> ProvedTable:
    """The table with the most clicks among all that keep the budget.

    Args:
        rates: click rates, (J, K): segments by arms.
        shares: share of each segment, (J,), summing to 1.
        budget: g, 0 or more; or one budget for each arm, all above 0.

    With one segment nothing can leak, and the best arm is always shown. Budget 0 shows everybody the
    arm that is best on average.

    >>> best = proved_table([[0.324, 0.295], [0.295, 0.324]], [0.5, 0.5], 1)
    >>> best.table.round(6).tolist(), round(best.value, 6)
    ([[0.731059, 0.268941], [0.268941, 0.731059]], 0.316201)
    """
    rate = _rates(rates)
    share = _shares(shares, rate.shape[0])
    weakest = lowest_ratio(budget, rate.shape[1])
    # Arms first from here on: the solver prices one arm after the other.
    values = np.ascontiguousarray(rate.T * share)
    n_arms, n_segments = values.shape
    space = workspace(n_arms, n_segments)
    table = np.empty_like(values)
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
    return ProvedTable(table.T.copy(), float((values * table).sum()), max(gap, 0.0), pivots)


def _one_row(values: FloatArray, weakest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One arm for everybody: for budgets near 0, where the other methods run out of digits."""
    table, prices = np.empty_like(values), np.empty(values.shape[1])
    _same_row(values, prices, table)
    return table, prices


def by_highs(values: FloatArray, weakest: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The table (K, J) and the prices (J,) of max sum V P; arguments as in `solve`.

    The unknowns are the tops t_a and the parts x(a, s) = P(a|s) - q t_a, from 0 to (1 - q) t_a. None
    where SciPy is not installed, or where HiGHS finds no solution, for example because q is too small
    for its tolerances.

    >>> table, prices = by_highs(np.array([[0.5, 0.1], [0.1, 0.5]]), np.full(2, 0.5))
    >>> table.round(6).tolist(), round(float(prices.sum()), 6)
    ([[0.666667, 0.333333], [0.333333, 0.666667]], 0.733333)
    """
    if not is_installed("scipy"):
        return None
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack, kron

    n_arms, n_segments = values.shape
    scale = float(np.abs(values).max()) or 1.0
    spread = kron(csr_array(np.diag(1 - weakest)), np.ones((n_segments, 1)))
    lows = csr_array(np.tile(weakest, (n_segments, 1)))
    worth = np.concatenate([values.ravel(), weakest * values.sum(axis=1)]) / scale
    solved = linprog(
        -worth,
        A_ub=hstack([eye_array(values.size), -spread]).tocsr(),
        b_ub=np.zeros(values.size),
        A_eq=hstack([kron(np.ones((1, n_arms)), eye_array(n_segments)), lows]).tocsr(),
        b_eq=np.ones(n_segments),
        method="highs",
        options=dict.fromkeys(
            ("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10
        ),
    )
    if solved.status != 0:
        return None
    parts = solved.x[: values.size].reshape(values.shape)
    table = np.clip(parts + weakest[:, None] * solved.x[values.size :, None], 0.0, 1.0)
    return table / table.sum(axis=0), -solved.eqlin.marginals * scale


_OTHER_METHODS: tuple[
    Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray] | None], ...
] = (_one_row, by_highs)
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
        allowed = f"a table of segments by arms, at most {LARGEST} of each"
        raise InvalidArgumentError("rates", rate.shape, allowed)
    return rate


def _shares(shares: ArrayLike, n_segments: int) -> FloatArray:
    share = check.nonnegative("shares", shares)
    if share.shape != (n_segments,) or abs(share.sum() - 1) > 1e-9:
        raise InvalidArgumentError("shares", shares, f"{n_segments} shares that sum to 1")
    return np.asarray(share / share.sum())


@compiled
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


@compiled
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


@compiled
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


@compiled
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


@compiled
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
