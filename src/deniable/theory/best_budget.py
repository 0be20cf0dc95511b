"""Best budgets, and the smallest budgets that are nearly as good.

In the paper's form, and in closed form:

- constant: x = (K^2 T / (8 J log T))^(1/3); best budget log(x - K + 1) where x > K, else 0.
- dynamic: log(1 - K + K / exploration_T), the smallest budget whose cap does not bind within the
  horizon, where the schedule's exploration_T < 1, else 0. It does not depend on J: once the cap binds,
  the two last terms of the J-segment bound are at least 6 (K J log T)^(1/3) (T - n)^(2/3), and with the
  first term that exceeds the bound without a cap, A (K J log T)^(1/3) T^(2/3), for every n < T.

In the form `summed` the constant bound is T e + B S sqrt(K / e), S the sum of sqrt(T_s log T_s) over
the segments, lowest where e^(3/2) = B S sqrt(K) / (2 T). The dynamic bound has no closed form:
`lowest_budget` looks for its minimum. It rises again between there and the budget from which the cap no
longer binds.

With T = 1 there is nothing to learn, and all are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import _dynamic_exploration, _risk
from deniable.theory.elasticity import dynamic_gain
from deniable.theory.regret import (
    B,
    Form,
    _as_printed,
    _learners,
    _shares,
    _sizes,
    constant_regret,
    dynamic_regret,
    over_segments,
)

OfBudget: TypeAlias = Callable[[FloatArray], Floats]
"""A bound or its gain as a function of budgets only; budgets may have an additional leading axis."""


def best_constant_budget(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the budget that minimizes the constant strategy's bound.

    Args:
        n_arms: K.
        horizon: T.
        n_segments: J.
        form: "paper" or "summed".
        shares: share of the visitors in each segment on the last axis, for "summed"; equal by
            default.

    >>> round(float(best_constant_budget(2, 10_000)), 6)
    1.968181
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    if form == "summed":
        learning, roots = over_segments(_learners, arms, visitors, segments, shares)
        # As a ratio to 1: e^(3/2) = B S sqrt(K) / (2 T), over the segments large enough to learn.
        ratio = np.cbrt(2 * learning / (B * np.sqrt(arms) * np.maximum(roots, 1e-300))) ** 2
        surplus = np.where(learning > 0, np.maximum(arms * (ratio - 1), 0.0), 0.0)
        return check.unwrap(np.asarray(np.log1p(surplus)))
    _as_printed(form, shares)
    # As a ratio to K, which the answer is compared with: (x / K)^3 = T / (8 K J log T).
    ratio = np.cbrt(visitors / (8 * arms * segments * np.log(np.maximum(visitors, 2))))
    surplus = np.where(visitors > 1, np.maximum(arms * (ratio - 1), 0.0), 0.0)
    return check.unwrap(np.asarray(np.log1p(surplus)))


def best_dynamic_budget(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the smallest budget that minimizes the dynamic strategy's bound.

    >>> round(float(best_dynamic_budget(2, 10_000)), 6)
    2.728852
    >>> round(float(best_dynamic_budget(2, 10_000, form="summed")), 3)
    2.268
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    if form == "summed":
        top = np.asarray(unbinding_budget(arms, visitors, segments, shares=shares))

        def bound(budget: FloatArray) -> Floats:
            return dynamic_regret(arms, visitors, budget, segments, form=form, shares=shares)

        def gain(budget: FloatArray) -> Floats:
            return dynamic_gain(arms, visitors, budget, segments, form=form, shares=shares)

        return lowest_budget(bound, gain, top, points=65 if shares is None else 257)
    _as_printed(form, shares)
    best = _risk(arms, _dynamic_exploration(arms, visitors))
    return check.unwrap(np.broadcast_arrays(best, segments)[0] + 0.0)


def unbinding_budget(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the smallest budget that no segment's schedule reaches: a larger one changes nothing.

    >>> round(float(unbinding_budget(2, 10_000)), 6)
    2.728852
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    parts = _shares(shares, segments)
    largest = visitors / segments if parts is None else visitors * parts.max(axis=-1)
    return check.unwrap(_risk(arms, _dynamic_exploration(arms, largest)) + 0.0)


def constant_budget_for_regret(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    excess: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the smallest budget whose constant bound is within `excess` of the best.

    Args:
        n_arms: K.
        horizon: T.
        excess: relative amount by which the bound may exceed its minimum, 0.05 for 5%.
        n_segments: J.
        form: "paper" or "summed".
        shares: share of the visitors in each segment, for "summed"; equal by default.

    >>> round(float(constant_budget_for_regret(2, 10_000, 0.05)), 4)
    1.4607
    """
    best = best_constant_budget(n_arms, horizon, n_segments, form=form, shares=shares)
    return smallest_within(
        lambda budget: constant_regret(
            n_arms, horizon, budget, n_segments, form=form, shares=shares
        ),
        best,
        excess,
    )


def dynamic_budget_for_regret(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    excess: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the smallest budget whose dynamic bound is within `excess` of the best.

    >>> round(float(dynamic_budget_for_regret(2, 10_000, 0.05)), 4)
    2.6722
    """
    best = best_dynamic_budget(n_arms, horizon, n_segments, form=form, shares=shares)
    return smallest_within(
        lambda budget: dynamic_regret(
            n_arms, horizon, budget, n_segments, form=form, shares=shares
        ),
        best,
        excess,
    )


def lowest_budget(bound: OfBudget, gain: OfBudget, top: ArrayLike, *, points: int = 257) -> Floats:
    """Return the smallest budget in [0, top] at which a bound is lowest, elementwise.

    A grid finds the lowest valley, because a bound may have several: with unequal shares each
    segment adds its own. Bisection on the sign of the gain then finds the minimum to full
    precision, which comparing values near a flat minimum could not.

    Args:
        bound: function of budgets; broadcasts them against the experiments.
        gain: minus its derivative.
        top: the largest budget to consider, per experiment.
        points: number of grid points.

    >>> round(float(lowest_budget(lambda b: (b - 2) ** 2, lambda b: 4 - 2 * b, 5.0)), 12)
    2.0
    """
    end = np.asarray(top, dtype=np.float64)
    steps = np.linspace(0, 1, points).reshape(-1, *[1] * end.ndim)
    values = np.asarray(bound(steps * end))
    end = np.broadcast_to(end, values.shape[1:])
    first = values.argmin(axis=0)
    fractions = steps.ravel()
    start = end * fractions[first]
    low = end * fractions[np.maximum(first - 1, 0)]
    high = end * fractions[np.minimum(first + 1, fractions.size - 1)]
    for _ in range(52):
        middle = (low + high) / 2
        helps = np.asarray(gain(middle)) > 0
        low, high = np.where(helps, middle, low), np.where(helps, high, middle)
    # A kink between grid points can mislead the bisection; never return a result worse than the
    # grid's.
    found, lowest = np.asarray(bound(high)), values.min(axis=0)
    worse = np.where(first == 0, found >= lowest, found > lowest)
    return check.unwrap(np.where(worse, start, high))


def smallest_within(bound: OfBudget, best: ArrayLike, excess: ArrayLike) -> Floats:
    """Return the first budget in [0, best] whose bound is at most (1 + excess) times that at `best`.

    Between 0 and its minimum a bound may have a hump, so the first crossing is bracketed on a grid,
    then refined by bisection.

    >>> round(float(smallest_within(lambda b: 1 + (b - 2) ** 2, 2.0, 0.25)), 12)
    1.5
    """
    part = check.nonnegative("excess", excess)
    target = (1 + part) * np.asarray(bound(np.asarray(best)))
    top = np.broadcast_to(np.asarray(best), target.shape)
    steps = np.linspace(0, 1, 257).reshape(-1, *[1] * top.ndim)
    meets = np.asarray(bound(steps * top)) <= target
    meets[-1] = True
    first = meets.argmax(axis=0)
    high = top * steps.ravel()[first]
    low = top * steps.ravel()[np.maximum(first - 1, 0)]
    for _ in range(60):
        middle = (low + high) / 2
        good = np.asarray(bound(middle)) <= target
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    result: FloatArray = np.where(first == 0, 0.0, high)
    return check.unwrap(result)
