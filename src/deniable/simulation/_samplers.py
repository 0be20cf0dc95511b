"""Exact binomial, hypergeometric and geometric draws for the leap kernel.

Small cases are drawn by counting or by inversion, large ones by transformed rejection (binomial:
Hoermann 1993) and ratio of uniforms (hypergeometric: Stadlober 1990). Ratios of probabilities are
formed from Stirling corrections and log1p, not from log-gamma, so that they keep their digits for
counts far beyond 1e9.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deniable.policies._compile import compiled
from deniable.simulation._generator import positive_uniform, uniform

_COUNTING = 10  # up to here, tossing each coin is cheapest
_INVERSION_MEAN = 10.0
_NEAR_MODE = 15  # up to here, a ratio of probabilities is a short product
_PRODUCT_TOTAL = 1_000_000_000  # ... that cannot overflow, below this many items
_FAR = 4_611_686_018_427_387_904.0  # 2^62: "never", for waiting times

_STIRLING = np.array(
    [
        math.lgamma(k + 1) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))
        for k in range(16)
    ]
)


@compiled
def stirling_correction(k: Any) -> Any:
    """log k! - [(k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2]."""
    if k < 16:
        return _STIRLING[k]
    inverse = 1.0 / (k + 1.0)
    square = inverse * inverse
    return (1 / 12 - (1 / 360 - (1 / 1260 - square / 1680) * square) * square) * inverse


@compiled
def binomial(n: Any, p: Any, state: Any) -> Any:
    """Successes in n independent trials of probability p."""
    if n <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return n
    if n <= _COUNTING:
        hits = 0
        for _ in range(n):
            hits += 1 if uniform(state) < p else 0
        return hits
    flipped = p > 0.5
    rare = 1.0 - p if flipped else p
    if n * rare < _INVERSION_MEAN:
        hits = _binomial_by_inversion(n, rare, state)
    else:
        hits = _binomial_by_rejection(n, rare, state)
    return n - hits if flipped else hits


@compiled
def _binomial_by_inversion(n: Any, p: Any, state: Any) -> Any:
    odds = p / (1.0 - p)
    start = math.exp(n * math.log1p(-p))
    step = (n + 1) * odds
    while True:
        u = uniform(state)
        mass = start
        hits = 0
        while u >= mass:
            u -= mass
            hits += 1
            mass *= step / hits - odds
            if mass <= 1e-300:
                break
        if u < mass and hits <= n:
            return hits


@compiled
def _binomial_by_rejection(n: Any, p: Any, state: Any) -> Any:
    variance = n * p * (1.0 - p)
    spread = math.sqrt(variance)
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = n * p + 0.5
    while True:
        u = uniform(state) - 0.5
        v = uniform(state)
        us = 0.5 - abs(u)
        if us <= 0.0:
            continue
        place = math.floor((2.0 * a / us + b) * u + centre)
        if us >= 0.07 and v * b <= 0.92 * b - 4.2:
            return np.int64(place)
        if place < 0.0 or place > n:
            continue
        k = np.int64(place)
        v *= (2.83 * b + 5.1) * spread / (b * (a / (us * us) + b))
        if _binomial_accepts(n, p, variance, k, v):
            return k


@compiled
def _binomial_accepts(n: Any, p: Any, variance: Any, k: Any, v: Any) -> Any:
    """Whether v <= P(k) / P(mode)."""
    m = np.int64((n + 1) * p)
    off = abs(k - m)
    if off <= _NEAR_MODE:
        # The ratio as a product, of which the divisions are put together.
        above, below = 1.0, 1.0
        for i in range(min(k, m) + 1, max(k, m) + 1):
            above *= (n + 1 - i) * p
            below *= i * (1.0 - p)
        return v * below <= above if k >= m else v * above <= below
    log_v = math.log(v) if v > 0.0 else -1e300
    if off < 0.5 * variance - 1.0:
        # Bounds of the log of the ratio, from Kachitvichyanukul and Schmeiser's BTPE.
        bell = -0.5 * off * off / variance
        margin = off / variance * ((off * (off / 3.0 + 0.625) + 1.0 / 6.0) / variance + 0.5)
        if log_v < bell - margin:
            return True
        if log_v > bell + margin:
            return False
    return log_v <= _binomial_log_ratio(n, p, k, m)


@compiled
def _binomial_log_ratio(n: Any, p: Any, k: Any, m: Any) -> Any:
    """log of P(k) / P(m)."""
    return (
        (m + 0.5) * math.log1p((m - k) / (k + 1.0))
        + (n - m + 0.5) * math.log1p((k - m) / (n - k + 1.0))
        + (k - m) * math.log((n - k + 1.0) * p / ((k + 1.0) * (1.0 - p)))
        + stirling_correction(m)
        + stirling_correction(n - m)
        - stirling_correction(k)
        - stirling_correction(n - k)
    )


@compiled
def hypergeometric(good: Any, bad: Any, sample: Any, state: Any) -> Any:
    """Good items in a sample drawn without replacement from `good` and `bad` ones."""
    total = good + bad
    if sample <= 0 or good <= 0:
        return 0
    if bad <= 0:
        return sample
    if sample >= total:
        return good
    # The law is symmetric in good/bad and in sampled/left: draw the smallest corner.
    few = min(good, bad)
    taken = min(sample, total - sample)
    if min(few, taken) <= _COUNTING:
        hits = _hypergeometric_by_counting(few, total, taken, state)
    else:
        hits = _hypergeometric_by_rejection(few, total, taken, state)
    if taken != sample:
        hits = few - hits
    return hits if few == good else sample - hits


@compiled
def _hypergeometric_by_counting(few: Any, total: Any, taken: Any, state: Any) -> Any:
    # Also symmetric in (few, taken): toss the smaller number of coins.
    draws, marked = (few, taken) if few < taken else (taken, few)
    hits = 0
    for left in range(draws):
        if uniform(state) * (total - left) < marked - hits:
            hits += 1
    return hits


@compiled
def _hypergeometric_by_rejection(few: Any, total: Any, taken: Any, state: Any) -> Any:
    share = few / total
    mean = taken * share
    spread = math.sqrt(
        (total - taken) * (taken / total) * share * (1.0 - share) * (total / (total - 1.0)) + 0.5
    )
    width = 1.7155277699214135 * spread + 0.8989161620588988  # 2 sqrt(2/e), 3 - 2 sqrt(3/e)
    mode = np.int64(math.floor((taken + 1.0) * ((few + 1.0) / (total + 2.0))))
    largest = min(few, taken)
    top = min(largest + 1.0, math.floor(mean + 0.5 + 16.0 * spread + 16.0))
    rest = total - few - taken
    while True:
        u = positive_uniform(state)
        v = uniform(state)
        place = mean + 0.5 + width * (v - 0.5) / u
        if place < 0.0 or place >= top:
            continue
        k = np.int64(math.floor(place))
        if total < _PRODUCT_TOTAL and abs(k - mode) <= _NEAR_MODE:
            above, below = 1.0, 1.0
            for i in range(min(k, mode) + 1, max(k, mode) + 1):
                above *= (few + 1.0 - i) * (taken + 1.0 - i)
                below *= (rest + np.float64(i)) * i
            if (u * u * below <= above) if k >= mode else (u * u * above <= below):
                return k
            continue
        ratio = _hypergeometric_log_ratio(few, taken, rest, k, mode)
        if u * (4.0 - u) - 3.0 <= ratio:
            return k
        if u * (u - ratio) >= 1.0:
            continue
        if 2.0 * math.log(u) <= ratio:
            return k


@compiled
def _hypergeometric_log_ratio(few: Any, taken: Any, rest: Any, k: Any, m: Any) -> Any:
    """log of P(k) / P(m), where `rest` = total - few - taken."""
    return (
        _log_factorial_ratio(m, k)
        + _log_factorial_ratio(few - m, few - k)
        + _log_factorial_ratio(taken - m, taken - k)
        + _log_factorial_ratio(rest + m, rest + k)
        + (m - k) * math.log((k + 1.0) / (few - k + 1.0) * ((rest + k + 1.0) / (taken - k + 1.0)))
    )


@compiled
def _log_factorial_ratio(x: Any, y: Any) -> Any:
    """log x! - log y! - (x - y) (log(y + 1) - 1)."""
    return (
        (x + 0.5) * math.log1p((x - y) / (y + 1.0))
        + stirling_correction(x)
        - stirling_correction(y)
    )


@compiled
def wait_scale(p: Any) -> Any:
    """What `failures_before_success` needs of the probability: 1 / log(1 - p), or 0 for none."""
    return 1.0 / math.log1p(-p) if p > 0.0 else 0.0


@compiled
def failures_before_success(scale: Any, state: Any) -> Any:
    """A geometric waiting time, 0 or more, from `wait_scale(p)`; 2^62 where p is 0."""
    if scale == 0.0:
        return np.int64(_FAR)
    return np.int64(min(math.log(positive_uniform(state)) * scale, _FAR))


@compiled
def split_multinomial(visitors: Any, cumulative: Any, out: Any, state: Any) -> None:
    """How many of the visitors fall into each class: multinomial, by conditional binomials."""
    before = 0.0
    for j in range(out.size - 1):
        rest = 1.0 - before
        share = (cumulative[j] - before) / rest if rest > 0.0 else 0.0
        out[j] = binomial(visitors, min(1.0, share), state)
        visitors -= out[j]
        before = cumulative[j]
    out[out.size - 1] = visitors
