"""An experiment with what is known about its click rates, and what is expected of a strategy in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from deniable.expectations.expected import Expected, expected_loss
from deniable.expectations.prior import Prior


@dataclass(frozen=True)
class Outcome:
    """The expected result of a strategy.

    Attributes:
        clicks: expected clicks of all visitors.
        lost: expected clicks lost against perfect information.
        low: 10% quantile of the loss, over the prior and the randomness of learning.
        high: 90% quantile of the loss.
    """

    clicks: float
    lost: float
    low: float
    high: float


@dataclass(frozen=True)
class Asked:
    """A validated experiment with prior knowledge; hashable.

    Attributes:
        n_arms: K.
        horizon: T.
        n_segments: J.
        shares: shares of the segments; None for equal ones.
        prior: prior of the click rates.
    """

    n_arms: int
    horizon: int
    n_segments: int
    shares: tuple[float, ...] | None
    prior: Prior

    @property
    def usual(self) -> bool:
        """Whether there is a surface for it: segments of equal size."""
        shares = self.shares
        return shares is None or np.allclose(shares, 1 / len(shares), rtol=1e-6, atol=0)

    def look_up(self, strategy: str, budgets: ArrayLike = 0.0) -> Expected:
        """Return the surface's value."""
        return expected_loss(
            strategy,
            self.n_arms,
            self.horizon,
            self.n_segments,
            base_rate=self.prior.base_rate,
            lift=self.prior.lift,
            heterogeneity=self.prior.heterogeneity,
            budgets=budgets,
        )
