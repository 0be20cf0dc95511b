"""Privacy risk and exploration probability, which determine each other; and the dynamic schedule.

For the symmetric K-ary randomized response, the shown arm is the greedy one with probability
e^risk / (K - 1 + e^risk) and each other arm with 1 / (K - 1 + e^risk). That is epsilon-greedy with
``exploration = K / (K - 1 + e^risk)``. Risk 0 is uniform, infinite risk is purely greedy.

The dynamic schedule explores early and exploits later, up to the clock at which a budget binds:
``exploration_n = min(1, (K log n / n)^(1/3))``, and 1 for the first two visitors, for whom the raw
formula would start at 0, that is, at infinite risk. log n / n falls from n = 3 on, so the schedule
never increases.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from deniable import _validation as check
from deniable._blocks import in_blocks
from deniable._validation import FloatArray, Floats


def exploration_from_risk(n_arms: ArrayLike, risk: ArrayLike) -> Floats:
    """Return the probability that the shown arm is drawn uniformly: K / (K - 1 + e^risk).

    Args:
        n_arms: K, the number of arms, 2 or more.
        risk: xi, the privacy risk of one visitor, 0 or more.

    >>> round(float(exploration_from_risk(2, 0.05)), 6)
    0.975005
    """
    arms = check.count("n_arms", n_arms, 2)
    return check.unwrap(_exploration(arms, check.risk("risk", risk)))


def exploitation_from_risk(n_arms: ArrayLike, risk: ArrayLike) -> Floats:
    """Return 1 - exploration = (e^risk - 1) / (K - 1 + e^risk), accurate also for tiny risks.

    >>> round(float(exploitation_from_risk(2, 1e-9)) * 1e9, 12)
    0.5
    """
    arms = check.count("n_arms", n_arms, 2)
    xi = check.risk("risk", risk)
    return check.unwrap(np.asarray(-np.expm1(-xi) / (1 + (arms - 1) * np.exp(-xi))))


def risk_from_exploration(n_arms: ArrayLike, exploration: ArrayLike) -> Floats:
    """Invert `exploration_from_risk`: log(1 - K + K / exploration), for exploration in (0, 1].

    >>> round(float(risk_from_exploration(2, 0.094852)), 3)
    3.0
    """
    arms = check.count("n_arms", n_arms, 2)
    rate = check.probability("exploration", exploration, open_at_zero=True)
    return check.unwrap(_risk(arms, rate))


class _AtBudget(NamedTuple):
    """Quantities of a budget that the bounds need, from one exponential.

    Attributes:
        rate: e = K / (K - 1 + e^budget), the exploration.
        fall: -(1/e) de/d budget = e^budget / (K - 1 + e^budget), the greedy arm's probability.
        root: sqrt(K / e), finite for every budget.
    """

    rate: FloatArray
    fall: FloatArray
    root: FloatArray


def _at_budget(arms: FloatArray, budget: FloatArray) -> _AtBudget:
    # From 1,300 nats on, the root stays at e^650, so that no bound built on it overflows.
    half = np.exp(np.maximum(budget / -2, -650.0))
    decay = half * half
    inverse = 1 + (arms - 1) * decay
    fall = 1 / inverse
    return _AtBudget(arms * decay * fall, fall, np.sqrt(inverse) / half)


def _exploration(arms: FloatArray, risk: FloatArray) -> FloatArray:
    # Divide by e^risk, so that nothing overflows before the result underflows.
    decay = np.exp(-risk)
    return np.asarray(arms * decay / ((arms - 1) * decay + 1))


def _risk(arms: FloatArray, rate: FloatArray) -> FloatArray:
    # log((1 + (K-1)(1-rate)) / rate): two terms of one sign, so nothing cancels near rate = 1.
    return np.asarray(np.log1p((arms - 1) * (1 - rate)) - np.log(rate))


# -- over time -------------------------------------------------------------------------------------


def dynamic_exploration(n_arms: ArrayLike, clock: ArrayLike) -> Floats:
    """Return the exploration of the n-th visitor without a cap.

    Args:
        n_arms: K.
        clock: n, the visitors of this segment so far, including this one; 1 or more.

    >>> round(float(dynamic_exploration(2, 10)), 6)
    0.772233
    """
    arms = check.count("n_arms", n_arms, 2)
    return check.unwrap(_dynamic_exploration(arms, check.count("clock", clock, 1)))


def dynamic_risk(n_arms: ArrayLike, clock: ArrayLike) -> Floats:
    """Return the privacy risk of the n-th visitor without a cap: log(1 - K + K / exploration_n).

    >>> round(float(dynamic_risk(2, 1000)), 6)
    1.992663
    """
    arms = check.count("n_arms", n_arms, 2)
    n = check.count("clock", clock, 1)
    return check.unwrap(_risk(arms, _dynamic_exploration(arms, n)))


def exhaustion_clock(n_arms: ArrayLike, budget: ArrayLike) -> Floats:
    """Return the first integer n > e at which the schedule needs no more exploration than the budget.

    Infinite if n exceeds the largest float (budgets of several hundred nats).

    Args:
        n_arms: K.
        budget: gamma, the limit on every visitor's risk.

    >>> int(exhaustion_clock(2, 1)), int(exhaustion_clock(20, 5))
    (51, 138905)
    """
    return check.unwrap(np.ceil(np.asarray(exhaustion_root(n_arms, budget))))


def exhaustion_root(n_arms: ArrayLike, budget: ArrayLike) -> Floats:
    """Return the real n >= e with (K log n / n)^(1/3) = K / (K - 1 + e^budget), or e if there is none.

    In closed form, n = exp(-W(-y)) with y = exploration^3 / K, where W is the lower branch of the
    Lambert function.

    >>> round(float(exhaustion_root(2, 1)), 4)
    50.3722
    """
    arms = check.count("n_arms", n_arms, 2)
    cap = check.nonnegative("budget", budget)
    return check.unwrap(in_blocks(_exhaustion_root, arms, cap))


def exhaustion_times(
    n_arms: int, budget: float, arrivals: Iterable[Hashable]
) -> dict[Hashable, int | None]:
    """Return the visitor number of the experiment at which each segment reaches its exhaustion clock.

    Args:
        n_arms: K.
        budget: gamma.
        arrivals: the segment of each visitor, in order of arrival.

    Returns:
        For each segment seen: t, counted from 1, or None if it was not reached.

    >>> exhaustion_times(2, 0.3, ["new", "old", "new", "new", "new", "new", "new"])
    {'new': 7, 'old': None}
    """
    cap = check.single("budget", check.nonnegative("budget", budget))
    threshold = float(exhaustion_clock(check.whole("n_arms", n_arms, 2), cap))
    clocks: dict[Hashable, int] = {}
    reached: dict[Hashable, int | None] = {}
    for visitor, segment in enumerate(arrivals, start=1):
        clocks[segment] = clocks.get(segment, 0) + 1
        if reached.setdefault(segment, None) is None and clocks[segment] >= threshold:
            reached[segment] = visitor
    return reached


def expected_exhaustion_time(n_arms: ArrayLike, budget: ArrayLike, share: ArrayLike) -> Floats:
    """Return the expected number of visitors until a segment with this share reaches its clock.

    The waiting time is negative binomial with mean n / share.

    >>> float(expected_exhaustion_time(2, 1, 0.25))
    204.0
    """
    part = check.probability("share", share, open_at_zero=True)
    return check.unwrap(np.asarray(exhaustion_clock(n_arms, budget)) / part)


def _dynamic_exploration(arms: FloatArray, n: FloatArray) -> FloatArray:
    raw = np.cbrt(arms * np.log(n) / n)
    return np.where(n < 3, 1.0, np.minimum(1.0, raw))


def _exhaustion_root(arms: FloatArray, budget: FloatArray) -> FloatArray:
    """Return exp(u) where u - log u = level >= 1. Uses logarithms, so that no budget underflows."""
    # -log(exploration) without forming exploration, which underflows near budget 745.
    decay = np.exp(-budget)
    inverse = 1 + (arms - 1) * decay
    minus_log_rate = budget + np.log(inverse / arms)
    level = np.maximum(1.0, np.log(arms) + 3 * minus_log_rate)
    with np.errstate(over="ignore"):
        n = np.exp(_solve_u_minus_log_u(level))
    # exp magnifies errors in the last bits of its argument; one Newton step on log n - n y corrects
    # them.
    rate = arms * decay / inverse
    y = rate * rate * rate / arms  # not rate**3: NumPy would use a logarithm
    with np.errstate(invalid="ignore", over="ignore"):
        product = n * y
        polished = n * (1 - (np.log(n) - product) / (1 - product))
    return np.where((product > 1.001) & (level > 1) & (y > 1e-290), polished, n)


def _clock_within(arms: FloatArray, budget: FloatArray, horizon: FloatArray) -> FloatArray:
    """Return the real exhaustion clock, or the horizon if the budget does not bind within it.

    Whether it binds is decided from the budget, not the root. Near the horizon the root's last bits
    would decide, and the best budget itself must count as not binding.
    """
    binds = budget < _risk(arms, _dynamic_exploration(arms, horizon))
    return np.where(binds, np.minimum(_exhaustion_root(arms, budget), horizon), horizon)


def _solve_u_minus_log_u(level: FloatArray) -> FloatArray:
    """Return the root u >= 1 of u - log u = level, for level >= 1.

    It is -W_{-1}(-e^-level); SciPy's complex lambertw underflows for level > 708. The initial guess
    is from Barry et al. (2000), accurate to 2.5e-4; each step of Halley's method cubes the error.
    """
    excess = level - 1
    root = np.sqrt(excess)
    bend = 1 - 0.0042 * excess * np.exp(-0.0201 * root)
    u = level + 2 / 0.3361 * (1 - 1 / (1 + 0.3361 / np.sqrt(2) * root / bend))
    u = _halley_step(u, level)
    rough = (excess < 1e-2) | (level > 600)  # the caller makes no Newton step on exp(u) here
    if rough.any():
        u = np.where(rough, _halley_step(u, level), u)
    return np.asarray(np.maximum(u, 1.0))


def _halley_step(u: FloatArray, level: FloatArray) -> FloatArray:
    slope = np.maximum(u - 1, 1e-300)  # u times the derivative of u - log u
    step = (u - np.log(u) - level) / slope
    return np.asarray(u - u * step / (1 - step / (2 * slope)))
