"""The best private table by HiGHS: for the few problems in which the other methods leave a gap.

Unknowns are P(a|s) and tops t_a with q t_a <= P(a|s) <= t_a. HiGHS comes with SciPy.
"""

from __future__ import annotations

import numpy as np

from deniable._validation import FloatArray


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
