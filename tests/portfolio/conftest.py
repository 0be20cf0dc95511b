"""No allocation of these tests ends because its time is over, unless a test says so."""

from __future__ import annotations

import pytest
from tests.patience import PATIENCE

from deniable.portfolio.allocation import Allocator, allocate


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the usual limit would change what is found."""
    for function in (Allocator.allocate, allocate):
        assert function.__kwdefaults__ is not None
        monkeypatch.setitem(function.__kwdefaults__, "time_limit", float(PATIENCE))
