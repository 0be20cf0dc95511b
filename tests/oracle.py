"""The formulas once more, written from the paper in mpmath at 50 digits: the tests' second opinion.

Nothing here imports the package. Names follow the paper's symbols, so that the page and the code can
be read side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from mpmath import mp as mp
from mpmath import mpf as mpf

mp.dps = 50

Real = Any  # mpmath ships no types
Terms = tuple[Real, Real, Real]
Bound = Callable[..., Any]

A = 1 + 2 * mp.sqrt(2)
B = 4 * mp.sqrt(2)


def exact(x: float) -> Real:
    """The float's own value, not its shortest decimal."""
    return mpf(x)


def eps(k: int, xi: float) -> Real:
    return k / (k - 1 + mp.exp(exact(xi)))


def xi_of(k: int, e: float) -> Real:
    # 60 digits of guard: 1 - K + K/e cancels where e is near 1.
    with mp.workdps(110):
        return +mp.log(1 - k + k / exact(e))


def posterior_high(p: float, xi: float) -> Real:
    p_, g = exact(p), mp.exp(exact(xi))
    return p_ * g / (p_ * g + (1 - p_))


def posterior_low(p: float, xi: float) -> Real:
    p_, g = exact(p), mp.exp(-exact(xi))
    return p_ * g / (p_ * g + (1 - p_))


def eps_dyn(k: int, n: int) -> Real:
    if n < 3:
        return mpf(1)
    return min(mpf(1), mp.cbrt(k * mp.log(n) / n))


@lru_cache(maxsize=10_000)
def root(k: int, gamma: float) -> Real:
    """The exhaustion clock by mpmath's own Lambert W; kept, because it depends on no T or J."""
    with mp.workdps(80):
        y = eps(k, gamma) ** 3 / k
        if y >= mp.exp(-1):
            return mp.e
        return +mp.exp(-mp.re(mp.lambertw(-y, -1)))


def nonprivate(k: int, t: float, j: int = 1) -> Real:
    return A * mp.cbrt(mpf(k) * j) * mp.cbrt(exact(t)) ** 2 * mp.cbrt(mp.log(exact(t)))


def constant_terms(k: int, t: float, gamma: float, j: int = 1) -> Terms:
    e, T = eps(k, gamma), exact(t)
    return mpf(0), T * e, B * mp.sqrt(k * j * T * mp.log(T) / e)


def dynamic_terms(k: int, t: float, gamma: float) -> Terms:
    e, T = eps(k, gamma), exact(t)
    n = min(root(k, gamma), T)
    learning = A * mp.cbrt(k) * mp.cbrt(n) ** 2 * mp.cbrt(mp.log(n))
    return (
        learning,
        (T - n) * e,
        B * mp.sqrt(k / e) * (mp.sqrt(T) - mp.sqrt(n)) * mp.sqrt(mp.log(T)),
    )


def dynamic_terms_j(k: int, t: float, gamma: float, j: int) -> Terms:
    e, T = eps(k, gamma), exact(t)
    n = root(k, gamma)
    after = max(T - n, mpf(0))
    learning = A * mp.cbrt(mpf(k) * j) * mp.cbrt(min(T, j * n)) ** 2 * mp.cbrt(mp.log(T))
    return learning, after * e, B * mp.sqrt(k * j * after * mp.log(T) / e)


def constant(k: int, t: float, gamma: float, j: int = 1) -> Real:
    return sum(constant_terms(k, t, gamma, j))


def dynamic(k: int, t: float, gamma: float, j: int = 1) -> Real:
    return sum(dynamic_terms(k, t, gamma) if j == 1 else dynamic_terms_j(k, t, gamma, j))


def slope(bound: Any, k: int, t: float, gamma: float, j: int) -> Real:
    """A central difference at 80 digits: an independent derivative."""
    with mp.workdps(80):
        h = mpf(10) ** -25 * max(exact(gamma), mpf(10) ** -9)
        up, down = (bound(k, t, exact(gamma) + s * h, j) for s in (1, -1))
        return +((up - down) / (2 * h))


def inverse_odds(xi: float) -> Real:
    return 1 / mp.expm1(exact(xi))


def fall(k: int, gamma: float) -> Real:
    """-d log(eps) / d gamma, the scale on which every derivative of a bound lives."""
    g = mp.exp(exact(gamma))
    return g / (k - 1 + g)


def per_round(k: int, n: int, e: float, *, sharp: bool) -> Real:
    second = 2 * mp.sqrt(2 * k * mp.log(n) / (n * exact(e)))
    return exact(e) + ((1 - exact(e)) * second if sharp else second)


def best_constant(k: int, t: float, j: int = 1) -> Real:
    if t == 1:
        return mpf(0)
    x = mp.cbrt(mpf(k) ** 2 * exact(t) / (8 * j * mp.log(exact(t))))
    with mp.workdps(80):
        return +mp.log(x - k + 1) if x > k else mpf(0)


def best_dynamic(k: int, t: float) -> Real:
    with mp.workdps(110):
        return +xi_of(k, eps_dyn(k, int(t)))


def arm_matrix(risks: list[float]) -> list[list[Real]]:
    """p_jl: shown arm j by greedy arm l."""
    c = [inverse_odds(x) for x in risks]
    total = 1 + sum(c)
    arms = range(len(c))
    return [[(c[shown] + (shown == greedy)) / total for greedy in arms] for shown in arms]


def arm_constant(risks: list[float], t: float, j: int = 1) -> Real:
    c, T = [inverse_odds(x) for x in risks], exact(t)
    q_min = min(c) / (1 + sum(c))
    return T * sum(c) / (1 + sum(c)) + B * mp.sqrt(j * T * mp.log(T) / q_min)


def arm_round(risks: list[float], t: int) -> Real:
    c = [inverse_odds(x) for x in risks]
    total = sum(c)
    q_min = min(c) / (1 + total)
    return total / (1 + total) + 2 * mp.sqrt(2 * mp.log(t) / (t * q_min))


def gap(risks: list[float]) -> Real:
    with mp.workdps(400):
        return +(sum(inverse_odds(x) for x in risks) - len(risks) * inverse_odds(max(risks)))


def arm_excess(risks: list[float], t: int) -> Real:
    with mp.workdps(400):
        return +(arm_round(risks, t) - arm_round([max(risks)] * len(risks), t))


def arm_excess_linear(risks: list[float], t: int) -> Real:
    least = inverse_odds(max(risks))
    common = 1 + len(risks) * least
    bracket = 1 / common**2 + mp.sqrt(2 * mp.log(t) / (least * t)) / mp.sqrt(common)
    return gap(risks) * bracket


def budgets_for(
    bound: Bound, k: int, t: float, excesses: list[float], best: Real, j: int = 1
) -> list[Real]:
    """The smallest budgets within each excess of the bound at `best`, by a scan and bisection.

    `best` is the exact optimum of the bound: at its kink the square root of the time that is left
    turns a budget that is off in its 16th digit into a bound that is off in its 8th.
    """
    grid = [best * i / 400 for i in range(401)]
    values = [bound(k, t, g, j) for g in grid]
    return [
        _first_below(bound, k, t, (1 + exact(x)) * values[-1], j, grid, values) for x in excesses
    ]


def _first_below(
    bound: Bound, k: int, t: float, target: Real, j: int, grid: list[Real], values: list[Real]
) -> Real:
    first = next(i for i, value in enumerate(values) if value <= target)
    if first == 0:
        return mpf(0)
    low, high = grid[first - 1], grid[first]
    for _ in range(55):
        mid = (low + high) / 2
        low, high = (low, mid) if bound(k, t, mid, j) <= target else (mid, high)
    return high


def summed_constant(k: int, t: float, gamma: float, shares: list[Real]) -> Real:
    """The one-segment bounds added up; a segment of fewer than three visitors may lose them all."""
    sizes = [exact(t) * share for share in shares]
    return sum(n if n < 3 else constant(k, n, gamma) for n in sizes)


def summed_dynamic(k: int, t: float, gamma: float, shares: list[Real]) -> Real:
    """The same with 3/2 of the learning term: the sum of n^(-1/3) is (3/2) t^(2/3)."""
    total = mpf(0)
    for n in (exact(t) * share for share in shares):
        learning, exploration, estimation = dynamic_terms(k, n, gamma)
        total += n if n < 3 else mpf(3) / 2 * learning + exploration + estimation
    return total


def visitor_by_visitor(k: int, t: int, gamma: float) -> float:
    """The dynamic strategy's per-round bounds, none above 1 in the first two, added up one by one."""
    n = np.arange(3, t + 1)
    schedule = np.minimum(1.0, np.cbrt(k * np.log(n) / n))
    rate = np.maximum(schedule, float(eps(k, gamma)))
    return 2 + float(np.sum(rate + 2 * np.sqrt(2 * k * np.log(n) / (n * rate))))
