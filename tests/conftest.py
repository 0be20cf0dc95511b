"""Hypothesis runs the same examples every time, however slow the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deniable", deadline=None, derandomize=True, database=None)
settings.load_profile("deniable")
