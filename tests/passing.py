"""Time that passes while a service runs: only what the chain has witnessed frees budget."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deniable.storage import times
from deniable.storage.account_rules import DAY

STEP = 5 * DAY
"""Shorter than the longest gap that counts."""


def pass_until(monkeypatch: pytest.MonkeyPatch, beat: Callable[[], object], end: int) -> None:
    """Move the clock to a stored time, with an entry of the chain now and then."""
    now = times.now()
    while now < end:
        now = min(now + STEP, end)
        monkeypatch.setattr(times, "now", lambda now=now: now)
        beat()
