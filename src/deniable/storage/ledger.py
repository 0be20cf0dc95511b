"""Temporary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verification:
    problem: str | None = None


def verify(*a: Any) -> Verification:
    return Verification()
