"""The best private table by other methods, for problems that the simplex method of `joint_lp` leaves.

The interior-point method is for many segments, where pivots are too many. With tops t_a, P = q t + x and
slacks x >= 0, y = (1 - q) t - x >= 0, every Newton step eliminates x and t arm by arm and leaves one
positive definite system in the J prices. About 40 steps, whatever the size.

HiGHS, which comes with SciPy, is for the few problems in which both leave a gap. Its unknowns are P(a|s)
and tops t_a with q t_a <= P(a|s) <= t_a.
"""

from __future__ import annotations

import numpy as np

from deniable._validation import FloatArray

_STEPS = 100
_CLOSE = 1e-10  # of the largest value; the caller checks the gap


def interior_point(values: FloatArray, weakest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The table (K, J) and the prices (J,) of max sum V P; arguments as in `joint_lp.solve`.

    >>> table, prices = interior_point(np.array([[0.5, 0.1], [0.1, 0.5]]), np.full(2, 0.5))
    >>> table.round(6).tolist(), round(float(prices.sum()), 6)
    ([[0.666667, 0.333333], [0.333333, 0.666667]], 0.733333)
    """
    n_arms = len(values)
    scale = float(np.abs(values).max()) or 1.0
    v = values / scale
    q = weakest[:, None]
    p = 1 - q
    top = (1 / n_arms) / (q + p / 2)
    x = np.broadcast_to(p * top / 2, v.shape).copy()
    y = x.copy()
    price = v.max(axis=0)
    beta = np.ones_like(v)
    alpha = beta + price - v
    centring = 0.5
    for _ in range(_STEPS):
        near = float((alpha * x + beta * y).sum())
        short = 1 - (q * top + x).sum(axis=0)
        if near < _CLOSE:
            break
        mu = centring * near / (2 * v.size)
        a, b = alpha / x, beta / y
        d = a + b
        g = v - price + mu / x - mu / y
        k = q + p * b / d
        e = p**2 * (a * b / d).sum(axis=1, keepdims=True)
        h = (q * (v - price) + p * mu / y + p * b / d * g).sum(axis=1, keepdims=True)
        system = np.diag((1 / d).sum(axis=0)) + k.T @ (k / e)
        try:
            move = np.linalg.solve(system, (k * h / e + g / d).sum(axis=0) - short)
        except np.linalg.LinAlgError:  # as near as floats come
            break
        d_top = (h - (k * move).sum(axis=1, keepdims=True)) / e
        d_x = (g - move + p * b * d_top) / d
        d_y = p * d_top - d_x
        d_alpha = mu / x - alpha - a * d_x
        d_beta = mu / y - beta - b * d_y
        primal = _longest((x, d_x), (y, d_y))
        dual = _longest((alpha, d_alpha), (beta, d_beta))
        # After a short step the next one aims nearer to the centre.
        centring = min(max((1 - min(primal, dual)) ** 2, 0.05), 0.8)
        top, x, y = top + primal * d_top, x + primal * d_x, y + primal * d_y
        alpha, beta = alpha + dual * d_alpha, beta + dual * d_beta
        price = price + dual * move
    table = q * top + x
    return table / table.sum(axis=0), price * scale


def _longest(*pairs: tuple[FloatArray, FloatArray]) -> float:
    """The longest step, at most 1, that keeps everything above 0."""
    worst = max(float((-change / value).max()) for value, change in pairs)
    return min(1.0, 0.995 / worst) if worst > 0 else 1.0


def by_highs(values: FloatArray, weakest: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The table (K, J) and the prices (J,) of max sum V P; arguments as in `joint_lp.solve`.

    None where HiGHS finds no solution, for example because q is too small for its tolerances.

    >>> table, prices = by_highs(np.array([[0.5, 0.1], [0.1, 0.5]]), np.full(2, 0.5))
    >>> table.round(6).tolist(), round(float(prices.sum()), 6)
    ([[0.666667, 0.333333], [0.333333, 0.666667]], 0.733333)
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, csr_array, eye_array, hstack, kron, vstack

    n_arms, n_segments = values.shape
    scale = float(np.abs(values).max()) or 1.0
    cell = eye_array(values.size)
    ones = np.ones((n_segments, 1))
    below_top = hstack([cell, -kron(eye_array(n_arms), ones)])
    above_low = hstack([-cell, kron(csr_array(np.diag(weakest)), ones)])
    sums = hstack(
        [kron(np.ones((1, n_arms)), eye_array(n_segments)), coo_array((n_segments, n_arms))]
    )
    solved = linprog(
        -np.concatenate([values.ravel() / scale, np.zeros(n_arms)]),
        A_ub=vstack([below_top, above_low]).tocsr(),
        b_ub=np.zeros(2 * values.size),
        A_eq=sums.tocsr(),
        b_eq=np.ones(n_segments),
        method="highs",
        options=dict.fromkeys(
            ("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10
        ),
    )
    if solved.status != 0:
        return None
    table = np.clip(solved.x[: values.size].reshape(values.shape), 0.0, 1.0)
    return table / table.sum(axis=0), -solved.eqlin.marginals * scale
