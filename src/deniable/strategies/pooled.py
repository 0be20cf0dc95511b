"""One bandit for all segments: every segment has the same row, so the shown arm reveals nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from deniable._validation import FloatArray
from deniable.strategies.kernel_rules import EpochRule


@dataclass(frozen=True)
class Pooled:
    """One bandit for all segments: the same row for each, with risk 0 whatever it learns.

    >>> Pooled().risk_cap
    0.0
    """

    name: ClassVar[str] = "pooled"
    label: ClassVar[str] = "pooled"
    risk_cap: ClassVar[float] = 0.0

    def rule(self, rates: FloatArray, horizon: int) -> EpochRule:
        """A row per epoch, from the counts of all segments together."""
        return EpochRule("pooled", 0.0, horizon)
