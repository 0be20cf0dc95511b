"""What canaries can detect: simultaneous exact binomial limits, and their power."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError

_DEVIATIONS = 9.0


def cell_limits(counts: ArrayLike, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper limits (Clopper and Pearson) of each cell's share of its row.

    All limits of all cells hold simultaneously with a probability of at least 1 - alpha.

    Args:
        counts: (rows, arms).
        alpha: probability that any of the limits is wrong.

    >>> low, high = cell_limits([[30, 70]], 0.05)
    >>> [round(float(x), 3) for x in (*low[0], *high[0])]
    [0.202, 0.586, 0.414, 0.798]
    """
    from scipy.special import betaincinv

    shown = np.asarray(counts, dtype=np.float64)
    if shown.ndim != 2 or (shown < 0).any():
        raise InvalidArgumentError("counts", shown.shape, "a table of counts, 0 or more")
    level = alpha / (2 * shown.size)
    total = shown.sum(axis=1, keepdims=True) * np.ones_like(shown)
    low = betaincinv(np.maximum(shown, 1), total - shown + 1, level)
    high = betaincinv(shown + 1, np.maximum(total - shown, 1), 1 - level)
    return np.where(shown > 0, low, 0.0), np.where(shown < total, high, 1.0)


def power(
    visitors: int, n_arms: int, n_rows: int, budget: float, excess: float, alpha: float
) -> float:
    """Return the probability that counts alone prove a risk above the budget, if it is exceeded.

    One segment's arm is shown e^(budget + excess) times as often as in another segment, all other
    arms equally: the table of a symmetric mechanism with too large a budget. Exact, by summing over
    the binomial count of the first segment.

    Args:
        visitors: number in each segment.
        n_arms: number of shown arms.
        n_rows: number of segments with simultaneous limits.
        budget: promised budget, in nats.
        excess: in nats.
        alpha: probability of accusing a sound service.

    >>> round(power(100_000, 5, 3, 2.0, 0.1, 0.001), 4)
    1.0
    >>> round(power(100_000, 5, 3, 3.0, 0.1, 0.001), 3)
    0.982
    """
    from scipy.special import bdtr, betaincinv
    from scipy.stats import binom

    level = alpha / (2 * n_rows * n_arms)
    factor = math.exp(budget + excess)
    least = 1 / (n_arms - 1 + factor)
    most = factor * least
    often, seldom = _around(visitors, most), _around(visitors, least)
    low = betaincinv(np.maximum(often, 1), visitors - often + 1, level)
    high = betaincinv(seldom + 1, np.maximum(visitors - seldom, 1), 1 - level)
    # The largest count in the other segment for which the ratio is proven to be above e^budget.
    enough = seldom[0] - 1 + np.searchsorted(high, low * math.exp(-budget))
    proven = np.where(enough >= 0, bdtr(np.maximum(enough, 0), visitors, least), 0.0)
    return float((binom.pmf(often, visitors, most) * proven).sum())


def noticed_excess(
    visitors: int, n_arms: int, n_rows: int, budget: float, alpha: float, wanted: float = 0.99
) -> float | None:
    """Return the smallest excess (nats, rounded up to a thousandth) detected this often, or None.

    >>> noticed_excess(100_000, 5, 3, 2.0, 0.001)
    0.075
    """
    low, high = 0, 8_000
    if power(visitors, n_arms, n_rows, budget, high / 1000, alpha) < wanted:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = power(visitors, n_arms, n_rows, budget, middle / 1000, alpha) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high / 1000


def _around(visitors: int, chance: float) -> FloatArray:
    """Return all counts with a non-negligible probability."""
    mean = visitors * chance
    room = _DEVIATIONS * math.sqrt(mean * (1 - chance)) + _DEVIATIONS**2
    return np.arange(max(0, math.floor(mean - room)), min(visitors, math.ceil(mean + room)) + 1.0)
