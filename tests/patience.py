"""How long a test waits for what must happen before it fails: only a failure takes that long.

Nothing is concluded from how long something took, so that a busy machine changes no result.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 300
"""Seconds."""


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE} seconds: {what}"
        time.sleep(0.01)
