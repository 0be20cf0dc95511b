"""Levels at which a sound service is practically never accused: tests must not fail by chance."""

from __future__ import annotations

import pytest

from deniable.audit import evidence

LEVEL = 1e-12


def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits accuse at this level only. A planted fault must be found at it, too."""
    for name in ("DRAWS_ALPHA", "LOTTERY_ALPHA", "COUNTS_ALPHA"):
        monkeypatch.setattr(evidence, name, LEVEL)
