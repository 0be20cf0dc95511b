"""Perfect information: always an arm with the highest true click rate of the segment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from deniable._validation import FloatArray
from deniable.policies.contract import FixedRule


@dataclass(frozen=True)
class PerfectPolicy:
    """The best arm of each segment; where several are best, each with the same probability.

    >>> import numpy as np
    >>> PerfectPolicy().rule(np.array([[0.3, 0.1], [0.2, 0.1]]), 100).shown.tolist()
    [[1.0, 0.5], [0.0, 0.5]]
    """

    name: ClassVar[str] = "perfect"
    label: ClassVar[str] = "perfect"
    risk_cap: ClassVar[float] = math.inf

    def rule(self, rates: FloatArray, horizon: int) -> FixedRule:
        """Uniform over each segment's best arms."""
        best = rates == rates.max(axis=0)
        return FixedRule(best / best.sum(axis=0))
