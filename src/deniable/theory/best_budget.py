"""Best budgets in closed form, and the smallest budget that is nearly as good.

- constant: x = (K^2 T / (8 J log T))^(1/3); best budget log(x - K + 1) where x > K, else 0.
- dynamic: log(1 - K + K / exploration_T), the smallest budget whose cap does not bind within the
  horizon, where the schedule's exploration_T < 1, else 0. It does not depend on J: once the cap binds,
  the two last terms of the J-segment bound are at least 6 (K J log T)^(1/3) (T - n)^(2/3), and with the
  first term that exceeds the bound without a cap, A (K J log T)^(1/3) T^(2/3), for every n < T.

One visitor teaches nothing: with T = 1 both are 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import _risk
from deniable.privacy.schedule import _dynamic_exploration
from deniable.theory.regret import _sizes, constant_regret, dynamic_regret


def best_constant_budget(
    n_arms: ArrayLike, horizon: ArrayLike, n_segments: ArrayLike = 1
) -> Floats:
    """The budget that minimizes the constant strategy's bound.

    >>> round(float(best_constant_budget(2, 10_000)), 6)
    1.968181
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    # As a ratio to K, which the answer is compared with: (x / K)^3 = T / (8 K J log T).
    ratio = np.cbrt(visitors / (8 * arms * segments * np.log(np.maximum(visitors, 2))))
    surplus = np.where(visitors > 1, np.maximum(arms * (ratio - 1), 0.0), 0.0)
    return check.unwrap(np.asarray(np.log1p(surplus)))


def best_dynamic_budget(n_arms: ArrayLike, horizon: ArrayLike, n_segments: ArrayLike = 1) -> Floats:
    """The smallest budget that minimizes the dynamic strategy's bound.

    >>> round(float(best_dynamic_budget(2, 10_000)), 6)
    2.728852
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    best = _risk(arms, _dynamic_exploration(arms, visitors))
    return check.unwrap(np.broadcast_arrays(best, segments)[0] + 0.0)


def constant_budget_for_regret(
    n_arms: ArrayLike, horizon: ArrayLike, excess: ArrayLike, n_segments: ArrayLike = 1
) -> Floats:
    """The smallest budget whose constant bound is within `excess` of the best: what privacy costs.

    Args:
        n_arms: K.
        horizon: T.
        excess: the part by which the bound may exceed its minimum, 0.05 for 5%.
        n_segments: J.

    >>> round(float(constant_budget_for_regret(2, 10_000, 0.05)), 4)
    1.4607
    """
    best = best_constant_budget(n_arms, horizon, n_segments)
    return _smallest_within(constant_regret, n_arms, horizon, n_segments, excess, best)


def dynamic_budget_for_regret(
    n_arms: ArrayLike, horizon: ArrayLike, excess: ArrayLike, n_segments: ArrayLike = 1
) -> Floats:
    """The smallest budget whose dynamic bound is within `excess` of the best.

    >>> round(float(dynamic_budget_for_regret(2, 10_000, 0.05)), 4)
    2.6722
    """
    best = best_dynamic_budget(n_arms, horizon, n_segments)
    return _smallest_within(dynamic_regret, n_arms, horizon, n_segments, excess, best)


Bound = Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike], Floats]


def _smallest_within(
    bound: Bound,
    n_arms: ArrayLike,
    horizon: ArrayLike,
    n_segments: ArrayLike,
    excess: ArrayLike,
    best: Floats,
) -> Floats:
    """Bisection for the first budget in [0, best] whose bound meets the target.

    The constant bound falls all the way to its minimum and the dynamic bound for one segment too;
    for several it may have a hump, so the first crossing is bracketed on a grid.
    """
    arms, visitors, segments, part, top = np.broadcast_arrays(
        np.asarray(n_arms, dtype=np.float64),
        np.asarray(horizon, dtype=np.float64),
        np.asarray(n_segments, dtype=np.float64),
        check.nonnegative("excess", excess),
        np.asarray(best),
    )
    target = (1 + part) * np.asarray(bound(arms, visitors, top, segments))
    steps = np.linspace(0, 1, 257).reshape(-1, *[1] * top.ndim)
    meets = np.asarray(bound(arms, visitors, steps * top, segments)) <= target
    meets[-1] = True
    first = meets.argmax(axis=0)
    high = top * steps.ravel()[first]
    low = top * steps.ravel()[np.maximum(first - 1, 0)]
    for _ in range(60):
        middle = (low + high) / 2
        good = np.asarray(bound(arms, visitors, middle, segments)) <= target
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    result: FloatArray = np.where(first == 0, 0.0, high)
    return check.unwrap(result)
