"""Faults."""

from __future__ import annotations

from mutants.fault import Fault

FAULTS: tuple[Fault, ...] = ()
