"""Bounds on e^x in rational numbers, from nothing but its power series: a check on the checkers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import ceil, floor

_BITS = 320


@cache
def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals below and above e^x for x >= 0, within 1 part in 2^280 for x up to 1,000."""
    halvings = 0
    while x > Fraction(1, 256):
        x /= 2
        halvings += 1
    low, term = Fraction(1), Fraction(1)
    for i in range(1, 40):
        term = term * x / i
        low += term
    # All later terms together are below twice the next one.
    high = low + 2 * term * x / 40
    low, high = _round(low, floor), _round(high, ceil)
    for _ in range(halvings):
        low, high = _round(low * low, floor), _round(high * high, ceil)
    return low, high


def _round(value: Fraction, rounding: Callable[[Fraction], int]) -> Fraction:
    size = value.numerator.bit_length() - value.denominator.bit_length()
    shift = _BITS - size
    scaled = value * Fraction(2) ** shift
    return Fraction(rounding(scaled)) / Fraction(2) ** shift
