"""Sums over visitors by fold and cell, so that what is chosen from some folds is judged on others.

Folds are eighths of the visitors by hash. Without ids, every exposure is put into a random one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray

FOLDS = 8
"""A power of 2: a fold is the lowest bits of a visitor's hash. Even and odd ones are the halves."""

MOMENTS = (
    "shown",
    "reward",
    "square",
    "weight",
    "weighted",
    "weight2",
    "weighted2",
    "weighted_square",
    "timed",
    "days",
    "squared_days",
)
"""Visitors; sums of the reward Y and of Y^2; of 1/p, Y/p, 1/p^2, Y/p^2 and Y^2/p^2, p the propensity;
visitors with a time, sums of their times and squared times in days since `EPOCH`."""

N_PLAIN, N_WEIGHTED = 3, 8
"""How many of the moments need no propensities, and how many no times."""

EPOCH = 1_700_000_000_000_000
"""Microseconds since 1970; near the times of logs, so that squares keep their digits."""

_DAY = 86_400e6


def added(
    place: NDArray[np.int64],
    shape: tuple[int, ...],
    shown: FloatArray,
    reward: FloatArray,
    square: FloatArray,
    *,
    propensity: FloatArray | None,
    time: NDArray[np.int64] | None,
) -> FloatArray:
    """Return the moments of visitors, (moments, folds, C).

    Args:
        place: fold and cell of each, as an index into a flat array of this shape.
        shape: folds and cells.
        shown: visitors; more than 1 where a row stands for several.
        reward: sum of their rewards.
        square: sum of their squared rewards.
        propensity: with which the shown variant was drawn; None if unknown.
        time: in microseconds since 1970, the largest integer if missing; None without times.
    """
    moments = [shown, reward, square]
    if propensity is not None:
        once = 1 / propensity
        moments += [once * shown, once * reward]
        moments += [once**2 * part for part in (shown, reward, square)]
    else:
        moments += [np.zeros(place.size)] * (N_WEIGHTED - N_PLAIN)
    if time is not None:
        timed = np.where(time < np.iinfo(np.int64).max, shown, 0.0)
        days = np.where(timed > 0, (time - EPOCH) / _DAY, 0.0)
        moments += [timed, timed * days, timed * days**2]
    else:
        moments += [np.zeros(place.size)] * (len(MOMENTS) - N_WEIGHTED)
    size = int(np.prod(shape))
    return np.stack([np.bincount(place, part, size).reshape(shape) for part in moments])


def halves(moments: FloatArray) -> FloatArray:
    """Return the sums of the even and of the odd folds, (moments, 2, ...)."""
    shape = moments.shape
    return np.asarray(moments.reshape(shape[0], FOLDS // 2, 2, *shape[2:]).sum(axis=1))
