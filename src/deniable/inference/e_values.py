"""Evidence that draws do not follow the published tables, valid after every visitor.

An e-value has mean at most 1 if the draws follow the tables. By Ville's inequality, the probability
that it ever reaches 1/alpha is at most alpha, however often one looks. A sound experiment therefore
reaches 1000 with a probability of at most one in a thousand over its whole life.

The alternative is a tilt: an arm whose odds are e^d times what the table says. With p_t the arm's
probability in table t, n_t draws and x shows in all, the likelihood ratio is

    exp(d x - Lambda(d)),  Lambda(d) = sum n_t log(1 + p_t (e^d - 1)),

a martingale of mean 1 in the order of the visitors, whatever rule made the tables. The e-value is
the mean over a grid of d in both directions. It is a function of counts; a bias that is common to
all tables adds up over them. A tilt of the odds by e^d moves the logarithm of the ratio that the
promise bounds by at most |d|, so `smallest_excess` is in the units of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.inference._special import log_gamma
from deniable.inference.boundaries import alpha_level
from deniable.inference.state import VisitorBatch

_ONE_WAY = np.geomspace(0.002, 4.0, 16)
TILTS: FloatArray = np.concatenate([-_ONE_WAY[::-1], _ONE_WAY])
CONCENTRATION = 100.0


@dataclass(frozen=True, eq=False)
class DrawEvidence:
    """Evidence that draws did not follow their tables, as natural logarithms of e-values.

    Attributes:
        log_e_value: of everything together: the mean of all e-values below.
        arms: each arm being shown too often or too rarely, in each segment and, in the last row, in
            all of them, (J + 1, K).
        favourites: the most likely arms of each table being shown too often or too rarely, in the
            same rows, (J + 1,). Too often would reveal more to a tracker than promised.
    """

    log_e_value: float
    arms: FloatArray
    favourites: FloatArray

    @property
    def p_value(self) -> float:
        """1 / e-value, at most 1. Valid at any look."""
        return math.exp(-max(self.log_e_value, 0.0))


def tilt_log_e_value(probability: ArrayLike, trials: ArrayLike, successes: ArrayLike) -> FloatArray:
    """Return the log e-value of an event with known probabilities; groups are on the first axis.

    >>> round(float(tilt_log_e_value([0.5, 0.2], [1000, 1000], [560, 230])), 2)
    6.38
    """
    p = check.probability("probability", probability)
    n = check.count("trials", trials, 0)
    x = check.count("successes", successes, 0)
    if p.shape != n.shape or n.shape != x.shape or p.ndim == 0:
        raise InvalidArgumentError("successes", x.shape, "arrays of one shape, one row a group")
    if (x > n).any():
        raise InvalidArgumentError("successes", x.shape, "no more successes than trials")
    impossible = (((p == 0) & (x > 0)) | ((p == 1) & (x < n))).any(axis=0)
    shown = x.sum(axis=0)
    logs = np.stack([d * shown - _cumulant(p, n, float(d)) for d in TILTS])
    return np.where(impossible, np.inf, log_mean_exp(logs))


def draw_evidence(batches: Sequence[VisitorBatch]) -> DrawEvidence:
    """Return evidence against "all draws followed their tables", from counts by table, segment and arm.

    >>> fair = draw_evidence([VisitorBatch([[0.7, 0.3]], [[705, 295]], [[0, 0]])])
    >>> biased = draw_evidence([VisitorBatch([[0.7, 0.3]], [[800, 200]], [[0, 0]])])
    >>> round(fair.log_e_value, 1), round(biased.log_e_value, 1)
    (-0.7, 22.3)
    """
    p = np.stack([batch.probabilities for batch in batches])
    shows = np.stack([batch.shows for batch in batches])
    trials = np.broadcast_to(shows.sum(axis=2, keepdims=True), shows.shape)
    arms = _by_segment_and_whole(p, trials, shows)
    favourite, often = favourites_of(p)
    hits = np.where(favourite, shows, 0.0).sum(axis=-1)[..., None]
    favourites = _by_segment_and_whole(often[..., None], trials[..., :1], hits)[:, 0]
    everything = np.concatenate([arms.ravel(), favourites])
    return DrawEvidence(float(log_mean_exp(everything)), arms, favourites)


def favourites_of(probabilities: FloatArray) -> tuple[NDArray[np.bool_], FloatArray]:
    """Return which arms of each row are most likely, and the probability that one of them is shown.

    >>> mask, often = favourites_of(np.array([[0.4, 0.4, 0.2]]))
    >>> mask.tolist(), often.tolist()
    ([[True, True, False]], [0.8])
    """
    favourite = probabilities == probabilities.max(axis=-1, keepdims=True)
    often = np.minimum(np.where(favourite, probabilities, 0.0).sum(axis=-1), 1.0)
    return favourite, np.where(favourite.all(axis=-1), 1.0, often)


def multinomial_log_e_value(probabilities: ArrayLike, shows: ArrayLike) -> FloatArray:
    """Return the undirected log e-value of multinomial counts; arms are on the last axis.

    The alternative is a Dirichlet distribution around the table with concentration 100 (Lindon and
    Malek, "Anytime-valid inference for multinomial count data").

    >>> round(float(multinomial_log_e_value([0.5, 0.5], [500, 600])), 4)
    2.9302
    """
    p = check.probability("probabilities", probabilities)
    n = check.count("shows", shows, 0)
    if p.shape != n.shape or p.ndim == 0:
        raise InvalidArgumentError("shows", n.shape, f"an array of shape {p.shape}")
    used = p > 0
    prior = np.where(used, CONCENTRATION * p, 1.0)
    size = CONCENTRATION * p.sum(axis=-1)
    each = log_gamma(prior + n) - log_gamma(prior) - n * np.log(np.where(used, p, 1.0))
    total = log_gamma(size) - log_gamma(size + n.sum(axis=-1))
    result = total + np.where(used, each, 0.0).sum(axis=-1)
    return np.where((~used & (n > 0)).any(axis=-1), np.inf, result)


@dataclass(frozen=True)
class Excess:
    """A bias that would have been detected.

    Attributes:
        tilt: the logarithm of the factor on the arm's odds, in nats.
        share: how much more often the arm would have been shown, as a share of all draws.
        threshold: shows from which the evidence reaches 1/alpha.
    """

    tilt: float
    share: float
    threshold: int


def smallest_excess(
    probability: ArrayLike, trials: ArrayLike, *, alpha: float = 0.001, power: float = 0.99
) -> Excess | None:
    """Return the smallest tilt of an arm's odds that these draws would have revealed, or None.

    "Revealed" means that `tilt_log_e_value` reaches log(1/alpha) with a probability of at least
    `power`. It uses Chernoff's bound, so the true power is a little higher. If the evidence is a
    mean of m e-values, as in `draw_evidence`, divide alpha by m.

    Args:
        probability: probability of the arm in each table.
        trials: draws from each table.
        alpha: significance level.
        power: probability of detection.

    >>> found = smallest_excess([0.5], [10_000])
    >>> found.threshold, round(found.tilt, 3), round(found.share, 4)
    (5227, 0.151, 0.0377)
    """
    p = check.probability("probability", probability).ravel()
    n = check.count("trials", trials, 0).ravel()
    target = math.log(1 / alpha_level(alpha))
    miss = math.log1p(-check.single("power", check.probability("power", power)))
    total, mean = float(n.sum()), float((p * n).sum())
    prior = np.array([_cumulant(p, n, float(d)) for d in TILTS])

    def evidence(shown: float) -> float:
        return float(log_mean_exp(TILTS * shown - prior))

    possible = float(n[p > 0].sum())
    if evidence(possible) < target or mean in (0.0, total):
        return None
    low, high = math.floor(mean), math.floor(possible)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if evidence(middle) >= target else (middle, high)
    threshold = high
    last = threshold - 1.0
    critical = _bisect(lambda d: float(_shown(p, n, d).sum()) - last, 0.0, 60.0)
    slack = _cumulant(p, n, critical) - critical * last

    def log_miss(d: float) -> float:
        return float(slack - _cumulant(p, n, d) + d * last)

    if log_miss(60.0) > miss:
        return None
    tilt = _bisect(lambda d: miss - log_miss(d), critical, 60.0)
    return Excess(tilt, (float(_shown(p, n, tilt).sum()) - mean) / total, threshold)


def log_mean_exp(logs: FloatArray) -> FloatArray:
    """Return the log of the mean of exp(logs) over the first axis."""
    top = logs.max(axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(over="ignore"):
        result: FloatArray = np.log(np.exp(logs - safe).mean(axis=0)) + safe
    return result


def _by_segment_and_whole(p: FloatArray, trials: FloatArray, shows: FloatArray) -> FloatArray:
    """Return log e-values over tables per segment, then over tables and segments, (J + 1, K)."""
    width = p.shape[2]
    flat = [part.reshape(-1, width) for part in (p, trials, shows)]
    return np.vstack([tilt_log_e_value(p, trials, shows), tilt_log_e_value(*flat)])


def _cumulant(p: FloatArray, n: FloatArray, tilt: float) -> FloatArray:
    """Return Lambda(d), summed over the first axis."""
    result: FloatArray = (n * np.log1p(p * math.expm1(tilt))).sum(axis=0)
    return result


def _shown(p: FloatArray, n: FloatArray, tilt: float) -> FloatArray:
    """Return the expected shows of the arm under a tilt: the derivative of Lambda."""
    factor = math.exp(tilt)
    result: FloatArray = n * p * factor / (1 - p + p * factor)
    return result


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return the upper end of an interval bisected around the root of an increasing function."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= 0 else (middle, high)
    return high
