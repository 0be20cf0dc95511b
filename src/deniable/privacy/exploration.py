"""Conversion between privacy risk and exploration probability, which determine each other.

For the symmetric K-ary randomized response, the shown arm is the greedy one with probability
e^risk / (K - 1 + e^risk) and each other arm with 1 / (K - 1 + e^risk). That is epsilon-greedy with
``exploration = K / (K - 1 + e^risk)``. Risk 0 is uniform, infinite risk is purely greedy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats


def exploration_from_risk(n_arms: ArrayLike, risk: ArrayLike) -> Floats:
    """Return the probability that the shown arm is drawn uniformly: K / (K - 1 + e^risk).

    Args:
        n_arms: K, the number of arms, 2 or more.
        risk: xi, the privacy risk of one visitor, 0 or more.

    >>> round(float(exploration_from_risk(2, 0.05)), 6)
    0.975005
    """
    arms = check.count("n_arms", n_arms, 2)
    return check.unwrap(_exploration(arms, check.risk("risk", risk)))


def exploitation_from_risk(n_arms: ArrayLike, risk: ArrayLike) -> Floats:
    """Return 1 - exploration = (e^risk - 1) / (K - 1 + e^risk), accurate also for tiny risks.

    >>> round(float(exploitation_from_risk(2, 1e-9)) * 1e9, 12)
    0.5
    """
    arms = check.count("n_arms", n_arms, 2)
    xi = check.risk("risk", risk)
    return check.unwrap(np.asarray(-np.expm1(-xi) / (1 + (arms - 1) * np.exp(-xi))))


def risk_from_exploration(n_arms: ArrayLike, exploration: ArrayLike) -> Floats:
    """Invert `exploration_from_risk`: log(1 - K + K / exploration), for exploration in (0, 1].

    >>> round(float(risk_from_exploration(2, 0.094852)), 3)
    3.0
    """
    arms = check.count("n_arms", n_arms, 2)
    rate = check.probability("exploration", exploration, open_at_zero=True)
    return check.unwrap(_risk(arms, rate))


class _AtBudget(NamedTuple):
    """Quantities of a budget that the bounds need, from one exponential.

    Attributes:
        rate: e = K / (K - 1 + e^budget), the exploration.
        fall: -(1/e) de/d budget = e^budget / (K - 1 + e^budget), the greedy arm's probability.
        root: sqrt(K / e), finite for every budget.
    """

    rate: FloatArray
    fall: FloatArray
    root: FloatArray


def _at_budget(arms: FloatArray, budget: FloatArray) -> _AtBudget:
    # From 1,300 nats on, the root stays at e^650, so that no bound built on it overflows.
    half = np.exp(np.maximum(budget / -2, -650.0))
    decay = half * half
    inverse = 1 + (arms - 1) * decay
    fall = 1 / inverse
    return _AtBudget(arms * decay * fall, fall, np.sqrt(inverse) / half)


def _exploration(arms: FloatArray, risk: FloatArray) -> FloatArray:
    # Divide by e^risk, so that nothing overflows before the result underflows.
    decay = np.exp(-risk)
    return np.asarray(arms * decay / ((arms - 1) * decay + 1))


def _risk(arms: FloatArray, rate: FloatArray) -> FloatArray:
    # log((1 + (K-1)(1-rate)) / rate): two terms of one sign, so nothing cancels near rate = 1.
    return np.asarray(np.log1p((arms - 1) * (1 - rate)) - np.log(rate))
