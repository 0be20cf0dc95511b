"""Exact discrete Laplace noise from the operating system's entropy.

P(X = x) is proportional to exp(-|x| denominator/numerator). No floating point is involved: the
sampler (Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020,
algorithms 1 and 2) uses only uniform integers and coins with rational probabilities.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from deniable import _validation as check

Entropy = Callable[[int], bytes]


def discrete_laplace(numerator: int, denominator: int, entropy: Entropy = os.urandom) -> int:
    """Draw one value with scale numerator/denominator.

    Args:
        numerator: above 0.
        denominator: above 0.
        entropy: source of random bytes; replaced only in tests.

    >>> discrete_laplace(1, 1_000_000)
    0
    """
    top = check.whole("numerator", numerator, 1)
    bottom = check.whole("denominator", denominator, 1)
    common = math.gcd(top, bottom)
    top, bottom = top // common, bottom // common
    while True:
        rest = _below(top, entropy)
        if not _exponential_coin(rest, top, entropy):
            continue
        whole = 0
        while _exponential_coin(1, 1, entropy):
            whole += 1
        size = (rest + top * whole) // bottom
        negative = _below(2, entropy)
        if size or not negative:  # otherwise zero would be drawn twice as often
            return -size if negative else size


def laplace_variance(numerator: int, denominator: int) -> float:
    """Return the variance of such a draw: 2 q / (1 - q)^2 with q = exp(-denominator/numerator).

    >>> round(laplace_variance(1, 1), 6), round(laplace_variance(4, 1), 3)
    (1.841347, 31.834)
    """
    rate = denominator / numerator
    # (1 - q)^2 / q = 4 sinh(rate / 2)^2, without cancellation.
    return 1 / (2 * math.sinh(rate / 2) ** 2) if rate < 1000 else 0.0


def _exponential_coin(numerator: int, denominator: int, entropy: Entropy) -> bool:
    """Return True with probability exp(-numerator/denominator), for a ratio of at most 1."""
    step = 1
    while _below(denominator * step, entropy) < numerator:
        step += 1
    return step % 2 == 1


def _below(limit: int, entropy: Entropy) -> int:
    """Draw uniformly from 0 to limit - 1, by rejection."""
    bits = (limit - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(entropy(size), "little") >> (8 * size - bits)
        if drawn < limit:
            return drawn
