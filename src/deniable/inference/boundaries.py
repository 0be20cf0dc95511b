"""Boundaries that a sum of scores stays within at all times, with a given probability.

Let S_t be a sum of martingale differences and V_t the sum of their squares. Both functions return
a boundary u(V_t) with ``P(some t: |S_t| >= u(V_t)) <= alpha``, so the sum may be looked at after
every visitor and the experiment may be stopped by any rule.

`normal_mixture` is asymptotic: it treats the scores as normal with the measured variance
(Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory"). With
x = progress x tuning, where tuning = -2 log alpha + log(1 - 2 log alpha) makes the boundary
narrowest at progress 1, ``u = sqrt(V (1 + 1/x) log((1 + x) / alpha^2))``.

`bernstein_mixture` is exact for differences of at least -1 on either side (Howard, Ramdas, McAuliffe
and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", theorem 4). For
xi >= -1 and 0 <= l < 1, ``exp(l xi - psi(l) xi^2) <= 1 + l xi`` with psi(l) = -log(1 - l) - l. So
``exp(l S_t - psi(l) V_t)`` is a nonnegative supermartingale that starts at 1 for every l, and so is
a weighted mean over a fixed grid of l. By Ville's inequality it reaches 2/alpha with probability
alpha/2 at most; the boundary is the S at which it does, and -S covers the other side. No l is
chosen from the data, so the sums do not depend on alpha and individual rows are not needed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError

GRID = 40
SMALLEST, LARGEST = 1e-5, 0.9
NEWTON_STEPS = 100


def normal_mixture(variance: ArrayLike, progress: ArrayLike, alpha: float) -> Floats:
    """Return the asymptotic boundary of |S|.

    Args:
        variance: V, the sum of squared differences so far.
        progress: information so far as a share of what was planned; the boundary, in standard
            deviations, is lowest at 1 and rises slowly on both sides.
        alpha: probability that the sum ever crosses the boundary.

    >>> round(float(normal_mixture(variance=100.0, progress=1.0, alpha=0.05)), 4)
    30.3521
    """
    level = alpha_level(alpha)
    v = check.nonnegative("variance", variance)
    tuning = -2 * math.log(level) + math.log1p(-2 * math.log(level))
    x = check.nonnegative("progress", progress) * tuning
    with np.errstate(divide="ignore", invalid="ignore"):
        squared = v * (1 + 1 / x) * (np.log1p(x) - 2 * math.log(level))
    return check.unwrap(np.sqrt(np.where(x > 0, squared, np.inf)))


def bernstein_mixture(variance: ArrayLike, planned_variance: ArrayLike, alpha: float) -> Floats:
    """Return the exact boundary of |S|, for differences between -1 and 1.

    The grid of l is geometric; its weights follow a half-Cauchy distribution around the l that is
    best at the planned variance. For large V, a plan that is wrong by a factor of 10 adds less than
    a tenth to the width.

    Args:
        variance: V, the sum of squared differences so far.
        planned_variance: where the boundary should be lowest; fixed before seeing the data.
        alpha: probability that the sum ever leaves the two boundaries.

    >>> round(float(bernstein_mixture(variance=100.0, planned_variance=100.0, alpha=0.05)), 4)
    34.6517
    """
    level = alpha_level(alpha)
    v, planned = np.broadcast_arrays(
        check.nonnegative("variance", variance),
        check.nonnegative("planned_variance", planned_variance),
    )
    target = math.log(2 / level)
    edges = np.geomspace(SMALLEST, LARGEST, GRID + 1)
    bets = np.sqrt(edges[1:] * edges[:-1])
    psi = -np.log1p(-bets) - bets
    best = np.sqrt(2 * target / np.maximum(planned, 1e-12))[..., None]
    weights = np.diff(edges) / (1 + (bets / best) ** 2)
    log_weights = np.log(weights / weights.sum(axis=-1, keepdims=True))
    start = log_weights - psi * v[..., None]
    return check.unwrap(_crossing(start, bets, target))


def _crossing(start: FloatArray, bets: FloatArray, target: float) -> FloatArray:
    """Return the s at which log sum exp(start + bets s) reaches the target.

    The function is convex and increasing. Newton's method starts at an s where a single term
    reaches the target, so it approaches the solution from the right and never passes it. Whatever
    the number of steps, the boundary is not too small.
    """
    s: FloatArray = ((target - start) / bets).min(axis=-1)
    terms = np.empty_like(start)  # used again in every step: allocating takes longer than computing
    for _ in range(NEWTON_STEPS):
        np.multiply(bets, s[..., None], out=terms)
        terms += start
        top = terms.max(axis=-1)
        terms -= top[..., None]
        np.exp(terms, out=terms)
        size = terms.sum(axis=-1)
        terms *= bets
        step = (top + np.log(size) - target) * size / terms.sum(axis=-1)
        s = s - np.maximum(step, 0.0)
        if (step <= 1e-12 * s).all():
            break
    return s


def alpha_level(alpha: float) -> float:
    """Validate an error probability: above 0, below 1."""
    level = check.single("alpha", check.probability("alpha", alpha, open_at_zero=True))
    if level == 1:
        raise InvalidArgumentError("alpha", alpha, "a number above 0, below 1")
    return level
