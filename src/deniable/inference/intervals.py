"""Confidence sequences for differences between arms, per segment and overall.

There are two kinds. The asymptotic ones are narrower and can be trusted once the segment has had
`LEAST_VISITORS` visitors and the scores have varied enough (`least_variance`), which keeps rare
rewards and rarely shown arms from appearing settled too early. The exact ones hold from the first
visitor on, whatever the rates; they become ready at the same time.

The error probability is split evenly over all comparisons shown: every pair of arms in every
segment and, with more than one segment, overall. Of 100 experiments, at most 5 show any wrong
interval of a kind at any look (alpha = .05).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.inference.boundaries import alpha_level, bernstein_mixture, normal_mixture
from deniable.inference.state import RUNNING, State, Sums

LEAST_VISITORS = 500
LEAST_IN_EACH_SEGMENT = 50
NEGLIGIBLE = 0.01
"""How much of a result may rest on cells with too little data: one visitor must not hide all others."""

LEAST_VARIANCE_PER_NAT = 4.0


@dataclass(frozen=True, eq=False)
class Intervals:
    """Estimates with both kinds of confidence sequence, arrays of one shape.

    Attributes:
        estimate: weighted mean of the scores; NaN without visitors.
        low: lower limit of the asymptotic sequence.
        high: its upper limit.
        exact_low: lower limit of the exact sequence.
        exact_high: its upper limit.
        ready: whether there is enough data to show it.
    """

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    exact_low: FloatArray
    exact_high: FloatArray
    ready: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Comparisons:
    """All comparisons of an experiment.

    Attributes:
        segments: differences by segment and pair, (J, pairs).
        whole: differences over all segments, weighted by their shares, (pairs,).
        alpha_each: error probability of one comparison.
        n_shown: number of comparisons that share alpha.
        stopped: whether an arm of the pair has retired, by segment and pair.
    """

    segments: Intervals
    whole: Intervals
    alpha_each: float
    n_shown: int
    stopped: NDArray[np.bool_]


def compare(state: State, *, shares: ArrayLike | None = None, alpha: float = 0.05) -> Comparisons:
    """Compare every pair of arms in every segment and overall.

    Args:
        state: sums of the experiment.
        shares: share of each segment among the visitors, for the overall result; observed shares by
            default.
        alpha: error probability over all comparisons and all looks together.

    >>> from deniable.inference.state import VisitorBatch, new_state, update
    >>> state = new_state(1, 2, horizon=4000)
    >>> for _ in range(4):
    ...     state = update(state, VisitorBatch([[0.5, 0.5]], [[500, 500]], [[50, 80]]))
    >>> found = compare(state).segments
    >>> [round(float(end[0, 0]), 4) for end in (found.low, found.estimate, found.high)]
    [0.0278, 0.06, 0.0922]
    >>> [round(float(end[0, 0]), 4) for end in (found.exact_low, found.exact_high)]
    [0.0234, 0.0966]
    """
    n_rows = state.n_segments + (state.n_segments > 1)
    n_shown = n_rows * len(state.pairs)
    each = alpha_level(alpha) / n_shown
    segments = of_sums(state.between, state.planned_between, state.rate, each, -1.0)
    weights = segment_shares(state, shares)
    if state.n_segments == 1:
        whole = Intervals(*(getattr(segments, name)[0] for name in segments.__dataclass_fields__))
    else:
        whole = combine(
            state.between, weights[:, None], state.planned_between, state.rate, each, -1.0
        )
    return Comparisons(segments, whole, each, n_shown, state.stopped_at != RUNNING)


def of_sums(
    sums: Sums,
    planned: FloatArray,
    rate: float,
    alpha: float,
    least: float,
    *,
    exact: bool = True,
) -> Intervals:
    """Return intervals for each cell separately, clipped to [least, 1].

    Args:
        sums: sums of all cells.
        planned: weight of each cell at the horizon.
        rate: initial guess of the rates.
        alpha: error probability of one cell.
        least: smallest possible value; the largest is 1.
        exact: False leaves the exact limits at the smallest and largest value, which is faster.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        near = normal_mixture(sums.variance, sums.weight / planned, alpha) / sums.weight
        nothing = np.full(sums.weight.shape, np.inf)
        far = _exact_radius(sums, planned, rate, alpha) if exact else nothing
    ready = (sums.visitors >= LEAST_VISITORS) & (sums.variance >= least_variance(alpha))
    return _around(sums.estimate, near, far, least, ready)


def combine(
    sums: Sums,
    coefficients: FloatArray,
    planned: FloatArray,
    rate: float,
    alpha: float,
    least: float,
    *,
    exact: bool = True,
) -> Intervals:
    """Return intervals for weighted sums of cells, summed over the first axis.

    Asymptotic: the variances add up, because the scores of different visitors are uncorrelated.
    Exact: the cells' intervals at alpha / cells are added up, which is valid for any coefficients
    but wider. The coefficients must not be chosen by looking at the cells' estimates.

    Args:
        sums: sums of all cells.
        coefficients: coefficient of each cell; cells with 0 are left out.
        planned: weight of each cell at the horizon.
        rate: initial guess of the rates.
        alpha: error probability of the result.
        least: smallest possible value; the largest is 1.
        exact: False leaves the exact limits at the smallest and largest value, which is faster.
    """
    c = np.broadcast_to(coefficients, sums.weight.shape)
    used = c != 0
    with np.errstate(invalid="ignore", divide="ignore"):
        step = np.where(used, c / sums.weight, 0.0)
        estimate = np.where(used, step * sums.total, 0.0).sum(axis=0)
        variance = np.where(used, step * step * sums.variance, 0.0).sum(axis=0)
        progress = np.where(used, c * c / planned, 0.0).sum(axis=0) / (step * c).sum(axis=0)
        largest = np.abs(step).max(axis=0)
        near = normal_mixture(np.nan_to_num(variance), np.nan_to_num(progress), alpha)
        cells = max(int(used.sum(axis=0).max()), 1)
        far = np.full(estimate.shape, np.inf)
        if exact:
            radius = _exact_radius(sums, planned, rate, alpha / cells)
            far = np.where(used, np.abs(c) * radius, 0.0).sum(axis=0)
        ready = (
            (
                np.where(sums.visitors < LEAST_IN_EACH_SEGMENT, np.abs(c), 0.0).sum(axis=0)
                <= NEGLIGIBLE
            )
            & (np.where(used, sums.visitors, 0.0).sum(axis=0) >= LEAST_VISITORS)
            & (variance >= least_variance(alpha) * largest**2)
        )
    return _around(estimate, np.asarray(near), far, least, ready)


def least_variance(alpha: float) -> float:
    """Return the sum of squares from which the asymptotic boundary can be trusted.

    It grows as alpha falls, because far tails need many steps to become normal.

    >>> round(least_variance(0.05), 1)
    14.8
    """
    return LEAST_VARIANCE_PER_NAT * math.log(2 / alpha)


def segment_shares(state: State, shares: ArrayLike | None) -> FloatArray:
    """Return the segments' shares, given or observed, normalised to sum to 1."""
    if shares is None:
        visitors = state.visitors if state.visitors.sum() > 0 else np.ones(state.n_segments)
        return np.asarray(visitors / visitors.sum())
    given = check.nonnegative("shares", shares)
    if given.shape != (state.n_segments,) or not given.sum() > 0:
        raise InvalidArgumentError(
            "shares", shares, f"{state.n_segments} shares, not all of them 0"
        )
    result: FloatArray = given / given.sum()
    return result


def _exact_radius(sums: Sums, planned: FloatArray, rate: float, alpha: float) -> FloatArray:
    variance = planned * max(rate * (1 - rate), 0.01)
    radius: FloatArray = np.asarray(bernstein_mixture(sums.variance, variance, alpha)) / sums.weight
    return radius


def _around(
    estimate: FloatArray,
    near: FloatArray,
    far: FloatArray,
    least: float,
    ready: NDArray[np.bool_],
) -> Intervals:
    """Return the limits, clipped to the possible range; the whole range if there is no data."""

    def end(radius: FloatArray, nothing: float) -> FloatArray:
        raw = estimate + radius
        return np.clip(np.where(np.isfinite(raw), raw, nothing), least, 1.0)

    return Intervals(
        estimate=estimate,
        low=end(-near, least),
        high=end(near, 1.0),
        exact_low=end(-far, least),
        exact_high=end(far, 1.0),
        ready=ready,
    )
