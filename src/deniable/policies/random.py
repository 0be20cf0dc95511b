"""The random policy: every arm with the same probability. Nothing is learnt, nothing is revealed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable._validation import FloatArray
from deniable.policies.contract import FixedRule


@dataclass(frozen=True)
class RandomPolicy:
    """Every arm with probability 1/K.

    >>> RandomPolicy().rule(np.full((4, 1), 0.1), 100).shown.ravel().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    name: ClassVar[str] = "random"
    label: ClassVar[str] = "random"
    risk_cap: ClassVar[float] = 0.0

    def rule(self, rates: FloatArray, horizon: int) -> FixedRule:
        """Uniform in every segment."""
        return FixedRule(np.full(rates.shape, 1 / rates.shape[0]))
