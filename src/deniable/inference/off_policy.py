"""Off-policy evaluation: what another way of showing arms would have earned from the same visitors.

A policy is a row of probabilities for each segment: "always arm a", "each segment its best", or
another table, such as one with another budget. Its value is the mean reward per visitor, segments
weighted by their shares. With pi the policy and p the table that served a visitor:

* ``ips``: mean of pi(A)/p(A) Y. Unbiased, widest.
* ``snips``: the same divided by the mean of pi(A)/p(A). Narrower, with a bias that vanishes.
* ``dr``: sum pi m + pi(A)/p(A) (Y - m) with rates m guessed from earlier batches; unbiased and usually
  the narrowest. Visitors have the weight 1 / max(pi/p), which keeps a weighted score within
  [-1, 1] of its centre, so there is an exact interval too.

Batches in which the policy wants an arm that the table retired carry no information and are left out.
All intervals are confidence sequences: they hold at every look, for policies fixed
before looking. Use `chosen_value` for policies chosen from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable import _validation as check
from deniable._validation import FloatArray
from deniable.errors import InvalidArgumentError
from deniable.inference.boundaries import alpha_level
from deniable.inference.intervals import NEGLIGIBLE, Intervals, combine, of_sums, segment_shares
from deniable.inference.state import FLOOR, State, Sums, VisitorBatch, guesses, new_state, update

Method: TypeAlias = Literal["ips", "snips", "dr"]


@dataclass(frozen=True)
class Value:
    """The mean reward per visitor of a policy.

    Attributes:
        estimate: the value, only meaningful if it is ready.
        low: lower limit of the asymptotic confidence sequence.
        high: its upper limit.
        exact_low: lower limit of the exact one; 0 for methods that have none.
        exact_high: its upper limit; 1 for methods that have none.
        ready: whether there is enough data to show it.
    """

    estimate: float
    low: float
    high: float
    exact_low: float
    exact_high: float
    ready: bool


def always(arm: int, *, n_segments: int, n_arms: int) -> FloatArray:
    """Return the policy that shows one arm to everyone, (J, K)."""
    row = np.zeros((n_segments, n_arms))
    row[:, check.whole("arm", arm, 0, n_arms - 1)] = 1.0
    return row


def best_of_each(state: State) -> FloatArray:
    """Return the policy that shows each segment the arm with its highest estimate, (J, K)."""
    estimate = np.nan_to_num(state.alone.estimate, nan=-1.0)
    result: FloatArray = np.eye(state.n_arms)[estimate.argmax(axis=1)]
    return result


def policy_value(
    batches: Sequence[VisitorBatch],
    policy: ArrayLike,
    *,
    method: Method = "dr",
    horizon: float,
    shares: ArrayLike | None = None,
    alpha: float = 0.05,
) -> Value:
    """Estimate the value of a policy that was fixed before looking.

    Args:
        batches: counts by table, in the order in which they were served.
        policy: probability of each arm in each segment, (J, K), or one row for all segments.
        method: "ips", "snips" or "dr".
        horizon: visitors of a segment at which the interval should be narrowest.
        shares: shares of the segments; observed shares by default.
        alpha: error probability over all looks.

    >>> batches = [VisitorBatch([[0.5, 0.5]], [[500, 500]], [[50, 80]])] * 4
    >>> found = policy_value(batches, [0, 1], horizon=4000)
    >>> round(found.estimate, 3), round(found.low, 3), round(found.high, 3)
    (0.16, 0.135, 0.185)
    >>> round(policy_value(batches, [0, 1], method="snips", horizon=4000).estimate, 3)
    0.16
    """
    if not batches:
        raise InvalidArgumentError("batches", 0, "1 or more batches")
    shape = batches[0].shows.shape
    target = _policy(policy, shape)
    state = new_state(*shape, horizon=horizon)
    steps: dict[str, Callable[[VisitorBatch, FloatArray, State], Sums]] = {
        "ips": _ips,
        "snips": _snips,
        "dr": _dr,
    }
    if method not in steps:
        raise InvalidArgumentError("method", method, "ips, snips or dr")
    sums = Sums.zeros((shape[0], 1))
    largest = np.ones((shape[0], 1))
    for batch in batches:
        ratio = np.where(_possible(batch, target), _ratio(batch, target), 0.0)
        largest = np.maximum(largest, ratio.max(axis=1, keepdims=True))
        sums = sums.plus(_where_possible(batch, target, steps[method](batch, target, state)))
        state = update(state, batch)
    if method == "snips":
        sums = _in_units_of(largest, _around_ratio(sums, batches, target))
    elif method == "ips":
        with np.errstate(invalid="ignore"):
            centred = sums.variance - np.nan_to_num(sums.total**2 / sums.weight)
        spread = np.maximum(centred, 0.0)
        sums = _in_units_of(largest, Sums(sums.visitors, sums.weight, sums.total, spread))
    with np.errstate(invalid="ignore"):
        planned = np.nan_to_num(sums.weight / sums.visitors, nan=1.0) * state.horizon[:, None]
    weights = segment_shares(state, shares)[:, None]
    found = combine(sums, weights, planned, state.rate, alpha_level(alpha), 0.0)
    exact = method == "dr"
    return Value(
        estimate=float(found.estimate[0]),
        low=float(found.low[0]),
        high=float(found.high[0]),
        exact_low=float(found.exact_low[0]) if exact else 0.0,
        exact_high=float(found.exact_high[0]) if exact else 1.0,
        ready=bool(found.ready[0]),
    )


def chosen_value(
    state: State, policy: ArrayLike, *, shares: ArrayLike | None = None, alpha: float = 0.05
) -> Value:
    """Estimate the value of a policy that may have been chosen by looking at the data.

    Every segment and arm has its interval at alpha / (J K); the policy's interval is their weighted
    sum. It holds for all policies at once, including the best one, but is wider.

    >>> seen = VisitorBatch([[0.5, 0.5]], [[500, 500]], [[50, 80]])
    >>> state = update(new_state(1, 2, horizon=1000), seen)
    >>> found = chosen_value(state, best_of_each(state))
    >>> round(found.estimate, 3), round(found.low, 3), round(found.high, 3)
    (0.16, 0.106, 0.214)
    """
    return value_of_cells(
        arm_values(state, alpha),
        _policy(policy, state.shows.shape) * segment_shares(state, shares)[:, None],
    )


def value_of_cells(cells: Intervals, coefficients: FloatArray) -> Value:
    """Return the weighted sum of simultaneous intervals, (J, K); cells with 0 are left out.

    Coefficients may be negative: for the value of one policy minus that of another. Cells that are not
    ready count with their exact limits, as long as they are negligible.
    """
    c = coefficients
    used, rough = c != 0, ~cells.ready
    middle = (cells.exact_low + cells.exact_high) / 2
    estimate = np.where(np.isnan(cells.estimate), middle, cells.estimate)
    low = np.where(rough, cells.exact_low, cells.low)
    high = np.where(rough, cells.exact_high, cells.high)

    def total(positive: FloatArray, negative: FloatArray) -> float:
        return float(np.where(used, c * np.where(c > 0, positive, negative), 0.0).sum())

    return Value(
        estimate=total(estimate, estimate),
        low=total(low, high),
        high=total(high, low),
        exact_low=total(cells.exact_low, cells.exact_high),
        exact_high=total(cells.exact_high, cells.exact_low),
        ready=float(np.abs(c[rough]).sum()) <= NEGLIGIBLE,
    )


def arm_values(state: State, alpha: float = 0.05) -> Intervals:
    """Estimate the rate of every arm in every segment, with alpha split over all of them, (J, K)."""
    each = alpha_level(alpha) / state.shows.size
    return of_sums(state.alone, state.planned_alone, state.rate, each, 0.0)


def _policy(policy: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    rows = check.probability("policy", policy)
    if rows.shape not in (shape, shape[1:]) or (np.abs(rows.sum(axis=-1) - 1) > 1e-9).any():
        raise InvalidArgumentError("policy", rows.shape, f"shape {shape}, rows that sum to 1")
    return np.broadcast_to(rows, shape)


def _possible(batch: VisitorBatch, target: FloatArray) -> NDArray[np.bool_]:
    """Return the segments in which every arm of the policy could be drawn, (J, 1)."""
    wanted = (target == 0) | (batch.probabilities >= FLOOR)
    return np.asarray(wanted.all(axis=1, keepdims=True))


def _where_possible(batch: VisitorBatch, target: FloatArray, sums: Sums) -> Sums:
    good = _possible(batch, target)
    parts = (sums.visitors, sums.weight, sums.total, sums.variance)
    return Sums(*(np.where(good, part, 0.0) for part in parts))


def _ratio(batch: VisitorBatch, target: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(target > 0, target / batch.probabilities, 0.0)
    return np.where(np.isfinite(ratio), ratio, 0.0)


def _ips(batch: VisitorBatch, target: FloatArray, state: State) -> Sums:
    ratio = _ratio(batch, target)
    visitors = _total(batch.shows)
    return Sums(visitors, visitors, _total(ratio * batch.rewards), _total(ratio**2 * batch.squares))


def _snips(batch: VisitorBatch, target: FloatArray, state: State) -> Sums:
    ratio = _ratio(batch, target)
    return Sums(
        _total(batch.shows),
        _total(ratio * batch.shows),
        _total(ratio * batch.rewards),
        _total(ratio**2 * batch.squares),
    )


def _dr(batch: VisitorBatch, target: FloatArray, state: State) -> Sums:
    m = guesses(state)
    ratio = _ratio(batch, target)
    largest = ratio.max(axis=1, keepdims=True)
    w = 1 / np.where(largest > 0, largest, 1.0)
    visitors = _total(batch.shows)
    residual = batch.rewards - batch.shows * m
    squared = np.maximum(batch.squares - 2 * m * batch.rewards + batch.shows * m * m, 0.0)
    centre = _total(target * m)
    return Sums(
        visitors,
        w * visitors,
        w * (visitors * centre + _total(ratio * residual)),
        w**2 * _total(ratio**2 * squared),
    )


def _in_units_of(largest: FloatArray, sums: Sums) -> Sums:
    """Rescale the scores to at most 1, which `combine` needs to judge readiness."""
    return Sums(
        sums.visitors, sums.weight / largest, sums.total / largest, sums.variance / largest**2
    )


def _around_ratio(sums: Sums, batches: Sequence[VisitorBatch], target: FloatArray) -> Sums:
    """Return squares of the linearised scores pi/p (Y - v), where v is the ratio of the sums."""
    value = np.nan_to_num(sums.estimate)
    variance = np.zeros_like(sums.variance)
    for batch in batches:
        squared = batch.squares - 2 * value * batch.rewards + batch.shows * value**2
        part = _total(_ratio(batch, target) ** 2 * np.maximum(squared, 0.0))
        variance += np.where(_possible(batch, target), part, 0.0)
    return Sums(sums.visitors, sums.weight, sums.total, variance)


def _total(values: FloatArray) -> FloatArray:
    result: FloatArray = values.sum(axis=1, keepdims=True)
    return result
