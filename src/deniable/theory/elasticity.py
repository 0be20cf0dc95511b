"""Marginal learning gain and privacy elasticity of regret, in closed form.

``gain = -dR/d budget`` is what one more unit of budget saves. ``elasticity = (budget / R) dR/d
budget`` is the percentage change of regret per percent of budget: negative where the experiment is
too random, positive where it is too greedy. The dynamic bound has a kink at its best budget: the gain
is positive just below, and 0 at and above it, where the cap no longer binds within the horizon.

For one segment the dynamic elasticity is never positive, but for one corner: two arms, at most 60
visitors and a budget below 0.1951, where the exhaustion clock rests at e whatever the budget. For
several segments the bound is humped: positive between a first valley and a later fall to its minimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import _exploration
from deniable.privacy.schedule import _clock_within
from deniable.theory.regret import (
    A,
    B,
    _root_arms_over_rate,
    _sizes,
    _spread,
    constant_regret,
    dynamic_regret,
)


def constant_gain(
    n_arms: ArrayLike, horizon: ArrayLike, budget: ArrayLike, n_segments: ArrayLike = 1
) -> Floats:
    """Marginal learning gain of the constant strategy.

    With e the exploration of the budget: (T - (B/2) sqrt(K J T log T) e^(-3/2)) (-de/d budget).

    >>> round(float(constant_gain(2, 10_000, 1)), 3)
    2722.181
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    rate, fall = _exploration(arms, cap), _relative_fall(arms, cap)
    estimation = B * np.sqrt(segments * visitors * np.log(visitors))
    # -dR/d budget = fall * (T e - (1/2) B sqrt(K J T log T / e)): both terms of R, weighed.
    gain = fall * (visitors * rate - estimation * _root_arms_over_rate(arms, cap) / 2)
    return check.unwrap(np.asarray(gain))


def dynamic_gain(
    n_arms: ArrayLike, horizon: ArrayLike, budget: ArrayLike, n_segments: ArrayLike = 1
) -> Floats:
    """Marginal learning gain of the dynamic strategy, from the form that `dynamic_regret` uses.

    >>> round(float(dynamic_gain(2, 10_000, 1)), 3)
    2984.341
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    one = _dynamic_gain_one_segment(arms, visitors, cap)
    if (segments == 1).all():
        return _spread(one, np.broadcast_shapes(one.shape, segments.shape))
    many = _dynamic_gain_any_segments(arms, visitors, cap, segments)
    return check.unwrap(np.where(segments == 1, one, many))


def constant_elasticity(
    n_arms: ArrayLike, horizon: ArrayLike, budget: ArrayLike, n_segments: ArrayLike = 1
) -> Floats:
    """Elasticity of the constant strategy's bound; its zero is the best budget.

    >>> round(float(constant_elasticity(2, 10_000, 1)), 6)
    -0.313281
    """
    return _elasticity(
        budget,
        constant_gain(n_arms, horizon, budget, n_segments),
        constant_regret(n_arms, horizon, budget, n_segments),
    )


def dynamic_elasticity(
    n_arms: ArrayLike, horizon: ArrayLike, budget: ArrayLike, n_segments: ArrayLike = 1
) -> Floats:
    """Elasticity of the dynamic strategy's bound; 0 once the cap does not bind within the horizon.

    >>> round(float(dynamic_elasticity(2, 10_000, 1)), 6)
    -0.349826
    """
    return _elasticity(
        budget,
        dynamic_gain(n_arms, horizon, budget, n_segments),
        dynamic_regret(n_arms, horizon, budget, n_segments),
    )


def _elasticity(budget: ArrayLike, gain: Floats, regret: Floats) -> Floats:
    # The ratio before the product: gain and regret may both be near the largest float.
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.asarray(gain) == 0, 0.0, np.asarray(gain) / np.asarray(regret))
    return check.unwrap(np.asarray(0.0 - np.asarray(budget, dtype=np.float64) * ratio))


def _relative_fall(arms: FloatArray, budget: FloatArray) -> FloatArray:
    """-(1/e) de/d budget = e^budget / (K - 1 + e^budget): the greedy arm's probability."""
    return np.asarray(1 / (1 + (arms - 1) * np.exp(-budget)))


def _clock_growth(arms: FloatArray, budget: FloatArray, clock: FloatArray) -> FloatArray:
    """(1/n) dn/d budget = 3 fall log n / (log n - 1); 0 where the clock rests at e."""
    log = np.log(clock)
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = 3 * _relative_fall(arms, budget) * log / (log - 1)
    return np.where(log - 1 > 1e-12, growth, 0.0)


def _dynamic_gain_one_segment(
    arms: FloatArray, visitors: FloatArray, budget: FloatArray
) -> FloatArray:
    clock = _clock_within(arms, budget, visitors)
    binds = clock < visitors
    clock = np.where(binds, clock, np.e)  # a harmless value where the answer is 0
    rate, fall = _exploration(arms, budget), _relative_fall(arms, budget)
    growth = _clock_growth(arms, budget, clock)
    log_t, log_n = np.log(np.maximum(visitors, 2)), np.log(clock)
    after = np.where(binds, visitors - clock, 0.0)
    roots = after / (np.sqrt(visitors) + np.sqrt(clock))
    with np.errstate(over="ignore", invalid="ignore"):
        scale = B * _root_arms_over_rate(arms, budget) * np.sqrt(log_t)
        learning = A * np.cbrt(arms * log_n * clock * clock) * (2 / 3 + 1 / (3 * log_n))
        by_clock = learning - clock * rate - scale * np.sqrt(clock) / 2
        gain = fall * (after * rate - scale * roots / 2) - growth * by_clock
    return np.where(binds, gain, 0.0)


def _dynamic_gain_any_segments(
    arms: FloatArray, visitors: FloatArray, budget: FloatArray, segments: FloatArray
) -> FloatArray:
    clock = _clock_within(arms, budget, visitors)
    binds = clock < visitors
    clock = np.where(binds, clock, np.e)
    rate, fall = _exploration(arms, budget), _relative_fall(arms, budget)
    growth = _clock_growth(arms, budget, clock)
    log_t = np.log(np.maximum(visitors, 2))
    after = np.where(binds, visitors - clock, 1.0)
    growing = segments * clock < visitors
    pre = A * np.cbrt(arms * segments * log_t * (segments * clock) ** 2)
    learning = np.where(growing, 2 / 3 * pre, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        estimation = B * np.sqrt(segments * after * log_t) * _root_arms_over_rate(arms, budget)
        by_clock = learning - clock * rate - estimation * clock / (2 * after)
        gain = fall * (after * rate - estimation / 2) - growth * by_clock
    return np.where(binds, gain, 0.0)
