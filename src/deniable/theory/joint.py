"""Regret bound of the joint strategy's optimistic variant: for ranking plans, not for forecasts.

With m = min(J, K), price p(g) = (m - 1) / (m - 1 + e^g) and growth rho of the epochs:

    R = T p(g) + l,   l = 4 sqrt(3 K J T log T) + 2 sqrt(rho (J - 1) T) + (rho + 2) K J

bounds the loss against each segment's best arm, up to the length of the first epoch. The first term
is what the best table with known rates may lose; l is the cost of learning, independent of the budget.
The bound is proved for an optimistic strategy and holds for any rates; measured regret is 50 to 200
times smaller. It falls as the budget grows, so the best budget is by convention where price and learning
are equal. With one segment nothing can leak: the price is 0 and no budget is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError
from deniable.theory.regret import RegretTerms, _sizes, _terms

GROWTH = 1.5
"""The epochs' growth rho for which the bound is quoted; any number above 1, up to 2, is allowed."""


def joint_price(n_arms: ArrayLike, budget: ArrayLike, n_segments: ArrayLike) -> Floats:
    """Return the most clicks that the best private table can lose: (m - 1) / (m - 1 + e^budget).

    >>> round(float(joint_price(8, 1, 2)), 6)
    0.268941
    """
    arms = check.count("n_arms", n_arms, 2)
    segments = check.count("n_segments", n_segments, 1)
    return check.unwrap(_price(_others(arms, segments), check.risk("budget", budget)))


def joint_regret_terms(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike,
    *,
    growth: float = GROWTH,
) -> RegretTerms:
    """Return the bound by term: learning the rates, the price of privacy, and shares and epochs.

    >>> [round(float(term), 1) for term in joint_regret_terms(2, 10_000, 1, 2)]
    [4205.2, 2689.4, 258.9]
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    price = _price(_others(arms, segments), check.nonnegative("budget", budget))
    learning, rest = _learning(arms, visitors, segments, _growth(growth))
    return _terms(learning, visitors * price, rest)


def joint_regret(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike,
    *,
    growth: float = GROWTH,
) -> Floats:
    """Return the bound.

    >>> round(float(joint_regret(2, 10_000, 1, 2)), 3)
    7153.581
    """
    return joint_regret_terms(n_arms, horizon, budget, n_segments, growth=growth).total


def joint_gain(
    n_arms: ArrayLike, horizon: ArrayLike, budget: ArrayLike, n_segments: ArrayLike
) -> Floats:
    """Return the marginal learning gain, -dR/d budget = T (m - 1) e^g / (m - 1 + e^g)^2.

    >>> round(float(joint_gain(2, 10_000, 1, 2)), 3)
    1966.119
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    return check.unwrap(np.asarray(visitors * _fall(_others(arms, segments), cap)))


def joint_elasticity(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike,
    *,
    growth: float = GROWTH,
) -> Floats:
    """Return the elasticity of the bound, (budget / R) dR/d budget: never above 0.

    >>> round(float(joint_elasticity(2, 10_000, 1, 2)), 6)
    -0.274844
    """
    cap = check.nonnegative("budget", budget)
    regret = np.asarray(joint_regret(n_arms, horizon, cap, n_segments, growth=growth))
    gain = np.asarray(joint_gain(n_arms, horizon, cap, n_segments))
    return check.unwrap(np.asarray(0.0 - cap * gain / regret))


def best_joint_budget(
    n_arms: ArrayLike, horizon: ArrayLike, n_segments: ArrayLike, *, growth: float = GROWTH
) -> Floats:
    """Return the budget at which the price of privacy equals the cost of learning, or 0.

    >>> round(float(best_joint_budget(2, 10_000, 2)), 6)
    0.21516
    """
    return joint_budget_for_regret(n_arms, horizon, 1.0, n_segments, growth=growth)


def joint_budget_for_regret(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    excess: ArrayLike,
    n_segments: ArrayLike,
    *,
    growth: float = GROWTH,
) -> Floats:
    """Return the smallest budget whose bound is within `excess` of the bound without privacy.

    Args:
        n_arms: K.
        horizon: T.
        excess: relative amount by which the bound may exceed the cost of learning, above 0.
        n_segments: J.
        growth: rho.

    >>> round(float(joint_budget_for_regret(2, 10_000, 0.05, 2)), 4)
    3.7797
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    part = check.nonnegative("excess", excess)
    if (part == 0).any():
        raise InvalidArgumentError("excess", 0, "a number above 0: the bound falls forever")
    learning, rest = _learning(arms, visitors, segments, _growth(growth))
    others = _others(arms, segments)
    # T (m-1) / (m-1 + e^g) = excess l, solved for e^g.
    power = others * (visitors / (part * (learning + rest)) - 1)
    return check.unwrap(np.asarray(np.log(np.maximum(power, 1.0))))


def _others(arms: FloatArray, segments: FloatArray) -> FloatArray:
    """m - 1: the number of other arms that a segment's best arm competes with."""
    return np.minimum(arms, segments) - 1


def _price(others: FloatArray, budget: FloatArray) -> FloatArray:
    decay = np.exp(-budget)
    return np.asarray(others * decay / (others * decay + 1))


def _fall(others: FloatArray, budget: FloatArray) -> FloatArray:
    """-dp/d budget."""
    decay = np.exp(-budget)
    return np.asarray(others * decay / (others * decay + 1) ** 2)


def _learning(
    arms: FloatArray, visitors: FloatArray, segments: FloatArray, growth: float
) -> tuple[FloatArray, FloatArray]:
    pairs = arms * segments
    rates = 4 * np.sqrt(3 * pairs * visitors * np.log(visitors))
    shares = 2 * np.sqrt(growth * (segments - 1) * visitors)
    return rates, np.asarray(shares + (growth + 2) * pairs)


def _growth(growth: float) -> float:
    value = check.single("growth", check.nonnegative("growth", growth))
    if not 1 < value <= 2:
        raise InvalidArgumentError("growth", growth, "a number above 1, up to 2")
    return value
