"""Marginal learning gain and privacy elasticity of regret, in closed form.

``gain = -dR/d budget`` is what one more unit of budget saves. ``elasticity = (budget / R) dR/d
budget`` is the percentage change of regret per percent of budget: negative where the experiment is
too random, positive where it is too greedy. The dynamic bound has a kink at its best budget: the gain
is positive just below, and 0 at and above it, where the cap no longer binds within the horizon.

In the form `paper` and for one segment, the dynamic elasticity is never positive, with one
exception: two arms, at most 60 visitors and a budget below 0.1951, where the exhaustion clock stays
at e whatever the budget. For several segments that form is humped: positive between a first valley
and a later fall to its minimum. In the form `summed` the elasticity turns positive between the best
budget and the budget from which the cap no longer binds.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._blocks import in_blocks
from deniable._validation import FloatArray, Floats
from deniable.privacy.exploration import _at_budget, _AtBudget, _clock_within
from deniable.theory.regret import (
    _FEW,
    B,
    Form,
    Terms,
    _as_printed,
    _constant_one,
    _dynamic_one_at,
    _dynamic_terms,
    _in_form,
    _sizes,
    _spread,
    constant_regret,
    over_segments,
)


def constant_gain(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the marginal learning gain of the constant strategy.

    With e the exploration of the budget: (T - (B/2) sqrt(K J T log T) e^(-3/2)) (-de/d budget).

    >>> round(float(constant_gain(2, 10_000, 1)), 3)
    2722.181
    """
    sizes = (n_arms, horizon, budget, n_segments)
    return _in_form(form, _constant_gain_one, _constant_gain, sizes, shares)


def dynamic_gain(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the marginal learning gain of the dynamic strategy, in the form that `dynamic_regret` uses.

    >>> round(float(dynamic_gain(2, 10_000, 1)), 3)
    2984.341
    """
    sizes = (n_arms, horizon, budget, n_segments)
    return _in_form(form, _dynamic_gain_one, _dynamic_gain, sizes, shares)


def constant_elasticity(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the elasticity of the constant strategy's bound; its zero is the best budget.

    >>> round(float(constant_elasticity(2, 10_000, 1)), 6)
    -0.313281
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    if form == "summed":
        *terms, gain = over_segments(_constant_slope_one, arms, visitors, segments, shares, cap)
        return check.unwrap(_elasticity(cap, gain, terms[0] + terms[1] + terms[2]))
    _as_printed(form, shares)
    return check.unwrap(in_blocks(_constant_elasticity, arms, visitors, cap, segments))


def dynamic_elasticity(
    n_arms: ArrayLike,
    horizon: ArrayLike,
    budget: ArrayLike,
    n_segments: ArrayLike = 1,
    *,
    form: Form = "paper",
    shares: ArrayLike | None = None,
) -> Floats:
    """Return the elasticity of the dynamic strategy's bound; 0 once the cap no longer binds.

    >>> round(float(dynamic_elasticity(2, 10_000, 1)), 6)
    -0.349826
    """
    arms, visitors, segments = _sizes(n_arms, horizon, n_segments)
    cap = check.nonnegative("budget", budget)
    if form == "summed":
        *terms, gain = over_segments(_dynamic_slope_one, arms, visitors, segments, shares, cap)
        return check.unwrap(_elasticity(cap, gain, terms[0] + terms[1] + terms[2]))
    _as_printed(form, shares)
    slope = in_blocks(_dynamic_elasticity, arms, visitors, cap, segments)
    return _spread(slope, np.broadcast_shapes(slope.shape, segments.shape))


def _constant_gain_one(arms: FloatArray, size: FloatArray, cap: FloatArray) -> tuple[FloatArray]:
    return _constant_slope_one(arms, size, cap)[3:]


def _dynamic_gain_one(arms: FloatArray, size: FloatArray, cap: FloatArray) -> tuple[FloatArray]:
    return (in_blocks(lambda *sizes: _dynamic_slope_one(*sizes)[3], arms, size, cap),)


Slope: TypeAlias = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""The three terms of a bound, and its gain."""


def _constant_slope_one(arms: FloatArray, size: FloatArray, cap: FloatArray) -> Slope:
    terms = _constant_one(arms, size, cap)
    gain = _at_budget(arms, cap).fall * (terms[1] - terms[2] / 2)
    return *terms, np.where(size < _FEW, 0.0, gain)


def _dynamic_slope_one(arms: FloatArray, size: FloatArray, cap: FloatArray) -> Slope:
    n, spent = np.maximum(size, _FEW), _at_budget(arms, cap)
    clock = _clock_within(arms, cap, n)
    terms = _dynamic_one_at(arms, size, spent, clock)
    gain = _gain_of_terms(terms, n, np.ones(()), spent, clock)
    return *terms, np.where(size < _FEW, 0.0, gain)


def _constant_gain(
    arms: FloatArray, visitors: FloatArray, cap: FloatArray, segments: FloatArray
) -> FloatArray:
    spent = _at_budget(arms, cap)
    estimation = B * np.sqrt(segments * visitors * np.log(visitors)) * spent.root
    # -dR/d budget = fall * (T e - (1/2) B sqrt(K J T log T / e)), from both terms of R.
    return np.asarray(spent.fall * (visitors * spent.rate - estimation / 2))


def _constant_elasticity(
    arms: FloatArray, visitors: FloatArray, cap: FloatArray, segments: FloatArray
) -> FloatArray:
    regret = np.asarray(constant_regret(arms, visitors, cap, segments))
    return _elasticity(cap, np.asarray(constant_gain(arms, visitors, cap, segments)), regret)


def _dynamic_elasticity(
    arms: FloatArray, visitors: FloatArray, cap: FloatArray, segments: FloatArray
) -> FloatArray:
    clock, spent = _clock_within(arms, cap, visitors), _at_budget(arms, cap)
    terms = _dynamic_terms(arms, visitors, segments, spent, clock)
    gain = _gain_of_terms(terms, visitors, segments, spent, clock)
    return _elasticity(cap, gain, terms[0] + terms[1] + terms[2])


def _elasticity(budget: FloatArray, gain: FloatArray, regret: FloatArray) -> FloatArray:
    # Divide first: gain and regret may both be near the largest float.
    with np.errstate(invalid="ignore"):
        ratio = np.where(gain == 0, 0.0, gain / regret)
    return np.asarray(0.0 - budget * ratio)


def _dynamic_gain(
    arms: FloatArray, visitors: FloatArray, cap: FloatArray, segments: FloatArray
) -> FloatArray:
    clock, spent = _clock_within(arms, cap, visitors), _at_budget(arms, cap)
    terms = _dynamic_terms(arms, visitors, segments, spent, clock)
    return _gain_of_terms(terms, visitors, segments, spent, clock)


def _gain_of_terms(
    terms: Terms, visitors: FloatArray, segments: FloatArray, spent: _AtBudget, clock: FloatArray
) -> FloatArray:
    """Return the gain from the bound's terms. Each is a product, so its slope is a multiple of itself.

    The budget acts through the exploration e, with (1/e) de/d budget = -fall, and through the clock
    n, with (1/n) dn/d budget = 3 fall log n / (log n - 1), or 0 where the clock stays at e.
    """
    learning, exploration, estimation = terms
    binds = clock < visitors
    n = np.where(binds, clock, math.e)  # harmless values where the result is 0
    after = np.where(binds, visitors - n, 1.0)
    log_n = np.log(n)
    by_learning, by_estimation = _clock_powers(visitors, segments, n, log_n, after)
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.where(log_n - 1 > 1e-12, 3 * log_n / (log_n - 1), 0.0)
    by_clock = learning * by_learning - n * spent.rate - estimation * by_estimation
    gain = spent.fall * (exploration - estimation / 2 - growth * by_clock)
    return np.where(binds, gain, 0.0)


def _clock_powers(
    visitors: FloatArray, segments: FloatArray, n: FloatArray, log_n: FloatArray, after: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (n/R) dR/dn of the learning term, and minus that of the estimation term."""
    root = np.sqrt(n)
    one = 2 / 3 + 1 / (3 * log_n), root * (np.sqrt(visitors) + root) / (2 * after)
    if (segments == 1).all():
        return one
    many = np.where(segments * n < visitors, 2 / 3, 0.0), n / (2 * after)
    learning, estimation = (np.where(segments == 1, a, b) for a, b in zip(one, many, strict=True))
    return learning, estimation
