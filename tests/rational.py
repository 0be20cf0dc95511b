"""Bounds on e^x in rational numbers, from nothing but its power series: a check on the checkers."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import factorial

_BITS = 320


@cache
def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals below and above e^x for x >= 0, within 1 part in 2^280 for x up to 1,000."""
    halvings = 0
    while x > Fraction(1, 256):
        x /= 2
        halvings += 1
    # 1 + x/1 (1 + x/2 (... (1 + x/39))) in integers: reducing a fraction takes longer than the rest.
    top = below = 1
    for i in range(39, 0, -1):
        below *= i * x.denominator
        top = below + top * x.numerator
    low = Fraction(top, below)
    # All later terms together are below twice the next one.
    high = low + 2 * x**40 / factorial(40)
    low, high = _down(low), _up(high)
    for _ in range(halvings):
        low, high = _down(low * low), _up(high * high)
    return low, high


def _down(value: Fraction) -> Fraction:
    top, below = value.numerator, value.denominator
    shift = _BITS - (top.bit_length() - below.bit_length())
    if shift < 0:
        return Fraction(top // (below << -shift) << -shift)
    return Fraction((top << shift) // below, 1 << shift)


def _up(value: Fraction) -> Fraction:
    return -_down(-value)
