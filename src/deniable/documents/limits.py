"""Numbers, dates and names as documents print them.

Limits are rounded so that they stay true: "at most" upwards, "at least" downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import log, tanh

from deniable._formatting import listed
from deniable.errors import NANO
from deniable.privacy.exact import SPACE, exp_floor

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2))
"""A tracker's prior beliefs, for which limits are stated."""

MOST_LISTED = 40
"""Maximum number of account lines listed individually."""

MOST_NAMED = 12
"""Maximum number of names in a sentence."""

_TRILLION = 10**12
_DIGITS = (1, 2, 3, 4, 6, 9)


def nats(nano: int) -> str:
    """Format nano-nats as nats, exactly.

    >>> nats(1_500_000_000), nats(0), nats(333_333_333)
    ('1.5', '0', '0.333333333')
    """
    whole, rest = divmod(nano, NANO)
    return f"{whole:,}" + (f".{rest:09d}".rstrip("0") if rest else "")


def unit(nano: int) -> str:
    """Format nano-nats as nats with their unit.

    >>> unit(1_000_000_000), unit(2_500_000_000)
    ('1 nat', '2.5 nats')
    """
    return f"{nats(nano)} nat{'' if nano == NANO else 's'}"


def factor(nano: int) -> str:
    """Return the largest factor by which a budget lets the odds change, rounded up to three digits.

    >>> factor(1_000_000_000), factor(0), factor(12_000_000_000)
    ('2.72', '1', '163,000')
    """
    bound = exp_floor(nano)
    if bound > _TRILLION:
        return "more than a trillion"
    context = Context(prec=3, rounding=ROUND_CEILING)
    found = context.divide(Decimal(bound.numerator), Decimal(bound.denominator))
    return f"{found:,.0f}" if found >= 100 else f"{found.normalize():f}"


def highest(prior: Fraction, nano: int) -> Fraction:
    """Return the strongest possible belief: p r / (p r + 1 - p), with r a fraction below e^budget.

    >>> float(round(highest(Fraction(1, 5), 10**9), 6))
    0.40461
    """
    ratio = exp_floor(nano)
    return prior * ratio / (prior * ratio + 1 - prior)


def lowest(prior: Fraction, nano: int) -> Fraction:
    """Return the weakest possible belief: p / (p + (1 - p) r).

    >>> float(round(lowest(Fraction(1, 5), 10**9), 6))
    0.084224
    """
    return prior / (prior + (1 - prior) * exp_floor(nano))


def at_most(share: Fraction) -> str:
    """Format a share as a percentage, rounded up, with more digits if that would give 100%.

    >>> at_most(Fraction(40461, 100000)), at_most(Fraction(99996, 100000)), at_most(Fraction(1))
    ('40.5%', '99.996%', '100%')
    """
    if share == 1:
        return "100%"
    for digits in _DIGITS:
        found = _percent(share, digits, ROUND_CEILING)
        if found < 100:
            return f"{found}%"
    return "practically 100%"


def at_least(share: Fraction) -> str:
    """Format a share as a percentage, rounded down, with more digits if that would give 0%.

    >>> at_least(Fraction(84222, 10**6)), at_least(Fraction(1, 30000)), at_least(Fraction(0))
    ('8.4%', '0.003%', '0%')
    """
    if not share:
        return "0%"
    for digits in _DIGITS:
        found = _percent(share, digits, ROUND_FLOOR)
        if found > 0:
            return f"{found}%"
    return "practically 0%"


def _percent(share: Fraction, digits: int, rounding: str) -> Decimal:
    scaled = share * 100 * 10**digits
    whole = scaled.__ceil__() if rounding == ROUND_CEILING else scaled.__floor__()
    return Decimal(whole).scaleb(-digits)


def mean_log_odds(own: str, other: str) -> str:
    """Return how far a label moves the log-odds of the truth against another group, on average.

    Args:
        own: chance of the own label, out of 2^64 in hexadecimal.
        other: chance of each other label.

    The formula is (own - other) log(own / other): 2.48 for four labels at budget 3.

    >>> mean_log_odds("deb9f7bbdce7c22b", "0b16ad9a0bb2bf47")
    '2.48'
    """
    p, q = int(own, 16) / SPACE, int(other, 16) / SPACE
    return f"{(p - q) * log(p / q):.2f}"


def divided_log_odds(nano: int, n: int) -> str:
    """Return the same for n draws between two versions that divide a budget: b tanh(b / 2n).

    >>> divided_log_odds(3_000_000_000, 78)
    '0.06'
    """
    budget = nano / NANO
    return f"{budget * tanh(budget / (2 * n)):.2f}"


def wrong(own: str) -> Fraction:
    """Return the share of people whose label is not that of their group.

    >>> float(round(wrong("79b1a4eec500ab94"), 3))
    0.525
    """
    return 1 - Fraction(int(own, 16), SPACE)


def share(chance: int) -> Fraction:
    """Return a chance out of 2^64 as a share.

    >>> share(2**62)
    Fraction(1, 4)
    """
    return Fraction(chance, SPACE)


def day(time: datetime | None) -> str:
    """Format a date for people."""
    return "open" if time is None else f"{time:%-d %B %Y}"


def moment(time: datetime) -> str:
    """Format a time in UTC, to the minute."""
    return f"{time:%-d %B %Y, %H:%M} UTC"


def name(text: str) -> str:
    """Quote a name inside a sentence, isolated from the surrounding text direction.

    >>> name("checkout")
    '“checkout”'
    """
    return f"“{text}”" if text.isascii() else f"“\u2068{text}\u2069”"


def names(texts: Sequence[str], most: int = MOST_NAMED) -> str:
    """List names, truncated if there are many.

    >>> names(["a", "b"]), names([str(i) for i in range(14)])[-22:]
    ('“a” and “b”', ' “10”, “11” and 2 more')
    """
    return listed([name(text) for text in texts], most)
