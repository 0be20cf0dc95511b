"""The cost of arm-specific budgets: regret per visitor, and the excess over one common budget.

With c_j = 1/(e^risk_j - 1) and C their sum, a visitor at clock t costs at most ``C/(1+C) + 2 sqrt(2
log t / (t q_min))`` with q_min = min_j c_j / (1 + C). Compared with the symmetric mechanism of the
same largest risk, everything depends on ``gap = C - K / (e^max_risk - 1) >= 0``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError
from deniable.theory.regret import B, Form, _as_printed, _learners, over_segments


def heterogeneity_gap(risks: ArrayLike) -> Floats:
    """Return Delta: sum_j 1/(e^risk_j - 1) - K/(e^max - 1); 0 if all risks are equal.

    Args:
        risks: privacy risk of each arm on the last axis, shape (..., K), all above 0.

    >>> round(float(heterogeneity_gap([0.5, 1, 2])), 4)
    1.8104
    """
    parts = _positive(risks)
    largest = parts.max(axis=-1, keepdims=True)
    # 1/(e^a - 1) - 1/(e^m - 1) = e^-a (1 - e^-(m - a)) / ((1 - e^-a)(1 - e^-m)), without
    # cancellation.
    terms = np.exp(-parts) * np.expm1(parts - largest) / (np.expm1(-parts) * -np.expm1(-largest))
    return check.unwrap(np.asarray(np.abs(terms).sum(axis=-1)))


def arm_specific_per_round_regret(risks: ArrayLike, clock: ArrayLike) -> Floats:
    """Return the bound for one visitor under the arm-specific mechanism.

    Args:
        risks: shape (..., K).
        clock: t, broadcast against the leading shape of the risks.

    >>> round(float(arm_specific_per_round_regret([0.5, 1, 2], 10_000)), 6)
    1.088071
    """
    parts = _positive(risks)
    t = check.count("clock", clock, 1)
    total, least = _total_and_least(parts)
    radius = 2 * np.sqrt(2 * np.log(t) / t) * np.sqrt(1 + total) / np.sqrt(least)
    return check.unwrap(np.asarray(total / (1 + total) + radius))


def arm_specific_constant_regret(
    risks: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the bound of the arm-specific constant strategy over all visitors.

    The sum of the visitors' bounds: T C/(1+C) + B sqrt(J T log T / q_min). If all risks are equal,
    this is the symmetric T e + B sqrt(K J T log T / e).

    Args:
        risks: the arms' budgets, shape (..., K).
        horizon: T.
        n_segments: J.
        form: "paper" as above, or "summed" over the segments.
        shares: share of the visitors in each segment, for "summed"; equal by default.

    >>> round(float(arm_specific_constant_regret([0.5, 1, 2], 10_000)), 1)
    14810.2
    """
    parts = _positive(risks)
    visitors = check.count("horizon", horizon, 1)
    segments = check.count("n_segments", n_segments, 1)
    total, least = _total_and_least(parts)
    if form == "summed":
        learning, roots = over_segments(_learners, total, visitors, segments, shares)
        lost = visitors - learning + learning * total / (1 + total)
        return check.unwrap(np.asarray(lost + B * roots * np.sqrt(1 + total) / np.sqrt(least)))
    _as_printed(form, shares)
    estimation = B * np.sqrt(segments * visitors * np.log(visitors) * (1 + total)) / np.sqrt(least)
    return check.unwrap(np.asarray(visitors * total / (1 + total) + estimation))


def arm_specific_excess(risks: ArrayLike, clock: ArrayLike) -> Floats:
    """Return how far the arm-specific bound exceeds the symmetric one with the same largest risk.

    >>> round(float(arm_specific_excess([0.5, 1, 2], 10_000)), 6)
    0.505527
    """
    return _excess(risks, clock, linear=False)


def arm_specific_excess_linear(risks: ArrayLike, clock: ArrayLike) -> Floats:
    """Return an upper bound on the excess that is linear in the heterogeneity gap.

    >>> round(float(arm_specific_excess_linear([0.5, 1, 2], 10_000)), 6)
    1.000343
    """
    return _excess(risks, clock, linear=True)


def _excess(risks: ArrayLike, clock: ArrayLike, *, linear: bool) -> Floats:
    parts = _positive(risks)
    t = check.count("clock", clock, 1)
    gap = np.asarray(heterogeneity_gap(parts))
    least = _inverse_odds(parts.max(axis=-1))
    common = 1 + parts.shape[-1] * least  # 1 + C of the symmetric mechanism
    shifted = common if linear else common + gap
    radius = 2 * np.sqrt(2 * np.log(t) / t) / np.sqrt(least)
    slope = 1 / (shifted * common) + radius / (np.sqrt(shifted) + np.sqrt(common))
    return check.unwrap(np.asarray(gap * slope))


def _positive(risks: ArrayLike) -> FloatArray:
    parts = check.nonnegative("risks", risks)
    if parts.ndim == 0 or parts.shape[-1] < 2 or (parts == 0).any():
        raise InvalidArgumentError("risks", risks, "risks above 0 for each of 2 or more arms")
    return parts


def _inverse_odds(risks: FloatArray) -> FloatArray:
    """Return 1/(e^risk - 1), kept above the smallest float."""
    return np.asarray(np.maximum(np.exp(-risks) / -np.expm1(-risks), 5e-324))


def _total_and_least(risks: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.asarray(_inverse_odds(risks).sum(axis=-1)), _inverse_odds(risks.max(axis=-1))
