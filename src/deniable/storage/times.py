"""Stored times: whole microseconds since 1970, UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> int:
    """The present time."""
    return time.time_ns() // 1000


def as_datetime(stored: int) -> datetime:
    """A stored time for people.

    >>> as_datetime(1_500_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return _EPOCH + timedelta(microseconds=stored)


def maybe_datetime(stored: int | None) -> datetime | None:
    """A stored time that may be missing."""
    return None if stored is None else as_datetime(stored)


def as_stored(moment: datetime) -> int:
    """A time to store; one without a zone is taken as UTC.

    >>> as_stored(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    2000000
    """
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
