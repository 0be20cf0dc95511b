"""Were arms drawn as designed? Observed arms against the tables' probabilities, with a p-value.

Given the recorded risk and greedy arm, decision i shows arm j with a known probability p_ij. The
counts O_j minus their sum E_j have covariance V = sum of diag(p_i) - p_i p_i', also where the greedy
arm was learned from earlier draws (a martingale), so (O - E)' V^+ (O - E) is chi-square. Where an
expected count is below 5 the p-value comes from simulating the design instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable._validation import FloatArray
from deniable.audit.decisions import DecisionLog, Ints
from deniable.privacy.serving import SPACE

if TYPE_CHECKING:
    from deniable.audit.promise import Promise

SIMULATIONS = 1999
LEAST_EXPECTED = 5.0


class Design(NamedTuple):
    """The probabilities of the tables that a log met.

    Attributes:
        pieces: of each table (row) and arm, drawn whatever the greedy arm; 0 for arms switched off.
        bonus: of each table, added to the greedy arm.
        table: which of these tables each decision was drawn from.
        greedy: the greedy arm of each decision.
    """

    pieces: FloatArray
    bonus: FloatArray
    table: Ints
    greedy: Ints


@dataclass(frozen=True)
class DrawTest:
    """Observed against expected counts.

    Attributes:
        what: in words.
        observed: counts.
        expected: what the tables ask for, to be compared with it.
        statistic: chi-square.
        degrees: of freedom.
        p_value: how often drawing as designed looks at least as far off.
        simulated: whether the p-value comes from simulation: few decisions.
    """

    what: str
    observed: tuple[int, ...]
    expected: tuple[float, ...]
    statistic: float
    degrees: int
    p_value: float
    simulated: bool


def design(promise: Promise, log: DecisionLog) -> Design:
    """The tables of the log, looked up once each."""
    keys = np.stack([log.version, log.risk_nano], axis=1)
    distinct, table = np.unique(keys, axis=0, return_inverse=True)
    pieces = np.zeros((len(distinct), len(promise.arms)))
    bonus = np.zeros(len(distinct))
    for row, (version, risk) in enumerate(distinct.tolist()):
        found = promise.table(version, risk)
        pieces[row, list(promise.versions[version])] = [piece / SPACE for piece in found.pieces]
        bonus[row] = found.bonus / SPACE
    return Design(pieces, bonus, table.ravel().astype(np.int64), log.greedy)


def compare_draws(promise: Promise, log: DecisionLog, seed: int = 0) -> list[DrawTest]:
    """The arms over all visitors, the share of greedy arms, and the arms within each segment."""
    drawn = design(promise, log)
    n_arms = len(promise.arms)
    everyone = np.ones(log.size, dtype=bool)
    tests = [_arms("arms, all visitors", drawn, log, everyone, n_arms, seed)]
    tests.append(_greedy_share(drawn, log))
    for place in range(len(promise.segments)):
        mine = log.segment == place
        if mine.any():
            name = f"arms, segment {place + 1}"
            tests.append(_arms(name, drawn, log, mine, n_arms, seed))
    return tests


def _arms(
    what: str, drawn: Design, log: DecisionLog, chosen: np.ndarray, n_arms: int, seed: int
) -> DrawTest:
    """Counts of every arm, by groups of decisions that share their probabilities."""
    code = drawn.table[chosen] * n_arms + drawn.greedy[chosen]
    groups, sizes = np.unique(code, return_counts=True)
    probability = drawn.pieces[groups // n_arms].copy()
    probability[np.arange(groups.size), groups % n_arms] += drawn.bonus[groups // n_arms]
    observed = np.bincount(log.shown[chosen], minlength=n_arms)
    expected = sizes @ probability
    weighted = probability * sizes[:, None]
    covariance = np.diag(expected) - probability.T @ weighted
    inverse = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True)
    degrees = int(np.linalg.matrix_rank(covariance, tol=1e-10 * max(1.0, covariance.max())))
    difference = observed - expected
    statistic = float(difference @ inverse @ difference)
    shown = expected > 0
    few = bool(expected[shown].min() < LEAST_EXPECTED)
    if observed[~shown].any():  # an arm that could not be shown
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


def _greedy_share(drawn: Design, log: DecisionLog) -> DrawTest:
    """How often the greedy arm was shown: too often is what would tell a tracker too much."""
    probability = drawn.pieces[drawn.table, drawn.greedy] + drawn.bonus[drawn.table]
    expected, variance = float(probability.sum()), float((probability * (1 - probability)).sum())
    observed = int((log.shown == log.greedy).sum())
    statistic = (observed - expected) ** 2 / variance if variance > 0 else 0.0
    return DrawTest(
        "greedy arm shown",
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
