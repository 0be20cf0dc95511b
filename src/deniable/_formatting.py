"""Writes numbers as people read them: counts, shares, chances, budgets, lists, spans of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import SupportsFloat


def whole(value: float) -> str:
    """A count.

    >>> whole(1234567)
    '1,234,567'
    """
    return f"{value:,.0f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share.

    >>> percent(0.1234), percent(None)
    ('12.3%', 'none yet')
    """
    return "none yet" if share is None or math.isnan(share) else f"{share * 100:.{digits}f}%"


def signed_percent(share: float) -> str:
    """A change.

    >>> signed_percent(0.1234), signed_percent(-0.5)
    ('+12.3%', '−50.0%')
    """
    return ("+" if share >= 0 else "−") + percent(abs(share))


def short_percent(share: SupportsFloat) -> str:
    """A share with at most three digits.

    >>> short_percent(0.1), short_percent(0.125), short_percent(0.01234)
    ('10%', '12.5%', '1.23%')
    """
    return f"{100 * float(share):.3g}%"


def short(value: float, digits: int = 3, sign: str = "") -> str:
    """A number with this many digits, or as a whole number; never as a power of ten.

    Args:
        value: the number.
        digits: how many.
        sign: "+" to write the sign of a positive number too.

    >>> short(6984.2), short(0.012345), short(12.5, sign="+"), short(0.00001234)
    ('6,984', '0.0123', '+12.5', '0.0000123')
    """
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:{sign},.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):{sign}f}"


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "table"), counted(1200, "table")
    ('1 table', '1,200 tables')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[object], most: int | None = None) -> str:
    """Names in a sentence, at most as many as given.

    >>> listed("a"), listed("abc"), listed("abcd", 2)
    ('a', 'a, b and c', 'a, b and 2 more')
    """
    texts = [str(name) for name in names]
    if most is not None and len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def chance(probability: float) -> str:
    """A probability that is never told as certain.

    >>> chance(0.9999), chance(0.42), chance(0.0)
    ('over 99%', '42%', 'under 1%')
    """
    if probability > 0.99:
        return "over 99%"
    return "under 1%" if probability < 0.01 else percent(probability, 0)


def nats(budget: float) -> str:
    """A budget, as short as it can be told.

    >>> nats(1.0), nats(0.25), nats(1 / 3)
    ('1', '0.25', '0.3333')
    """
    return f"{budget:,.4g}" if abs(budget) < 1e4 else whole(budget)


def in_nats(budget: float) -> str:
    """A budget with its unit.

    >>> in_nats(1.0), in_nats(0.5)
    ('1 nat', '0.5 nats')
    """
    return f"{nats(budget)} nat{'' if budget == 1 else 's'}"


def duration(seconds: float) -> str:
    """A span of time in its largest fitting unit.

    >>> duration(0.2), duration(90), duration(86_400), duration(10 * 86_400)
    ('under a second', '90 seconds', '24 hours', '10 days')
    """
    if seconds < 1:
        return "under a second"
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1)):
        if seconds >= 2 * size or size == 1:
            return f"{seconds / size:,.3g} {unit}"
    raise AssertionError("a second is the smallest unit")
