"""The best private table once more: by HiGHS in plain form, and by an exact simplex in fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Table = NDArray[np.float64]


def by_highs(values: Table, ratio: float) -> float:
    """max sum V P over columns that sum to 1 with top_a / ratio <= P(a|s) <= top_a."""
    n_arms, n_segments = values.shape
    cells = values.size
    arm = np.repeat(np.eye(n_arms), n_segments, axis=0)
    within = np.block([[np.eye(cells), -arm], [-np.eye(cells), arm / ratio]])
    sums = np.hstack([np.tile(np.eye(n_segments), n_arms), np.zeros((n_segments, n_arms))])
    cost = -np.concatenate([values.ravel(), np.zeros(n_arms)])
    solved = linprog(cost, within, np.zeros(2 * cells), sums, np.ones(n_segments))
    assert solved.status == 0
    return float(-solved.fun)


def exactly(values: Sequence[Sequence[Fraction]], ratio: Fraction) -> Fraction:
    """The same maximum in rational arithmetic: the simplex method with Bland's rule, two phases.

    Variables P(a|s) and floors l_a; constraints P - l >= 0, ratio l - P >= 0, columns sum to 1.
    Written as x = P - l >= 0, y = ratio l - P >= 0, so x + y = (ratio - 1) l and
    P = x + l: sum_a (x_as + l_a) = 1, x_as + y_as - (ratio - 1) l_a = 0.
    """
    n_arms, n_segments = len(values), len(values[0])
    cells = n_arms * n_segments
    n_variables = 2 * cells + n_arms

    def at(kind: int, a: int, s: int) -> int:
        return kind * cells + a * n_segments + s

    rows: list[list[Fraction]] = []
    for s in range(n_segments):
        row = [Fraction(0)] * (n_variables + 1)
        for a in range(n_arms):
            row[at(0, a, s)] = Fraction(1)
            row[2 * cells + a] = Fraction(1)
        row[-1] = Fraction(1)
        rows.append(row)
    for a in range(n_arms):
        for s in range(n_segments):
            row = [Fraction(0)] * (n_variables + 1)
            row[at(0, a, s)] = row[at(1, a, s)] = Fraction(1)
            row[2 * cells + a] = 1 - ratio
            rows.append(row)
    cost = [Fraction(0)] * n_variables
    for a in range(n_arms):
        for s in range(n_segments):
            cost[at(0, a, s)] = values[a][s]
            cost[2 * cells + a] += values[a][s]
    return _two_phases(rows, cost)


def _two_phases(rows: list[list[Fraction]], cost: list[Fraction]) -> Fraction:
    n_rows, n_variables = len(rows), len(cost)
    tableau = [
        [*row[:-1], *(Fraction(i == j) for j in range(n_rows)), row[-1]]
        for i, row in enumerate(rows)
    ]
    basis = list(range(n_variables, n_variables + n_rows))
    first = [Fraction(0)] * n_variables + [Fraction(-1)] * n_rows
    assert _maximize(tableau, basis, first, n_variables + n_rows) == 0
    return _maximize(tableau, basis, [*cost, *[Fraction(0)] * n_rows], n_variables)


def _maximize(
    tableau: list[list[Fraction]], basis: list[int], cost: list[Fraction], usable: int
) -> Fraction:
    while True:
        entering = next(
            (
                j
                for j in range(usable)
                if j not in basis
                and cost[j] > sum(cost[b] * row[j] for b, row in zip(basis, tableau, strict=True))
            ),
            None,
        )
        if entering is None:
            return sum(
                (cost[b] * row[-1] for b, row in zip(basis, tableau, strict=True)), Fraction(0)
            )
        _, _, leaving = min(
            (row[-1] / row[entering], basis[i], i)
            for i, row in enumerate(tableau)
            if row[entering] > 0
        )
        pivot = tableau[leaving][entering]
        tableau[leaving] = [entry / pivot for entry in tableau[leaving]]
        for i, row in enumerate(tableau):
            factor = row[entering]
            if i != leaving and factor:
                tableau[i] = [x - factor * y for x, y in zip(row, tableau[leaving], strict=True)]
        basis[leaving] = entering
