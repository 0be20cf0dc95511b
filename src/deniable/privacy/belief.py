"""What a watcher can infer from one shown arm: the meaning of a budget."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.errors import InvalidArgumentError


def highest_belief(prior: ArrayLike, risk: ArrayLike) -> Floats:
    """Return the highest belief possible after one shown arm: p e^risk / (p e^risk + 1 - p).

    Args:
        prior: p, the belief before, in [0, 1].
        risk: xi, or the budget that limits it.

    >>> round(float(highest_belief(0.2, 1)), 3)
    0.405
    """
    p = check.probability("prior", prior)
    with np.errstate(invalid="ignore"):  # 0/0 if the prior is 0 and the risk infinite
        posterior = p / (p + (1 - p) * np.exp(-check.risk("risk", risk)))
    return check.unwrap(np.where(p == 0, 0.0, posterior))


def lowest_belief(prior: ArrayLike, risk: ArrayLike) -> Floats:
    """Return the lowest belief possible after one shown arm: p e^-risk / (p e^-risk + 1 - p).

    >>> round(float(lowest_belief(0.2, 1)), 3)
    0.084
    """
    p = check.probability("prior", prior)
    shrunk = p * np.exp(-check.risk("risk", risk))
    with np.errstate(invalid="ignore"):  # 0/0 if the prior is 1 and the risk infinite
        posterior = shrunk / (shrunk + (1 - p))
    return check.unwrap(np.where(p == 1, 1.0, posterior))


def belief_curve(risk: float, n_points: int = 201) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return priors over [0, 1] with the lowest and the highest belief after one shown arm.

    >>> prior, low, high = belief_curve(1.0, n_points=3)
    >>> high.round(3).tolist()
    [0.0, 0.731, 1.0]
    """
    priors = np.linspace(0, 1, check.whole("n_points", n_points, 2))
    low = np.asarray(lowest_belief(priors, risk))
    high = np.asarray(highest_belief(priors, risk))
    return priors, low, high


def budget_for_belief(prior: ArrayLike, belief: ArrayLike) -> Floats:
    """Return the largest budget that keeps a watcher with this prior at or below this belief.

    This is the difference of the log odds. It is infinite for a prior of 0, which never moves. The
    belief must not be below the prior, because no budget can promise that.

    >>> round(float(budget_for_belief(0.2, 0.4)), 4)
    0.9808
    """
    p, q = np.broadcast_arrays(
        check.probability("prior", prior), check.probability("belief", belief)
    )
    if (q < p).any():
        first = q[q < p].flat[0]
        raise InvalidArgumentError("belief", float(first), "a number from the prior to 1")
    with np.errstate(divide="ignore", invalid="ignore"):
        budget = (np.log(q) - np.log(p)) + (np.log1p(-p) - np.log1p(-q))
    return check.unwrap(np.where((p == 0) | (q == 1), np.inf, np.where(p == q, 0.0, budget)))
