"""Numbers, times and budgets as people read them: the templates' filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any


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


def nats(budget: float) -> str:
    """A budget, as short as it can be told.

    >>> nats(1.0), nats(0.25), nats(1 / 3)
    ('1', '0.25', '0.3333')
    """
    return f"{budget:.4g}" if abs(budget) < 1e4 else whole(budget)


def factor(budget: float) -> str:
    """How far a budget lets odds move.

    >>> factor(1.0), factor(0.0), factor(12.0)
    ('2.72', '1.00', '163,000')
    """
    if budget > 30:
        return "more than a trillion"
    odds = math.exp(budget)
    return f"{odds:.2f}" if odds < 100 else whole(float(f"{odds:.3g}"))


def moment(time: datetime | None) -> str:
    """A time in UTC, to the minute."""
    return "not yet" if time is None else f"{time.astimezone(UTC):%-d %b %Y, %H:%M} UTC"


def day(time: datetime | None) -> str:
    """A date."""
    return "open" if time is None else f"{time.astimezone(UTC):%-d %b %Y}"


def capitalised(sentence: str) -> str:
    """A sentence with a large first letter, without its full stop.

    >>> capitalised("there is none.")
    'There is none'
    """
    return (sentence[:1].upper() + sentence[1:]).rstrip(".")


FILTERS: dict[str, Callable[..., Any]] = {
    "capitalised": capitalised,
    "whole": whole,
    "percent": percent,
    "nats": nats,
    "factor": factor,
    "moment": moment,
    "day": day,
}
