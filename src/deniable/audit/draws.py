"""Tests whether arms were drawn as published: observed counts against the tables' probabilities.

Decision i names a table; from its row, arm j has a known probability p_ij. The counts O_j minus
their expectation E_j have the covariance V = sum of diag(p_i) - p_i p_i', even if tables were
learned from earlier draws (a martingale), so (O - E)' V^+ (O - E) is chi-square. If an expected
count is below 5, the p-value comes from simulating the design instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.audit.decisions import DecisionLog, Ints
from deniable.privacy.exact import SPACE

if TYPE_CHECKING:
    from deniable.audit.promise import Promise

SIMULATIONS = 1999
LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class DrawTest:
    """Observed against expected counts.

    Attributes:
        what: description.
        observed: observed counts.
        expected: counts expected from the tables.
        statistic: chi-square.
        degrees: degrees of freedom.
        p_value: probability of a deviation at least this large if draws follow the tables.
        simulated: whether the p-value comes from simulation, because there are few decisions.
    """

    what: str
    observed: tuple[int, ...]
    expected: tuple[float, ...]
    statistic: float
    degrees: int
    p_value: float
    simulated: bool


def probabilities(promise: Promise) -> dict[int, FloatArray]:
    """Return table number -> probability of each arm (column) in each row.

    After the segments come the neutral row and the row of unlisted segments: UNLISTED and NEUTRAL are
    indices from the end.
    """
    return {
        published.number: np.array(
            [
                [entry / SPACE for entry in row]
                for row in (
                    *published.table.rows,
                    promise.neutral_row(published.version),
                    published.table.unlisted,
                )
            ]
        )
        for published in promise.tables
    }


def compare_draws(promise: Promise, log: DecisionLog, seed: int = 0) -> list[DrawTest]:
    """Compare all arms, the share of each row's likeliest arm, and the arms by segment."""
    design = probabilities(promise)
    everyone = np.ones(log.size, dtype=bool)
    tests = [_arms("arms, all visitors", design, log, everyone, seed)]
    tests.append(_likeliest_share(design, log))
    for place in range(len(promise.segments)):
        mine = log.row == place
        if mine.any():
            tests.append(_arms(f"arms, segment {place + 1}", design, log, mine, seed))
    return tests


@dataclass(frozen=True)
class RowTests:
    """Chi-square tests for every row of every table that has enough visitors.

    Attributes:
        tested: rows with at least 5 expected shows of every arm.
        too_few: rows with fewer visitors than that.
        least: the smallest p-value; 1 if none was tested.
        table: the number of its table; None if none was tested.
        adjusted: the smallest p-value times the number of tests, at most 1.
    """

    tested: int
    too_few: int
    least: float
    table: int | None
    adjusted: float


def compare_rows(numbers: Sequence[int], p: FloatArray, shows: FloatArray) -> RowTests:
    """Test each table and segment by chi-square.

    Args:
        numbers: numbers of the tables.
        p: probabilities, (tables, rows, arms).
        shows: observed shows, in the same shape.

    >>> half = np.full((1, 2, 2), 0.5)
    >>> found = compare_rows([7], half, np.array([[[60.0, 40.0], [2.0, 1.0]]]))
    >>> found.tested, found.too_few, found.table, round(found.least, 4)
    (1, 1, 7, 0.0455)
    """
    from scipy.special import gammaincc

    visitors = shows.sum(axis=2)
    expected = p * visitors[:, :, None]
    possible = p > 0
    degrees = possible.sum(axis=2) - 1
    came = (visitors > 0) & (degrees > 0)
    enough = came & (np.where(possible, expected, np.inf).min(axis=2) >= LEAST_EXPECTED)
    if not enough.any():
        return RowTests(0, int(came.sum()), 1.0, None, 1.0)
    away = np.where(possible, shows - expected, 0.0) ** 2
    statistic = (away / np.where(expected > 0, expected, 1.0)).sum(axis=2)
    impossible = (np.where(possible, 0.0, shows) > 0).any(axis=2)
    tails = np.where(impossible, 0.0, gammaincc(np.maximum(degrees, 1) / 2, statistic / 2))
    tails = np.where(enough, tails, 2.0)
    tested, place = int(enough.sum()), np.unravel_index(int(tails.argmin()), tails.shape)
    least = float(tails[place])
    return RowTests(
        tested,
        int(came.sum()) - tested,
        least,
        int(numbers[int(place[0])]),
        min(1.0, least * tested),
    )


def _arms(
    what: str,
    design: dict[int, FloatArray],
    log: DecisionLog,
    chosen: NDArray[np.bool_],
    seed: int,
) -> DrawTest:
    """Compare the counts of every arm, in groups of decisions that were drawn from the same row."""
    groups, sizes = np.unique(
        np.stack([log.table[chosen], log.row[chosen]], axis=1), axis=0, return_counts=True
    )
    probability = np.array([design[table][row] for table, row in groups.tolist()])
    n_arms = probability.shape[1]
    observed = np.bincount(log.shown[chosen], minlength=n_arms)
    expected = sizes @ probability
    covariance = np.diag(expected) - probability.T @ (probability * sizes[:, None])
    inverse = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True)
    degrees = int(np.linalg.matrix_rank(covariance, tol=1e-10 * max(1.0, covariance.max())))
    difference = observed - expected
    statistic = float(difference @ inverse @ difference)
    shown = expected > 0
    few = bool(expected[shown].min() < LEAST_EXPECTED)
    if observed[~shown].any():  # an arm with probability 0 was shown
        statistic, p_value = float("inf"), 0.0
    elif degrees == 0:
        p_value = 1.0
    elif few:
        p_value = _simulated(probability, sizes, expected, inverse, statistic, seed)
    else:
        p_value = _chi_square_tail(statistic, degrees)
    return DrawTest(
        what,
        tuple(int(count) for count in observed),
        tuple(float(count) for count in expected),
        statistic,
        degrees,
        p_value,
        few,
    )


def _likeliest_share(design: dict[int, FloatArray], log: DecisionLog) -> DrawTest:
    """Test how often the row's likeliest arm was shown; too often would reveal too much."""
    groups, place, sizes = np.unique(
        np.stack([log.table, log.row], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    likeliest = np.array([int(design[table][row].argmax()) for table, row in groups.tolist()])
    chance = np.array([float(design[table][row].max()) for table, row in groups.tolist()])
    observed = int((log.shown == likeliest[place.ravel()]).sum())
    expected = float(sizes @ chance)
    variance = float(sizes @ (chance * (1 - chance)))
    statistic = (observed - expected) ** 2 / variance if variance > 0 else 0.0
    return DrawTest(
        "likeliest arm shown",
        (observed, log.size - observed),
        (expected, log.size - expected),
        statistic,
        1,
        _chi_square_tail(statistic, 1),
        False,
    )


def _simulated(
    probability: FloatArray,
    sizes: Ints,
    expected: FloatArray,
    inverse: FloatArray,
    statistic: float,
    seed: int,
) -> float:
    rng = np.random.default_rng(seed)
    counts = np.zeros((SIMULATIONS, expected.size))
    for size, row in zip(sizes, probability, strict=True):
        counts += rng.multinomial(int(size), row / row.sum(), size=SIMULATIONS)
    away = counts - expected
    simulated = np.einsum("ij,jk,ik->i", away, inverse, away)
    return float((1 + (simulated >= statistic - 1e-9).sum()) / (SIMULATIONS + 1))


def _chi_square_tail(statistic: float, degrees: int) -> float:
    from scipy.special import gammaincc

    return float(gammaincc(degrees / 2, statistic / 2))
