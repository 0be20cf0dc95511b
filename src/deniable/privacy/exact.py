"""The numbers in which a promise is exact: probabilities in units of 2^-64, risks in whole nano-nats.

Every table that is published, drawn from or audited is compared with e^risk in fractions. A power of e
has no finite one, so the checks use one that is never above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from deniable import _validation as check
from deniable.errors import NANO, InvalidArgumentError

SPACE = 1 << 64
"""The number of possible draws."""

_POWER_BITS = 320
"""Fractional bits of powers of e."""


@lru_cache(maxsize=16_384)
def exp_floor(risk_nano: int) -> Fraction:
    """Return a rational number at most e^risk, within 1 part in 10^75 of it up to 1,000 nats.

    A larger risk is taken for 1,000 nats, which only makes a check stricter.

    >>> exp_floor(0), round(float(exp_floor(1_000_000_000)), 9)
    (Fraction(1, 1), 2.718281828)
    """
    if not risk_nano:
        return Fraction(1)
    risk = min(risk_nano, 1000 * NANO)
    # e^x = (e^(x / 2^halvings))^(2^halvings). Every step is rounded down, so the result is too.
    halvings = 14 + (risk // NANO).bit_length()
    x = (risk << _POWER_BITS - halvings) // NANO
    term = power = 1 << _POWER_BITS
    place = 0
    while term:
        place += 1
        term = (term * x >> _POWER_BITS) // place
        power += term
    for _ in range(halvings):
        power = power * power >> _POWER_BITS
    return Fraction(power, 1 << _POWER_BITS)


def nano_nats(argument: str, values: Sequence[int]) -> tuple[int, ...]:
    """Validate nano-nats for each of 2 or more arms; 0 is allowed only for all of them.

    Args:
        argument: the name of what was given, for the error.
        values: one for each arm.

    >>> nano_nats("budgets", [500_000_000, 1_000_000_000])
    (500000000, 1000000000)
    """
    risks = tuple(values)
    # Thousands of tables are checked at once, so plain integers take a fast path.
    if set(map(type, risks)) != {int} or min(risks) < 0:
        risks = tuple(check.whole(argument, value, 0) for value in risks)
    if len(risks) < 2:
        raise InvalidArgumentError(argument, risks, "nano-nats for each of 2 or more arms")
    if min(risks) == 0 < max(risks):
        raise InvalidArgumentError(argument, risks, "all above 0, or all 0")
    return risks
