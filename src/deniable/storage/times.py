"""Stored times, in whole microseconds since 1970 (UTC), and their clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _system() -> int:
    return time.time_ns() // 1000


_clock: Callable[[], int] = _system


def now() -> int:
    """Return the current time."""
    return _clock()


@contextmanager
def running_on(clock: Callable[[], int]) -> Iterator[None]:
    """Use another clock in the whole process until the block ends.

    The demo uses this to simulate its first weeks before it serves.

    >>> with running_on(lambda: 7):
    ...     now()
    7
    """
    global _clock  # shared by all threads of a service
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


def as_datetime(stored: int) -> datetime:
    """Convert a stored time to a datetime.

    >>> as_datetime(1_500_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return _EPOCH + timedelta(microseconds=stored)


def maybe_datetime(stored: int | None) -> datetime | None:
    """Convert a stored time that may be None."""
    return None if stored is None else as_datetime(stored)


def as_stored(moment: datetime) -> int:
    """Convert a datetime to a stored time; without a time zone, UTC is assumed.

    >>> as_stored(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    2000000
    """
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
