"""Click rates after a run, given its counts: takes most of the luck out of simulated gains.

What a strategy showed is worth its arms' true click rates, which were drawn from the prior. The expected
rates given the counts have the same mean over many runs and vary less: little was learned where the
signal is small, so that hardly any luck is left. Both posterior means are exact up to the grid, because
arms are drawn independently of each other and how they came to be shown does not matter.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable._validation import FloatArray
from deniable.expectations.prior import Prior

_WIDTH = 5.5
"""Standard deviations of the lifts on each side of the grid."""

_FEWEST = 121
_PER_ROOT_SIGNAL = 11


class Learned(NamedTuple):
    """What the counts say.

    Attributes:
        rates: expected click rates by segment and arm, (J, K).
        best: expected rate of each segment's best arm, (J,).
    """

    rates: FloatArray
    best: FloatArray


def learned(
    prior: Prior, shows: NDArray[np.int64], clicks: NDArray[np.int64], signal: float
) -> Learned:
    """Posterior means, given shows and clicks by segment and arm, (J, K).

    Args:
        prior: of the click rates. Heterogeneity 1: every segment is judged by its own counts.
        shows: by segment and arm.
        clicks: the same.
        signal: T p d^2 / (1 - p), by which the grid is made fine enough.

    >>> found = learned(Prior(0.1, 0.1, 1.0), np.array([[0, 0]]), np.array([[0, 0]]), 1.0)
    >>> found.rates.round(6).tolist(), found.best.round(4).tolist()
    ([[0.1, 0.1]], [0.1056])
    """
    z = _grid(signal)
    rate = prior.clipped(z)
    logs = clicks[..., None] * np.log(rate) + (shows - clicks)[..., None] * np.log1p(-rate)
    weight = _likelihood(logs)
    if len(shows) == 1 or prior.heterogeneity == 1:
        weight *= np.exp(-(z**2) / 2)
    else:
        weight *= _shared(weight, z, prior.heterogeneity)
    weight /= weight.sum(axis=-1, keepdims=True)
    below = np.cumsum(weight, axis=-1).prod(axis=1)  # that no arm of the segment is better
    return Learned(weight @ rate, np.diff(below, axis=-1, prepend=0.0) @ rate)


class Unlearned(NamedTuple):
    """What nobody has learned anything about.

    Attributes:
        rate: expected click rate of an arm.
        best: expected rate of the best arm.
    """

    rate: float
    best: float


@lru_cache(maxsize=64)
def unlearned(prior: Prior, n_arms: int, n_segments: int, signal: float) -> Unlearned:
    """The same before any visitor, on the same grid: the mean of `learned` over many runs.

    It differs from the exact means by a small part of what the grid blurs. Where the signal is small,
    posterior means vary by less than that.

    >>> unlearned(Prior(0.1, 0.1, 1.0), 2, 1, 1.0).best.__round__(4)
    0.1056
    """
    z = _grid(signal)
    weight = np.exp(-(z**2) / 2)
    if n_segments > 1 and prior.heterogeneity < 1:
        weight = _shared(np.ones((2, 1, z.size)), z, prior.heterogeneity)[0, 0]
    weight = weight / weight.sum()
    rate = prior.clipped(z)
    below = np.cumsum(weight) ** n_arms
    return Unlearned(float(weight @ rate), float(np.diff(below, prepend=0.0) @ rate))


MOST_JUDGED = 3000.0
"""The largest signal at which runs are judged by their counts; above, little luck is left."""

LEAST_APART = 0.01
"""The least heterogeneity of several segments for which the grid is fine enough."""


class Judged(NamedTuple):
    """A run by the rates that are expected given its counts, by visitor.

    Attributes:
        shown: what the shown arms are expected to have more than usual.
        best: the same of the best arms, less what these have usually; 0 on average.
        usual: the same of all arms in equal parts; 0 on average.
    """

    shown: float
    best: float
    usual: float


def judge(
    prior: Prior, shows: NDArray[np.int64], clicks: NDArray[np.int64], signal: float
) -> Judged:
    """Judge a run by its counts; arguments as in `learned`.

    >>> judge(Prior(0.1, 0.1, 1.0), np.array([[9, 9]]), np.array([[9, 0]]), 1.0).shown > 0
    True
    """
    found = learned(prior, shows, clicks, signal)
    before = unlearned(prior, shows.shape[1], len(shows), signal)
    total = float(shows.sum())
    seen = shows.sum(axis=1) / total
    return Judged(
        float((found.rates * shows).sum() / total) - before.rate,
        float(found.best @ seen) - before.best,
        float(found.rates.mean(axis=1) @ seen) - before.rate,
    )


def _grid(signal: float) -> FloatArray:
    return np.linspace(-_WIDTH, _WIDTH, grid_points(signal))


def grid_points(signal: float) -> int:
    """How many points the grid has; what judging a run takes grows with their square.

    >>> grid_points(1.0), grid_points(3000.0)
    (121, 603)
    """
    return max(_FEWEST, math.ceil(_PER_ROOT_SIGNAL * math.sqrt(signal)))


def _shared(likelihood: FloatArray, z: FloatArray, part: float) -> FloatArray:
    """Density of a cell's lift given the counts of the arm's other segments, (J, K, points)."""
    segments, arms, points = likelihood.shape
    given = _given_shared(points, part)
    seen = likelihood.reshape(-1, points) @ given.T
    logs = np.log(np.maximum(seen, 1e-300)).reshape(segments, arms, points)
    others = logs.sum(axis=0) - logs - z**2 / 2
    found = _likelihood(others).reshape(-1, points) @ given
    return np.asarray(found.reshape(segments, arms, points))


@lru_cache(maxsize=4)  # all runs of a simulation have one prior
def _given_shared(points: int, part: float) -> FloatArray:
    """Probability of a cell's lift given the arm's shared one, (shared, cell)."""
    z = np.linspace(-_WIDTH, _WIDTH, points)
    given: FloatArray = np.exp(-((z - math.sqrt(1 - part) * z[:, None]) ** 2) / (2 * part))
    given /= given.sum(axis=1, keepdims=True)
    given.setflags(write=False)
    return given


def _likelihood(logs: FloatArray) -> FloatArray:
    return np.asarray(np.exp(logs - logs.max(axis=-1, keepdims=True)))
