"""The simulator's random numbers: a generator, and exact draws from it.

The generator is xoshiro256+ with a state of four words. Implemented here, it takes about a
nanosecond per draw, half of NumPy's through Numba, and its state is a plain array owned by the
kernel. States come from a NumPy SeedSequence, with one child per repetition, so that a repetition's
numbers depend only on the seed and its index. (Blackman and Vigna, Scrambled linear pseudorandom
number generators, 2021.)

Binomial and hypergeometric draws use counting or inversion for small cases, and transformed
rejection (binomial: Hoermann 1993) or ratio of uniforms (hypergeometric: Stadlober 1990) for large
ones. Ratios of probabilities are computed from Stirling corrections and log1p, not from log-gamma,
so that they stay accurate for counts far beyond 1e9.
"""

from __future__ import annotations

import math

import numpy as np

from deniable._compile import compiled
from deniable.simulation.kernels.state import FloatArray, IntArray, WordArray

_S11, _S17, _S19, _S45 = (np.uint64(shift) for shift in (11, 17, 19, 45))
_UNIT = 2.0**-53

_COUNTING = 10  # up to this many, tossing each coin is cheapest
_INVERSION_MEAN = 10.0
_NEAR_MODE = 15  # up to this distance, a ratio of probabilities is a short product
_PRODUCT_TOTAL = 1_000_000_000  # ... which cannot overflow below this many items
_FAR = 4_611_686_018_427_387_904.0  # 2^62: "never", for waiting times

_STIRLING = np.array(
    [
        math.lgamma(k + 1) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))
        for k in range(16)
    ]
)


def generator_state(seed: np.random.SeedSequence) -> WordArray:
    """Return four words for one repetition. A SeedSequence never yields the invalid all-zero state."""
    words = np.asarray(seed.generate_state(4, np.uint64), dtype=np.uint64)
    return words if words.any() else np.array([1, 2, 3, 4], dtype=np.uint64)


@compiled
def next_word(state: WordArray) -> np.uint64:
    """Return 64 random bits. The lowest three are weak and must not be used alone."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    word: np.uint64 = s0 + s3
    shifted = s1 << _S17
    s2 ^= s0
    s3 ^= s1
    state[1] = s1 ^ s2
    state[0] = s0 ^ s3
    state[2] = s2 ^ shifted
    state[3] = (s3 << _S45) | (s3 >> _S19)
    return word


@compiled
def uniform(state: WordArray) -> float:
    """Return a float in [0, 1), a multiple of 2^-53."""
    return float(next_word(state) >> _S11) * _UNIT


@compiled
def positive_uniform(state: WordArray) -> float:
    """Return a float in (0, 1], for logarithms."""
    return (float(next_word(state) >> _S11) + 1.0) * _UNIT


@compiled
def stirling_correction(k: int) -> float:
    """log k! - [(k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2]."""
    if k < 16:
        return float(_STIRLING[k])
    inverse = 1.0 / (k + 1.0)
    square = inverse * inverse
    return (1 / 12 - (1 / 360 - (1 / 1260 - square / 1680) * square) * square) * inverse


@compiled
def binomial(n: int, p: float, state: WordArray) -> int:
    """Draw the number of successes in n independent trials of probability p."""
    if n <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return n
    if n <= _COUNTING:
        hits = 0
        for _ in range(n):
            hits += 1 if uniform(state) < p else 0
        return hits
    # Both methods need p <= 1/2, so count the rarer outcome.
    flipped = p > 0.5
    rare = 1.0 - p if flipped else p
    if n * rare < _INVERSION_MEAN:
        hits = _binomial_by_inversion(n, rare, state)
    else:
        hits = _binomial_by_rejection(n, rare, state)
    return n - hits if flipped else hits


@compiled
def _binomial_by_inversion(n: int, p: float, state: WordArray) -> int:
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
        # Rounding can leave u above the sum of all masses; then draw again.
        if u < mass and hits <= n:
            return hits


@compiled
def _binomial_by_rejection(n: int, p: float, state: WordArray) -> int:
    variance = n * p * (1.0 - p)
    spread = math.sqrt(variance)
    # Constants of Hoermann's algorithm BTRS.
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
        # Most points are accepted here, without computing a probability.
        if us >= 0.07 and v * b <= 0.92 * b - 4.2:
            return int(place)
        if place < 0.0 or place > n:
            continue
        k = int(place)
        v *= (2.83 * b + 5.1) * spread / (b * (a / (us * us) + b))
        if _binomial_accepts(n, p, variance, k, v):
            return k


@compiled
def _binomial_accepts(n: int, p: float, variance: float, k: int, v: float) -> bool:
    """Whether v <= P(k) / P(mode)."""
    m = int((n + 1) * p)
    off = abs(k - m)
    if off <= _NEAR_MODE:
        # Compute the ratio as a product, with all divisions combined into one.
        above, below = 1.0, 1.0
        for i in range(min(k, m) + 1, max(k, m) + 1):
            above *= (n + 1 - i) * p
            below *= i * (1.0 - p)
        return v * below <= above if k >= m else v * above <= below
    log_v = math.log(v) if v > 0.0 else -1e300
    if off < 0.5 * variance - 1.0:
        # Bounds on the log of the ratio, from Kachitvichyanukul and Schmeiser's BTPE.
        bell = -0.5 * off * off / variance
        margin = off / variance * ((off * (off / 3.0 + 0.625) + 1.0 / 6.0) / variance + 0.5)
        if log_v < bell - margin:
            return True
        if log_v > bell + margin:
            return False
    return log_v <= _binomial_log_ratio(n, p, k, m)


@compiled
def _binomial_log_ratio(n: int, p: float, k: int, m: int) -> float:
    """Return the log of P(k) / P(m)."""
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
def hypergeometric(good: int, bad: int, sample: int, state: WordArray) -> int:
    """Draw the number of good items in a sample without replacement from `good` and `bad` ones."""
    total = good + bad
    if sample <= 0 or good <= 0:
        return 0
    if bad <= 0:
        return sample
    if sample >= total:
        return good
    # The distribution is symmetric in good/bad and in sampled/left: use the smallest case.
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
def _hypergeometric_by_counting(few: int, total: int, taken: int, state: WordArray) -> int:
    # Also symmetric in (few, taken): toss the smaller number of coins.
    draws, marked = (few, taken) if few < taken else (taken, few)
    hits = 0
    for left in range(draws):
        if uniform(state) * (total - left) < marked - hits:
            hits += 1
    return hits


@compiled
def _hypergeometric_by_rejection(few: int, total: int, taken: int, state: WordArray) -> int:
    share = few / total
    mean = taken * share
    spread = math.sqrt(
        (total - taken) * (taken / total) * share * (1.0 - share) * (total / (total - 1.0)) + 0.5
    )
    width = 1.7155277699214135 * spread + 0.8989161620588988  # 2 sqrt(2/e), 3 - 2 sqrt(3/e)
    mode = math.floor((taken + 1.0) * ((few + 1.0) / (total + 2.0)))
    largest = min(few, taken)
    top = min(largest + 1.0, math.floor(mean + 0.5 + 16.0 * spread + 16.0))
    rest = total - few - taken
    while True:
        u = positive_uniform(state)
        v = uniform(state)
        place = mean + 0.5 + width * (v - 0.5) / u
        if place < 0.0 or place >= top:
            continue
        k = math.floor(place)
        if total < _PRODUCT_TOTAL and abs(k - mode) <= _NEAR_MODE:
            above, below = 1.0, 1.0
            for i in range(min(k, mode) + 1, max(k, mode) + 1):
                above *= (few + 1.0 - i) * (taken + 1.0 - i)
                below *= (rest + float(i)) * i
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
def _hypergeometric_log_ratio(few: int, taken: int, rest: int, k: int, m: int) -> float:
    """Return the log of P(k) / P(m), where `rest` = total - few - taken."""
    return (
        _log_factorial_ratio(m, k)
        + _log_factorial_ratio(few - m, few - k)
        + _log_factorial_ratio(taken - m, taken - k)
        + _log_factorial_ratio(rest + m, rest + k)
        + (m - k) * math.log((k + 1.0) / (few - k + 1.0) * ((rest + k + 1.0) / (taken - k + 1.0)))
    )


@compiled
def _log_factorial_ratio(x: int, y: int) -> float:
    """Return log x! - log y! - (x - y) (log(y + 1) - 1)."""
    return (
        (x + 0.5) * math.log1p((x - y) / (y + 1.0))
        + stirling_correction(x)
        - stirling_correction(y)
    )


@compiled
def wait_scale(p: float) -> float:
    """Return the scale for `failures_before_success`: 1 / log(1 - p), or 0 if p is 0."""
    return 1.0 / math.log1p(-p) if p > 0.0 else 0.0


@compiled
def failures_before_success(scale: float, state: WordArray) -> int:
    """Draw a geometric waiting time, 0 or more, from `wait_scale(p)`; 2^62 if p is 0."""
    if scale == 0.0:
        return int(_FAR)
    return int(min(math.log(positive_uniform(state)) * scale, _FAR))


@compiled
def split_multinomial(
    visitors: int, cumulative: FloatArray, out: IntArray, state: WordArray
) -> None:
    """Draw how many of the visitors fall into each class: multinomial, by conditional binomials."""
    before = 0.0
    for j in range(out.size - 1):
        rest = 1.0 - before
        share = (cumulative[j] - before) / rest if rest > 0.0 else 0.0
        out[j] = binomial(visitors, min(1.0, share), state)
        visitors -= out[j]
        before = cumulative[j]
    out[out.size - 1] = visitors
