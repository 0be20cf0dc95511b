"""Epsilon-greedy without a cap: the dynamic schedule that no budget ends. Nothing is promised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from deniable._validation import FloatArray
from deniable.policies.contract import GreedyRule, falling_rule


@dataclass(frozen=True)
class EpsilonGreedyPolicy:
    """Exploration min(1, (K log n / n)^(1/3)) on the segment's clock n.

    >>> EpsilonGreedyPolicy().label
    'epsilon-greedy'
    """

    name: ClassVar[str] = "epsilon-greedy"
    label: ClassVar[str] = "epsilon-greedy"
    risk_cap: ClassVar[float] = math.inf

    def rule(self, rates: FloatArray, horizon: int) -> GreedyRule:
        """The falling schedule with a floor of 0, which it never reaches."""
        return falling_rule(rates.shape[0], floor=0.0, settles_at=math.inf)
